# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Multicast with semaphore handshakes, on both NoCs and grids up to 4x2, and stock matmuls that multicast."""

import pytest
import torch

KERNEL = "multicast_rounds.cpp"
ROUNDS = 3


def _corners(device, columns, rows, noc):
    import ttnn

    first = device.worker_core_from_logical_core(ttnn.CoreCoord(0, 0))
    last = device.worker_core_from_logical_core(ttnn.CoreCoord(columns - 1, rows - 1))
    ends = [(first.x, first.y), (last.x, last.y)]
    if noc == 1:  # travels the other way
        ends.reverse()
    return (first.x, first.y), [*ends[0], *ends[1]]


def multicast_rounds(device, tiles, columns, rows, noc, includes_sender):
    """Returns what every core got: [rounds * cores * 32, 32]."""
    from pathlib import Path

    import ttnn

    cores = columns * rows
    source = ttnn.from_torch(tiles, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    empty = torch.zeros(ROUNDS * cores * 32, 32, dtype=torch.bfloat16)
    target = ttnn.from_torch(empty, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    grid = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(columns - 1, rows - 1))])
    sender, corners = _corners(device, columns, rows, noc)
    arguments = ttnn.RuntimeArgs()
    for number in range(cores):
        core = ttnn.CoreCoord(number % columns, number // columns)
        arguments.append(core, [number, source.buffer_address(), target.buffer_address(), 0, 1, *sender, *corners])
    compile_time = [ROUNDS, cores, 2048, int(includes_sender)]
    for tensor in (source, target):
        compile_time += ttnn.TensorAccessorArgs(tensor).get_compile_time_args()
    kernel = ttnn.KernelDescriptor(
        kernel_source=str(Path(__file__).parent / "kernels" / KERNEL),
        core_ranges=grid,
        compile_time_args=compile_time,
        runtime_args=arguments,
        config=_on_noc(noc),
    )
    page = ttnn.CBFormatDescriptor(buffer_index=0, data_format=ttnn.bfloat16, page_size=2048)
    program = ttnn.ProgramDescriptor(
        kernels=[kernel],
        semaphores=[ttnn.SemaphoreDescriptor(id=id_, core_ranges=grid, initial_value=0) for id_ in (0, 1)],
        cbs=[ttnn.CBDescriptor(total_size=2 * 2048, core_ranges=grid, format_descriptors=[page])],
    )
    ttnn.generic_op([source, target], program)
    return ttnn.to_torch(target)


def _on_noc(noc):
    import ttnn

    if noc == 0:
        return ttnn.DataMovementConfigDescriptor(
            processor=ttnn.DataMovementProcessor.RISCV_1, noc=ttnn.NOC.RISCV_0_default
        )
    return ttnn.DataMovementConfigDescriptor(processor=ttnn.DataMovementProcessor.RISCV_0, noc=ttnn.NOC.RISCV_1_default)


@pytest.mark.sim
@pytest.mark.parametrize("grid", ["2x2", "4x2"])
@pytest.mark.parametrize("noc", [0, 1])
@pytest.mark.parametrize("includes_sender", [False, True], ids=["others", "loopback"])
def test_a_tile_reaches_every_core(sim_device, grid, noc, includes_sender):
    columns, rows = (int(side) for side in grid.split("x"))
    tiles = torch.randn(ROUNDS * 32, 32, generator=torch.Generator().manual_seed(noc)).bfloat16()
    got = sim_device(grid).run(multicast_rounds, tiles, columns, rows, noc, includes_sender)
    expected = tiles.reshape(ROUNDS, 1, 32, 32).expand(-1, columns * rows, -1, -1).reshape(-1, 32)
    assert torch.equal(got, expected)


def multicast_matmuls(device, activations, weights, rows_only, columns, rows):
    """A matmul whose activations (1D) or both operands (2D) are multicast over the whole grid."""
    import ttnn

    common = {
        "compute_with_storage_grid_size": (columns, rows),
        "in0_block_w": 1,
        "out_subblock_h": 1,
        "out_subblock_w": 1,
        "per_core_M": 1,
        "per_core_N": 1,
        "fused_activation": None,
    }
    if rows_only:
        program = ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(fuse_batch=True, mcast_in0=True, **common)
    else:
        program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(transpose_mcast=False, **common)
    a, b = (
        ttnn.from_torch(x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device) for x in (activations, weights)
    )
    return ttnn.to_torch(ttnn.matmul(a, b, program_config=program))


@pytest.mark.sim
@pytest.mark.parametrize("grid", ["2x2", "4x2"])
@pytest.mark.parametrize("rows_only", [False, True], ids=["2D", "1D"])
def test_stock_matmul_with_multicast(sim_device, grid, rows_only):
    """It deadlocked while the simulator counted the sender among the recipients of its own multicast."""
    columns, rows = (int(side) for side in grid.split("x"))
    generator = torch.Generator().manual_seed(5)
    activations = torch.randn(32 if rows_only else 32 * rows, 64, generator=generator).bfloat16()
    weights = torch.randn(64, 32 * columns * (rows if rows_only else 1), generator=generator).bfloat16()
    got = sim_device(grid).run(multicast_matmuls, activations, weights, rows_only, columns, rows).float()
    expected = activations.float() @ weights.float()
    pcc = torch.corrcoef(torch.stack([got.flatten(), expected.flatten()]))[0, 1]
    print(f"PCC {pcc:.6f}, largest error {(got - expected).abs().max():.4f}")
    assert pcc >= 0.999
