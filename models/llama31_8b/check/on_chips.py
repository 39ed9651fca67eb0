# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stages without a model: the host, ttnn's own ops, our ops, and links and collectives between chips.

Each function runs in a process of its own: function(context) returns its checks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from runtime_patches.board import doctor, environment
from runtime_patches.board.runtime_root import ttnn_version

from ..tt.mesh import MeshError, MeshShape, check_boards, find_boards, sysfs_text
from .findings import Check, Context, CouldNotRun, near

DRIVER = Path("/sys/module/tenstorrent/version")
HUGEPAGES = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
IOMMU = Path("/sys/class/iommu")
GRID = (2, 1)  # of the simulated chips
# Products of 32 x 128 by 128 x 32 numbers; a right sum is off by 0.001 of the root of its squared terms' sum.
PRODUCTS, MAX_RELATIVE = 4, 0.02
LINK_ROWS, BOARD_ROWS = (32, 128), (32, 128, 1024)  # of 64 bfloat16 numbers: 4, 16 and 128 KB
# The relative distance of `flash_decode`'s guess by what decides how many fraction bits of SrcB count where SrcA holds
# BF16 and SrcB TF32 (runtime_patches/simulated_n150/simulator/behaviour/operand_formats.py).
SRCB_BITS = {
    "those of its own format, as ttsim has it": 0.602917,
    "those of SrcA's, as the documents have it": 0.602598,
}
# How long a rank waits for its peer: simulated cycles are dear, and no launch of a simulated chip takes a million.
TIMEOUT_S, SIM_TIMEOUT_S = 2.0, 1e-3


def _put(context: Context, values: torch.Tensor, dtype: str = "bfloat16", layout: str = "TILE_LAYOUT") -> Any:
    import ttnn

    return ttnn.from_torch(values, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout), device=context.device)


