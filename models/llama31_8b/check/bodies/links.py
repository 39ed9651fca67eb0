# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The link of two chips: an exchange of every size, with its times."""

from __future__ import annotations

import time

import torch

from ..context import Context
from ..findings import Check

ROWS = (32, 128)  # of 64 bfloat16 numbers: 4 and 16 KB
TIMED = 20


def exchange(context: Context) -> list[Check]:
    """Let rank 0 send its tensors to rank 1, then rank 1 to rank 0: both hold the sender's."""
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import HOLDS_EXACT, YIELDED, priority_row
    from tt_kernels.device_exchange.op import DeviceExchange

    mesh, checks = context.device, []
    split = ttnn.ShardTensorToMesh(mesh, dim=0)
    op = DeviceExchange(ChipPairs(mesh), users=1)
    for rows in ROWS:
        for sender in (0, 1):
            generator = torch.Generator().manual_seed(rows + sender)
            values = torch.randn(2, 1, rows, 64, generator=generator).bfloat16()
            ranks = [priority_row(HOLDS_EXACT if rank == sender else YIELDED) for rank in range(2)]
            tensor = ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=split)
            priority = ttnn.from_torch(torch.cat(ranks), ttnn.uint32, device=mesh, mesh_mapper=split)
            op(tensor, priority)
            op.check()
            held = [ttnn.to_torch(part) for part in ttnn.get_device_tensors(tensor)]
            same = [torch.equal(part.reshape(rows, 64), values[sender, 0]) for part in held]
            checks.append(Check(f"{rows * 128} bytes from rank {sender}", f"equal on ranks: {same}", "both", all(same)))
        if not context.simulated:
            checks.append(_timed(mesh, op, tensor, priority, rows * 128))
    return checks


def _timed(mesh, op, tensor, priority, size: int) -> Check:
    import ttnn

    started = time.monotonic()
    for _ in range(TIMED):
        op(tensor, priority)
    ttnn.synchronize_device(mesh)
    return Check(
        f"us per exchange of {size} bytes, launches included", round(1e6 * (time.monotonic() - started) / TIMED, 1)
    )
