# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of the all-reduce of a decode step's rows, between simulated chips of a line, against stock ops.

A program takes from its go message on the first chip until its last core is done on the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from perf.lib.chip import Chip, one_after_the_other
from perf.ops.family import Family, Row, measurable
from perf.sweep.configurations import Configuration
from perf.sweep.paper import CSV, cycles_of
from perf.sweep.table import read
from tt_kernels.common.cores import Core, core_set

GRID, TILE = "4x3", 32
TIMEOUT_S = 1e-2
STOCK = ("reduce_scatter", "all_gather")


def _all_reduce(mesh, p: SimpleNamespace) -> Row:
    """Cycles of the op with residual and norm; and of the two stock collectives alone in its place, reduce_scatter and
    all_gather, which the sweep has."""
    import ttnn

    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.all_reduce.op import AllReduce

    op = AllReduce(mesh, p.users, p.columns, timeout_s=TIMEOUT_S)
    x, y = (_row(mesh, p.users, p.columns, _on(op.workers, p.columns)) for _ in range(2))
    weights, timeline = _row(mesh, 1, p.columns, ttnn.DRAM_MEMORY_CONFIG), Timeline(mesh)
    timeline.start()
    for _ in range(2):  # the first one compiles
        op(x, residual=y, norm=weights)
    chips = [one_after_the_other((span.start, span.end) for span in spans) for spans in timeline.stop()]
    op.check()
    row = measurable({"cycles": max(took for *_, (_, took) in chips)})
    return row | _stock(p.chips, p.columns, row["cycles"])


def _stock(chips: int, columns: int, cycles: int) -> Row:
    """Return what the sweep of stock ops has (perf/data/paper_cycles.csv), None where it has nothing."""
    took = cycles_of(read(CSV))
    names = {op: Configuration.make("collective", op=op, mesh=f"1x{chips}", columns=columns).name for op in STOCK}
    found: Row = {op: took.get(name) for op, name in names.items()}
    both = None if None in found.values() else sum(found.values())
    return found | {"stock": both, "of_stock": both and cycles / both}


def _on(cores: Sequence[Core], columns: int) -> Any:
    """Return the memory of a row in shards on `cores`; a decode layer keeps its rows on up to 32."""
    import ttnn

    spec = ttnn.ShardSpec(core_set(*cores), [TILE, columns // len(cores)], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, spec)


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


ALL_REDUCE = Family(
    about="the sum of a TP group's rows on each of its chips, with residual and norm, against stock ops",
    options={"chips": 2, "users": 1, "columns": 4096},
    choices={"chips": (2, 4, 8)},
    points={"default": ["chips=2,4,8"]},
    chip=lambda point: Chip(GRID, mesh=(1, point.chips), timed=True),
    measure=_all_reduce,
)
