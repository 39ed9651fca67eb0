# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The compute gate on a pair of simulated chips:

    python examples/gated_pair.py

The host launches the same stock op on both; the chip whose priority is 0 skips it, decided on the device. The ALSpec
paper calls this SGDC (static graph, dynamic concurrency).
"""

import os

import torch


def negate(mesh) -> list[float]:
    """Negate each chip's tile of ones inside the gate and return what each tile holds afterwards."""
    import ttnn

    from tt_kernels.common.priority import HOLDS_GUESS, YIELDED, priority_row
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(mesh)
    ones = torch.ones(1, 1, 32, 32)
    tile = ttnn.from_torch(ones, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)  # the same on both chips
    rows = torch.cat([priority_row(YIELDED), priority_row(HOLDS_GUESS)])  # chip 0's guess was accepted: it may skip
    priority = ttnn.from_torch(rows, ttnn.uint32, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    with skip_compute(priority, users=1):
        ttnn.neg(tile, output_tensor=tile)
    return [ttnn.to_torch(part).float().mean().item() for part in ttnn.get_device_tensors(tile)]


if __name__ == "__main__":
    from runtime_patches import sgdc
    from runtime_patches.simulated_n150.environment import simulated_environment

    os.environ.update(simulated_environment("1x1", sgdc.overlays(), mesh=(1, 2)))  # before ttnn is imported
    import ttnn

    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    try:
        sender, receiver = negate(mesh)
        print(f"sender, priority 0: {sender:+.0f} (skipped); receiver, priority 1: {receiver:+.0f} (negated)")
    finally:
        ttnn.close_mesh_device(mesh)
