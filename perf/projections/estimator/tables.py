# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The published measurements under perf/data, read once. Every CSV names its source in its first lines."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "data"
FLASH_DECODE_OP = "ScaledDotProductAttentionDecode"
LAYERS = 32  # Llama 3.1 8B
_OP_TABLES = {
    1: "table4_n150x1.csv",
    2: "table5_n150x2.csv",
    4: "table6_n150x4.csv",
    8: "table7_n150x8.csv",
}
CHIP_COUNTS = tuple(_OP_TABLES)


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of perf/data/`name`, its # comments left out. A row of another width raises ValueError."""
    with open(DATA / name, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():
            raise ValueError(f"{name}: row {number} has not the header's number of columns: {row}")
    return rows


@dataclass(frozen=True)
class Op:
    """One device operation of appendix F's tables and its kernel time in nanoseconds."""

    name: str
    ns: int


@dataclass(frozen=True)
class ChipTable:
    """Tables 4 to 7 of the ALSpec paper: Llama 3.1 8B decode, tensor parallel on `chips` N150, context 1K.

    `per_layer` holds a decoder layer's ops in order, flash decode among them; `fixed` embedding and LM head.
    """

    chips: int
    per_layer: tuple[Op, ...]
    fixed: tuple[Op, ...]

    @property
    def flash_decode_ns(self) -> int:
        """FD(1K): the measured flash decode of one layer."""
        return sum(op.ns for op in self.per_layer if op.name == FLASH_DECODE_OP)

    @property
    def per_layer_ns(self) -> int:
        """A decoder layer without its flash decode."""
        return sum(op.ns for op in self.per_layer if op.name != FLASH_DECODE_OP)

    @property
    def fixed_ns(self) -> int:
        """What a token costs outside the decoder layers."""
        return sum(op.ns for op in self.fixed)


@cache
def chip_table(chips: int) -> ChipTable:
    """Return the op table of `chips` N150 with full tensor parallelism; ValueError when the paper has none."""
    if chips not in _OP_TABLES:
        raise ValueError(f"no table for {chips} chips: the paper measured {', '.join(map(str, CHIP_COUNTS))}")
    sections: dict[str, list[Op]] = {"per_layer": [], "fixed": []}
    for row in read_rows(_OP_TABLES[chips]):
        sections[row["section"]].append(Op(row["op"], int(row["ns"])))
    return ChipTable(chips, tuple(sections["per_layer"]), tuple(sections["fixed"]))


@dataclass(frozen=True)
class LongContextRun:
    """Published decode speeds (tokens/s/user) of one model and board, at a short and at 64K context."""

    model: str
    board: str
    chips: int
    layers: int
    short_tokens_per_s: float
    long_tokens_per_s: float


@cache
def long_context_runs() -> tuple[LongContextRun, ...]:
    """Return tt-metal's published 64K-context runs beside the same boards' short-context runs."""
    return tuple(
        LongContextRun(
            row["model"],
            row["board"],
            int(row["chips"]),
            int(row["layers"]),
            float(row["short_tokens_per_s"]),
            float(row["long_tokens_per_s"]),
        )
        for row in read_rows("published_64k.csv")
    )


def measured_hit_rate(task: str, threshold: float, model: str = "llama-3.1-8b") -> float:
    """Return the speculation hit rate (0 to 1) that tables 1 and 2 give for a task and acceptance threshold lambda.

    `model` is llama-3.1-8b or llama-3.1-70b. ValueError lists what exists when the tables have no such entry.
    """
    rows = [row for row in read_rows("hit_rates.csv") if row["model"] == model]
    if not rows:
        raise ValueError(f"no hit rates for model {model!r}: the paper has llama-3.1-8b and llama-3.1-70b")
    of_task = {float(row["threshold"]): float(row["hit_rate"]) for row in rows if row["task"] == task.upper()}
    if not of_task:
        raise ValueError(f"no hit rates for task {task!r}: {', '.join(sorted({row['task'] for row in rows}))}")
    if threshold not in of_task:
        raise ValueError(f"no hit rate for threshold {threshold}: {', '.join(map(str, sorted(of_task)))}")
    return of_task[threshold]