def _random(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Return normal numbers that bfloat16 holds, as float32."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).bfloat16().float() for shape in shapes]


def host(context: Context) -> list[Check]:
    """Check the software, and with boards driver and hugepages. Errors: CouldNotRun if software is missing."""
    findings = doctor.software() if context.simulated else [*doctor.software(), doctor.cache_folder(), doctor.sfpi()]
    if lacking := [one for one in findings if not one.ok]:
        raise CouldNotRun("; ".join(f"{one.part}: {one.found} ({one.fix})" for one in lacking))
    checks = [Check("ttnn", ttnn_version())]
    return checks if context.simulated else checks + driver_checks()


def driver_checks(driver: Path = DRIVER, hugepages: Path = HUGEPAGES, iommu: Path = IOMMU) -> list[Check]:
    """Check the driver's files: it must be loaded, and there must be hugepages or an IOMMU."""
    version, pages = sysfs_text(driver), sysfs_text(hugepages)
    translated = iommu.is_dir() and any(iommu.iterdir())
    ready = translated or (pages or "0") != "0"
    shown = f"{pages or 'no'} hugepages, IOMMU {'on' if translated else 'off'}"
    return [
        Check("driver", version or f"no {driver}", "a version of tt-kmd", version is not None),
        Check("hugepages of 1 GB or IOMMU", shown, "one of them", ready),
    ]


def cards(context: Context) -> list[Check]:
    """Check that there are cards, and that all of them are N150."""
    if context.simulated:
        return [Check("cards", "simulated")]
    found = find_boards()
    try:
        check_boards(found)
        why = ""
    except MeshError as error:
        why = str(error)
    shown = ", ".join(map(str, found)) or f"none in {environment.BOARDS}"
    return [Check("cards", why or shown, "N150 boards", bool(found) and not why)]


def opens(context: Context) -> list[Check]:
    """Say what was opened; opening itself is the check."""
    grid = context.device.compute_with_storage_grid_size()
    whole = (grid.x, grid.y) == (8, 8)
    return [Check("cores", f"{grid.x}x{grid.y}", *(() if context.simulated else ("8x8", whole)))]


def stock_op(context: Context) -> list[Check]:
    """Add ones to ones."""
    import ttnn

    ones = _put(context, torch.ones(1, 1, 32, 32))
    sums = ttnn.to_torch(ttnn.add(ones, ones)).float()
    return [Check("ones + ones", sorted(set(sums.flatten().tolist()))[:4], [2.0], bool((sums == 2).all()))]


def hifi4_probe(context: Context) -> list[Check]:
    """Multiply random matrices with float32 accumulation (tt-metal issue 38306: with HiFi4 single outputs are wrong by
    powers of two): HiFi3, which the model uses, must be right; what HiFi4 gives is noted only."""
    checks = []
    for fidelity, name in (("HiFi3", "sums in HiFi3"), ("HiFi4", "sums in HiFi4, which the model never uses")):
        errors = []
        for seed in range(PRODUCTS):
            left, right = (part.double() for part in _random(38306 + seed, (32, 128), (128, 32)))
            errors.append((_product(context, left, right, fidelity) - left @ right) / (left**2 @ right**2).sqrt())
        relative = torch.stack(errors).abs().nan_to_num(math.inf)
        wrong = int((relative > MAX_RELATIVE).sum())
        measured = f"{wrong} of {relative.numel()} wrong, the worst by {float(relative.max()):.2g} of its terms"
        checks.append(Check(name, measured, *(("none wrong", wrong == 0) if fidelity == "HiFi3" else ())))
    return checks


def _product(context: Context, left: torch.Tensor, right: torch.Tensor, fidelity: str) -> torch.Tensor:
    """Return left @ right in float64, multiplied on the device with float32 accumulation."""
    import ttnn

    config = ttnn.WormholeComputeKernelConfig(math_fidelity=getattr(ttnn.MathFidelity, fidelity), fp32_dest_acc_en=True)
    a, b = (_put(context, part.float()) for part in (left, right))
    return ttnn.to_torch(ttnn.matmul(a, b, dtype=ttnn.float32, compute_kernel_config=config)).double()


def flash_decode(context: Context) -> list[Check]:
    """Decode one token of four heads over 201 cached ones: guess, exact result, distance and norm."""
    import ttnn

    from tt_kernels.speculative_flash_decode.op import ProgramConfig, speculative_flash_decode
    from tt_kernels.speculative_flash_decode.reference import speculative_flash_decode_reference

    q, k, v = _random(0, (1, 1, 4, 64), (1, 1, 256, 64), (1, 1, 256, 64))
    expected = speculative_flash_decode_reference(q, k, v, [200], chunk_size=64)
    position = _put(context, torch.tensor([200], dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT")
    q, k, v = (_put(context, part) for part in (q, k, v))
    config = ProgramConfig(grid=GRID)
    found = speculative_flash_decode(q, k, v, position, chunk_size=64, threshold=0.1, program_config=config)
    checks = []
    for part in ("guess", "exact", "distance_sq", "norm_sq"):
        wanted = getattr(expected, part)
        error = 0.02 * float(wanted.abs().max())
        checks.append(near(part, ttnn.to_torch(getattr(found, part)).float(), wanted, 0.9999, error))
    distance, norm = (float(ttnn.to_torch(part).flatten()[0]) for part in (found.distance_sq, found.norm_sq))
    relative = math.sqrt(distance / norm)
    rule = min(SRCB_BITS, key=lambda name: abs(SRCB_BITS[name] - relative))
    return [*checks, Check("bits of SrcB that count", f"{rule}: relative distance {relative:.6f}")]


def tree_attention(context: Context) -> list[Check]:
    """Attend to a chain of four nodes after 40 cached tokens."""
    import ttnn

    from tt_kernels.tree_attention import op
    from tt_kernels.tree_attention.reference import tree_attention_reference

    nodes = 4
    q, k, v = _random(1, (1, 4, nodes, 64), (1, 1, 64, 64), (1, 1, 64, 64))
    wanted = tree_attention_reference(q, k, v, [40], [[-1, 0, 1, 2]])
    prefix = _put(context, torch.tensor([40], dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT")
    steps = torch.arange(nodes, dtype=torch.int32)
    chain = torch.stack([steps, torch.full((nodes,), nodes - 1, dtype=torch.int32)])[None]
    intervals = _put(context, chain, "int32", "ROW_MAJOR_LAYOUT")
    q, k, v = (_put(context, part) for part in (q, k, v))
    found = op.tree_attention(q, k, v, prefix, intervals, program_config=op.ProgramConfig(grid=GRID))
    error = 0.02 * float(wanted.abs().max())
    return [near("tree attention", ttnn.to_torch(found).float(), wanted, 0.9999, error)]


def verification(context: Context) -> list[Check]:
    """Verify a chain of four nodes greedily, two of which the target agrees with."""
    from tt_kernels.speculative_sampling.op import greedy_verification

    tokens, target = torch.tensor([[5, 6, 7, 8]]).int(), torch.tensor([[6, 7, 9, 4]]).int()
    parents, row = torch.tensor([[-1, 0, 1, 2]], dtype=torch.int32), "ROW_MAJOR_LAYOUT"
    drafts, chosen = (_put(context, values, "uint32", row) for values in (tokens, target))
    (result,) = greedy_verification(drafts, _put(context, parents, "int32", row), chosen, 32).read()
    measured, expected = [list(result.path), list(result.tokens)], [[1, 2], [6, 7, 9]]
    return [Check("accepted nodes, tokens", measured, expected, measured == expected)]


def gate(context: Context) -> list[Check]:
    """Negate ones with the gate closed (priority 0), then open (priority 1): only the second happens."""
    import ttnn

    from tt_kernels.common.priority import HOLDS_GUESS, YIELDED, priority_row
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(context.device)
    checks = []
    for name, priority, expected in (("closed", YIELDED, 1.0), ("open", HOLDS_GUESS, -1.0)):
        tile = _put(context, torch.ones(1, 1, 32, 32))
        with skip_compute(_put(context, priority_row(priority), "uint32", "ROW_MAJOR_LAYOUT"), users=1):
            ttnn.neg(tile, output_tensor=tile)
        values = ttnn.to_torch(tile).float()
        checks.append(Check(f"gate {name}", float(values.mean()), expected, bool((values == expected).all())))
    return checks


def neighbours(rows: int, columns: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield each pair of chips that a cable of the mesh joins, (row, column) of both: columns first, as they speculate,
    then rows."""
    for row in range(rows - 1):
        yield from (((row, column), (row + 1, column)) for column in range(columns))
    for row in range(rows):
        yield from (((row, column), (row, column + 1)) for column in range(columns - 1))


def exchange(context: Context) -> list[Check]:
    """Let the first chip of each pair send its tensors to the second, then the second to the first: both hold the
    sender's. A pair that gives up does not end the others."""
    import ttnn

    from tt_kernels.common.peer import PeerError

    mesh, checks = context.device, []
    for first, second in neighbours(*mesh.shape):
        axis, name = int(first[0] == second[0]), f"chips {first} and {second}"
        shape = ttnn.MeshShape(1, 2) if axis else ttnn.MeshShape(2, 1)
        pair = mesh
        if mesh.get_num_devices() > 2:
            mesh.quiesce_devices()  # a chip's queue goes from one pair to the next
            pair = mesh.create_submesh(shape, ttnn.MeshCoordinate(*first))
        try:
            checks += _exchange(context, pair, axis, name)
        except PeerError as error:
            checks.append(Check(name, str(error), "an exchange", False))
    return checks


def _exchange(context: Context, mesh: Any, axis: int, pair: str) -> list[Check]:
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import HOLDS_EXACT, YIELDED, priority_row
    from tt_kernels.device_exchange.op import DeviceExchange

    checks, split = [], ttnn.ShardTensorToMesh(mesh, dim=0)
    op = DeviceExchange(ChipPairs(mesh, axis), 1, SIM_TIMEOUT_S if context.simulated else TIMEOUT_S)
    for rows in LINK_ROWS if context.simulated else BOARD_ROWS:
        same = []
        for sender in (0, 1):
            (values,) = _random(rows + sender, (2, 1, rows, 64))
            ranks = [priority_row(HOLDS_EXACT if rank == sender else YIELDED) for rank in range(2)]
            tensor = ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=split)
            priority = ttnn.from_torch(torch.cat(ranks), ttnn.uint32, device=mesh, mesh_mapper=split)
            op(tensor, priority)
            op.check()
            held = [ttnn.to_torch(part).float() for part in ttnn.get_device_tensors(tensor)]
            same += [torch.equal(part.reshape(rows, 64), values[sender, 0]) for part in held]
        shown = f"{sum(same)} of 4 ranks hold the sender's"
        checks.append(Check(f"{pair}, {rows * 128} bytes", shown, "4, by sender and rank", all(same)))
    return checks


def collectives(context: Context) -> list[Check]:
    """Gather columns, sum into parts, and gather the sums (all-reduce), on every TP group of the mesh at once, as the
    model calls them over the stock fabric."""
    import ttnn

    from ..tt.layouts import gather, reduce

    shape = MeshShape(*context.device.shape)
    values = _random(2, (shape.tp, 1, 32, 128))[0].bfloat16()
    on_chips = shape.put(context.device, values, "bfloat16", dim=0)
    summed = reduce(on_chips, shape)
    whole = values.double().sum(dim=0, keepdim=True)
    step = 2.0**-7 * float(whole.abs().max())  # bfloat16's, once for each chip that adds
    checks = []
    for name, tensor, expected, limit in (
        ("gather", gather(on_chips, shape), [torch.cat(list(values), dim=-1)[None]] * shape.tp, 0.0),
        ("sum", summed, list(whole.chunk(shape.tp, dim=-1)), step),
        ("sum, gathered", gather(summed, shape), [whole] * shape.tp, step),
    ):
        chips = [ttnn.to_torch(part).double() for part in ttnn.get_device_tensors(tensor)]
        errors = [float((chip - expected[index % shape.tp]).abs().max()) for index, chip in enumerate(chips)]
        shown = f"largest errors by chip: {[round(error, 5) for error in errors]}"
        checks.append(Check(name, shown, f"at most {limit:.5f}", max(errors) <= limit))
    return checks
