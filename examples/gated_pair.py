# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The compute gate on two members of a pair, here two cores of one simulated chip:

    python examples/gated_pair.py

The host launches the same stock op for both members; the one whose priority is 0 skips it, decided on the device.
SGDC (static graph, dynamic concurrency) is what the ALSpec paper calls this.
"""

import os

import torch


def negate(device) -> list[float]:
    """Every member negates its tile of ones inside the gate; what its tile holds afterwards."""
    import ttnn

    from tt_kernels.common.cores import core_set
    from tt_kernels.common.priority import HOLDS_GUESS, YIELDED, priority_row
    from tt_kernels.compute_gate.op import GateMember, clear_compute_gate, skip_compute

    clear_compute_gate(device)
    tiles, members = [], []
    for number, priority in enumerate((YIELDED, HOLDS_GUESS)):  # 0: the sender, whose guess was accepted, may skip
        core = core_set((number, 0))
        shard = ttnn.ShardSpec(core, [32, 32], ttnn.ShardOrientation.ROW_MAJOR)
        memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shard)
        tiles.append(
            ttnn.from_torch(
                torch.ones(1, 1, 32, 32),
                ttnn.bfloat16,
                layout=ttnn.TILE_LAYOUT,
                device=device,
                memory_config=memory,
            )
        )
        row = ttnn.from_torch(priority_row(priority), dtype=ttnn.uint32, device=device)
        members.append(GateMember(row, core))
    with skip_compute(members, users=1):
        for tile, member in zip(tiles, members, strict=True):
            ttnn.neg(tile, output_tensor=tile, sub_core_grids=member.cores)  # an op is one member's
    return [ttnn.to_torch(tile).float().mean().item() for tile in tiles]


if __name__ == "__main__":
    from runtime_patches import sgdc
    from runtime_patches.simulated_n150.environment import simulated_environment

    os.environ.update(simulated_environment("2x1", sgdc.overlays()))  # before ttnn is imported
    import ttnn

    device = ttnn.open_device(device_id=0)
    try:
        sender, receiver = negate(device)
        print(f"sender, priority 0: {sender:+.0f} (skipped); receiver, priority 1: {receiver:+.0f} (negated)")
    finally:
        ttnn.close_device(device)
