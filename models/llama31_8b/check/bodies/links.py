# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The links between neighbouring chips, pair by pair: an exchange of every size, with its times."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from ..context import Context
from ..findings import Check

ROWS = (32, 128)  # of 64 bfloat16 numbers: 4 and 16 KB
BOARD_ROWS = (*ROWS, 1024)  # 128 KB too, which take longer than a launch
TIMED = 20
# How long a rank waits for its peer: simulated cycles are dear, and no launch of a simulated chip takes a million.
TIMEOUT_S, SIM_TIMEOUT_S = 2.0, 1e-3


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


def _exchange(context: Context, mesh, axis: int, pair: str) -> list[Check]:
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import HOLDS_EXACT, YIELDED, priority_row
    from tt_kernels.device_exchange.op import DeviceExchange

    checks, split = [], ttnn.ShardTensorToMesh(mesh, dim=0)
    op = DeviceExchange(ChipPairs(mesh, axis), 1, SIM_TIMEOUT_S if context.simulated else TIMEOUT_S)
    for rows in ROWS if context.simulated else BOARD_ROWS:
        name, same = f"{pair}, {rows * 128} bytes", []
        for sender in (0, 1):
            generator = torch.Generator().manual_seed(rows + sender)
            values = torch.randn(2, 1, rows, 64, generator=generator).bfloat16()
            ranks = [priority_row(HOLDS_EXACT if rank == sender else YIELDED) for rank in range(2)]
            tensor = ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=split)
            priority = ttnn.from_torch(torch.cat(ranks), ttnn.uint32, device=mesh, mesh_mapper=split)
            op(tensor, priority)
            op.check()
            held = [ttnn.to_torch(part) for part in ttnn.get_device_tensors(tensor)]
            same += [torch.equal(part.reshape(rows, 64), values[sender, 0]) for part in held]
        checks.append(Check(name, f"{sum(same)} of 4 ranks hold the sender's", "4, by sender and rank", all(same)))
        if not context.simulated:
            checks.append(_timed(mesh, op, tensor, priority, name))
    return checks


def _timed(mesh, op, tensor, priority, name: str) -> Check:
    """Return microseconds per exchange, launches included."""
    import ttnn

    started = time.monotonic()
    for _ in range(TIMED):
        op(tensor, priority)
    ttnn.synchronize_device(mesh)
    return Check(f"{name}, us with launch", round(1e6 * (time.monotonic() - started) / TIMED, 1))
