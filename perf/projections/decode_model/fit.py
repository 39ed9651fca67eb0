# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The parameters of the cost model, from one of the ALSpec paper's tables 4 to 7, and their errors on all four.

Default is the table of four chips, chosen by what it contains and not by how it fits: it alone has matmuls bound by
DRAM and by their activation's blocks. Collectives are never fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from models.llama31_8b.tt.mesh import MeshShape
from perf.projections.decode_model.costs import (
    ATTENTION,
    COLLECTIVE,
    MATMUL,
    STREAM,
    NotIdentified,
    Op,
    Parameters,
    reading_ns,
)
from perf.projections.decode_model.plans import Step
from perf.projections.estimator.tables import LAYERS, chip_table

DEFAULT_CHIPS = 4
TABLE_CONTEXT = 1024
# MCW's measurement of an interleaved RMSNorm on N150 (tt-metal issue #11802); the tables have sharded ones only.
INTERLEAVED_NORM_NS = 63600.0
LAYER, FIXED = "per_layer", "fixed"


@dataclass(frozen=True)
class Row:
    """An op of a table beside the model's. modelled_ns: None where the fit's table does not identify it."""

    chips: int
    section: str
    op: Op
    measured_ns: int
    modelled_ns: float | None

    @property
    def error(self) -> float | None:
        """The error, relative to the measured time."""
        return None if self.modelled_ns is None else self.modelled_ns / self.measured_ns - 1

    @property
    def per_token_ns(self) -> int:
        return self.measured_ns * (LAYERS if self.section == LAYER else 1)


def table_ops(chips: int) -> list[tuple[str, Op, int]]:
    """Return (section, op, measured ns) of the paper's table of `chips`, an op of the plan "paper" for each of its
    rows.

    Errors: ValueError where there is no such table; RuntimeError if plan and table name other ops.
    """
    table = chip_table(chips)
    step = Step(MeshShape(1, chips), TABLE_CONTEXT, plan="paper")
    # The tables' per-layer rows have gate and up in bfloat4_b: those of all layers but the last.
    found = []
    for section, ops, rows in ((LAYER, step.layer(0), table.per_layer), (FIXED, step.fixed(), table.fixed)):
        if [op.name for op in ops] != [row.name for row in rows]:
            raise RuntimeError(
                f"the plan's ops on {chips} chips are not the table's: {[op.name for op in ops]}, "
                f"{[row.name for row in rows]}"
            )
        found += [(section, op, row.ns) for op, row in zip(ops, rows, strict=True)]
    return found


@cache
def fit(chips: int = DEFAULT_CHIPS) -> Parameters:
    """Fit the parameters to the table of `chips` alone (least squares of relative errors). Errors: ValueError without
    such a table."""
    rows = [(op, ns) for _, op, ns in table_ops(chips)]
    launch = float(min(ns for _, ns in rows))
    rate, start, hop = _matmuls([(op, ns) for op, ns in rows if op.kind == MATMUL])
    units: dict[str, float] = {"interleaved norm": INTERLEAVED_NORM_NS - launch}
    plain = (MATMUL, ATTENTION, COLLECTIVE, STREAM)
    for kind in {op.kind for op, _ in rows} - set(plain):
        works = np.array([[op.work / ns] for op, ns in rows if op.kind == kind])
        rest = np.array([(ns - launch) / ns for op, ns in rows if op.kind == kind])
        units[kind] = max(0.0, float(np.linalg.lstsq(works, rest, rcond=None)[0][0]))
    waits = [ns - reading_ns(op) for op, ns in rows if op.kind == ATTENTION]
    return Parameters(chips, rate, launch, start, hop, sum(waits) / len(waits), units)


def _matmuls(rows: Sequence[tuple[Op, int]]) -> tuple[float, float, float | None]:
    """Return DRAM rate, start, and time of a block of activation (None where no matmul is bound by it).

    Which matmuls wait for their blocks is not known beforehand: those with the most blocks a byte, so every number of
    them is tried, and the best fit that agrees with itself is taken.
    """
    order = sorted({(op.hops, op.dram_bytes) for op, _ in rows}, key=lambda pair: pair[0] / pair[1], reverse=True)
    best: tuple[float, tuple[float, float, float | None]] | None = None
    for bound in range(len(order) - 1):
        waiting = set(order[:bound])
        matrix, wanted = [], []
        for op, ns in rows:
            is_waiting = (op.hops, op.dram_bytes) in waiting
            row = [1.0, 0.0 if is_waiting else op.dram_bytes, float(op.hops) if is_waiting else 0.0]
            matrix.append([value / ns for value in (row if bound else row[:2])])
            wanted.append(1.0)
        solved = np.linalg.lstsq(np.array(matrix), np.array(wanted), rcond=None)[0].tolist()
        start, per_byte, hop = solved[0], solved[1], solved[2] if bound else None
        if per_byte <= 0 or start < 0 or (hop is not None and hop <= 0):
            continue
        agrees = all(
            ((op.hops * (hop or 0.0)) > op.dram_bytes * per_byte) == ((op.hops, op.dram_bytes) in waiting)
            for op, _ in rows
        )
        error = float(np.sum((np.array(matrix) @ np.array(solved) - 1) ** 2))
        if agrees and (best is None or error < best[0]):
            best = error, (1e9 / per_byte, start, hop)
    if best is None:
        raise RuntimeError("no rate and start explain the table's matmuls")
    return best[1]


def check_table(parameters: Parameters, chips: int) -> list[Row]:
    """Return every op of the paper's table of `chips` beside the model's time."""
    found = []
    for section, op, measured in table_ops(chips):
        try:
            modelled: float | None = parameters.ns(op)
        except NotIdentified:
            modelled = None
        found.append(Row(chips, section, op, measured, modelled))
    return found


def weighted_error(rows: Sequence[Row]) -> float:
    """Return the sum of absolute errors over the time of a token, of what is modelled."""
    known = [row for row in rows if row.modelled_ns is not None]
    apart = sum(abs(row.error or 0.0) * row.per_token_ns for row in known)
    return apart / sum(row.per_token_ns for row in known)


def token_error(rows: Sequence[Row]) -> float | None:
    """Return the relative error of a whole token; None when an op of it is not modelled."""
    if any(row.error is None for row in rows):
        return None
    whole = sum(row.per_token_ns for row in rows)
    return sum((row.error or 0.0) * row.per_token_ns for row in rows) / whole
