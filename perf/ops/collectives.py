# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of the all-reduce of a decode step's rows, between simulated chips of a line, against stock ops.

A program takes from its go message on the first chip until its last core is done on the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from perf.lib.chip import Chip
from perf.ops.family import Family, Row, Target, measurable

GRID = "4x3"
TIMEOUT_S = 1e-2
TARGETS = {2: 9_000, 4: 12_000, 8: 16_000}  # cycles, one user, with residual and norm


def _all_reduce(mesh, p: SimpleNamespace) -> Row:
    """Cycles of the op, of the sum alone and with residual and norm; and of the stock ops in the latter's place:
    reduce_scatter, the add on a chip's part, all_gather, the norm of the whole row."""
    import ttnn

    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.all_reduce.op import AllReduce

    timeline, memory = Timeline(mesh), ttnn.L1_MEMORY_CONFIG
    op = AllReduce(mesh, p.users, p.columns, timeout_s=TIMEOUT_S)
    x, y = (_row(mesh, p.users, p.columns, memory) for _ in range(2))
    weights = _row(mesh, 1, p.columns, ttnn.DRAM_MEMORY_CONFIG)
    row: Row = {
        "sum": _slowest(mesh, timeline, partial(op, x))[0],
        "sum, residual, norm": _slowest(mesh, timeline, partial(op, x, residual=y, norm=weights))[0],
    }
    op.check()
    if p.ways == "own":
        return measurable(row)

    part = _row(mesh, p.users, p.columns // p.chips, memory)

    def stock() -> Any:
        line, place = {"cluster_axis": 1, "memory_config": memory}, {"memory_config": memory}
        update = ttnn.reduce_scatter(x, dim=3, topology=ttnn.Topology.Linear, **line)
        gathered = ttnn.all_gather(ttnn.add(part, update, **place), dim=3, **line)
        return ttnn.rms_norm(gathered, weight=weights, epsilon=1e-5, **place)

    scatter, add, gather, norm = _slowest(mesh, timeline, stock)
    row |= {"reduce_scatter": scatter, "add": add, "all_gather": gather, "rms_norm": norm}
    row["stock"] = scatter + add + gather + norm
    return measurable(row) | {"of_stock": row["sum, residual, norm"] / row["stock"]}


def _row(mesh, users: int, columns: int, memory: Any) -> Any:
    """Return normal numbers, the same on every chip; the host makes tiles of them, which would take the chips long."""
    import torch
    import ttnn

    host = ttnn.from_torch(
        torch.randn(1, 1, users, columns),
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
    )
    return ttnn.to_device(host, mesh, memory_config=memory)


def _slowest(mesh, timeline, launch: Callable[[], Any]) -> list[int]:
    """Return the cycles of each program of a launch on the slowest chip; it is launched once before, which compiles."""
    import ttnn

    launch()
    ttnn.synchronize_device(mesh)
    timeline.start()
    launch()
    chips = timeline.stop()
    return [max(span.end - span.start for span in spans) for spans in zip(*chips, strict=True)]


def _target(chips: int, limit: int) -> Target:
    def meant(row: Row) -> bool:
        return bool((row["chips"], row["users"]) == (chips, 1))

    return Target("sum, residual, norm", limit, meant, f"{chips} chips, one user")


ALL_REDUCE = Family(
    about="the sum of a TP group's rows on each of its chips, with residual and norm, against stock ops",
    options={"chips": 2, "users": 1, "columns": 4096, "ways": "all"},
    choices={"chips": (2, 4, 8), "ways": ("all", "own")},
    points={"default": ["chips=2,4,8"]},
    chip=lambda point: Chip(GRID, mesh=(1, point.chips), timed=True),
    measure=_all_reduce,
    targets=[_target(chips, limit) for chips, limit in TARGETS.items()],
)
