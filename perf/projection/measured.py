# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""An owner's sweep (perf.sweep) in place of the ALSpec paper's tables: figure 7 from one's own measurements.

The decode steps of Llama 3.1 8B for one user on a mesh 1xN give the costs of a row, and flash decode at every swept
context, between which lines are straight. Steps of two rows give the sender's and the receiver's flash decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import numpy as np

from models.llama31_8b.latency import Costs, Times
from perf.projection.published import FIXED, FLASH_DECODE_OP, LAYER, TableOp, costs_of
from perf.sweep.table import FIRST, GROUP, MID, PASS, ROLE, Block, Row, merged, ns_of, read
from perf.sweep.table import LAYER as LAYER_OF

MODEL = "llama-3.1-8b"
# What a sweep must agree in, so that its numbers are of one thing.
ALIKE = ("source", "plan", "precision", "users")


class NotMeasured(ValueError):
    """Raised when the sweep does not hold what an estimate needs; the message says what to sweep."""


@dataclass(frozen=True)
class MeasuredTimes(Times):
    """Times of a sweep, and the (context, sender, receiver) of pairs by (chips of a row, chunk size). What no pair
    measured is assumed as in Times, with flash decode of two chunks of `chunk_size` for a guess."""

    name: str = ""
    chunk_size: int = 256
    row_costs: dict[int, Costs] = field(default_factory=dict)
    attention: dict[int, dict[int, float]] = field(default_factory=dict)
    pairs: dict[tuple[int, int], list[tuple[int, float, float]]] = field(default_factory=dict)

    def costs(self, tp_chips: int) -> Costs:
        """Return the costs at the shortest swept context. Raises NotMeasured."""
        if tp_chips not in self.row_costs:
            known = ", ".join(f"1x{count}" for count in sorted(self.row_costs))
            raise NotMeasured(f"{self.name} has no decode step on 1x{tp_chips}; meshes: {known}")
        return self.row_costs[tp_chips]

    def flash_decode_ns(self, context: int, tp_chips: int) -> float:
        """Return flash decode between swept contexts. Raises NotMeasured."""
        self.costs(tp_chips)
        return _between(list(self.attention[tp_chips].items()), context, f"1x{tp_chips}")

    def sender_ns(self, context: int, tp_chips: int) -> float:
        """Return the sender's time, measured where a pair of such rows was swept with any chunk size."""
        for (chips, size), points in sorted(self.pairs.items()):
            if chips == tp_chips:
                return _between([p[:2] for p in points], context, f"2x{chips}, chunks of {size}")
        return self.flash_decode_ns(context, tp_chips) + self.verify_ns

    def receiver_ns(self, context: int, tp_chips: int, keys: int | None = None) -> float:
        """Return the receiver's time, measured where a pair of such rows was swept with this chunk size."""
        if keys is not None:
            return super().receiver_ns(context, tp_chips, keys)
        if points := self.pairs.get((tp_chips, self.chunk_size)):
            guess = _between([(p[0], p[2]) for p in points], context, f"2x{tp_chips}, chunks of {self.chunk_size}")
        else:
            shortest = min(self.attention[tp_chips])
            guess = self.flash_decode_ns(max(shortest, min(2 * self.chunk_size, context)), tp_chips) + self.hop_ns
        return min(self.sender_ns(context, tp_chips), guess)

    def shared_contexts(self) -> tuple[int, int]:
        """Return the shortest and the longest context that every row was swept at."""
        return max(map(min, self.attention.values())), min(map(max, self.attention.values()))

    def assumptions(self) -> list[str]:
        """Return what figures of this sweep are made of, one sentence each."""
        meshes = (f"1x{n} at {', '.join(map(str, points))}" for n, points in sorted(self.attention.items()))
        pairs = ", ".join(f"2x{chips} with chunks of {size}" for chips, size in sorted(self.pairs))
        return [
            f"all times are of {self.name}, kernels alone; between contexts lines are straight",
            f"costs of a row and flash decode: {'; '.join(meshes)}",
            f"sender and receiver: measured on {pairs or 'no pair'}; elsewhere a sender takes flash decode and "
            f"{self.verify_ns / 1000:.1f} us, a receiver flash decode of two chunks and {self.hop_ns / 1000:.1f} us",
        ]


def _between(points: Sequence[tuple[int, float]], context: int, what: str) -> float:
    contexts, ns = zip(*points, strict=True)
    if not contexts[0] <= context <= contexts[-1]:
        raise NotMeasured(f"context {context} is outside what was swept of {what}: {contexts[0]} to {contexts[-1]}")
    return float(np.interp(context, contexts, ns))


def load(path: Path, filters: Sequence[str] = (), chunk_size: int = 256) -> MeasuredTimes:
    """Load a sweep's CSV.

    Args:
        path: of the CSV.
        filters: option=value, where the file holds several plans, precisions or sources.
        chunk_size: of the pairs that are estimated.

    Raises:
        NotMeasured: without a decode step of the model, or with several kinds of them.
        TableError: for another file.
    """
    if bad := [text for text in filters if "=" not in text]:
        raise NotMeasured(f"cannot read the filter {bad[0]!r}: option=value, e.g. plan=sharded or source=n150")
    wanted = dict(text.split("=", 1) for text in filters) | {"family": "decode", "model": MODEL, "users": "1"}
    steps = [(block.options() | {"source": block.source}, block) for block in read(path) if block.status == PASS]
    steps = [(options, block) for options, block in steps if options.items() >= wanted.items()]
    if not steps:
        asked = f" with {' '.join(filters)}" if filters else ""
        raise NotMeasured(f"{path} has no passed decode step of {MODEL} for one user{asked}: sweep --suite decode")
    kinds = sorted({tuple(options[name] for name in ALIKE) for options, _ in steps})
    attentions = sorted({options["attention"] for options, _ in steps} - {"speculative"})
    if len(kinds) > 1 or len(attentions) > 1:
        found = "; ".join(" ".join(map("=".join, zip(ALIKE, kind, strict=True))) for kind in kinds)
        raise NotMeasured(
            f"{path} holds several kinds of steps ({found}; attention {', '.join(attentions)}): choose one with "
            f"--measured-only, e.g. plan={kinds[0][1]}"
        )
    source, plan, precision, _ = kinds[0]
    times = MeasuredTimes(name=f"{path.name} ({source}, plan {plan}, {precision})", chunk_size=chunk_size)
    for options, block in sorted(steps, key=lambda step: int(step[0]["context"])):
        rows, chips = map(int, options["mesh"].split("x"))
        context = int(options["context"])
        if rows == 1:
            costs = costs_in(block)
            times.row_costs.setdefault(chips, costs)
            times.attention.setdefault(chips, {})[context] = costs.flash_decode_ns
        else:
            times.pairs.setdefault((chips, int(options["chunk_size"])), []).append((context, *pair_in(block)))
    if not times.row_costs:
        raise NotMeasured(f"{path} has no decode step on one row of chips, of which estimates are made")
    return times


def _is_attention(row: Row) -> bool:
    return row[ROLE] == "attention" or FLASH_DECODE_OP in row["OP CODE"]


def _layers(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each layer but the first, or of that one alone."""
    group = MID if any(row[GROUP] == MID for row in rows) else FIRST
    layers: dict[str, list[Row]] = {}
    for row in rows:
        if row[LAYER_OF] and row[GROUP] == group:
            layers.setdefault(row[LAYER_OF], []).append(row)
    return list(layers.values())


def costs_in(block: Block) -> Costs:
    """Return a decode step's costs: the programs of a layer (means over layers), and those outside the layers.

    Raises:
        NotMeasured: for a step without attention in its layers.
    """
    rows = merged(block)
    layers = _layers(rows)
    if not layers or not any(map(_is_attention, layers[0])) or len(set(map(len, layers))) > 1:
        raise NotMeasured(f"{block.name} has no layers of the same programs with an attention among them")
    ops = [
        TableOp(LAYER, FLASH_DECODE_OP if _is_attention(same[0]) else same[0]["OP CODE"], round(mean(map(ns_of, same))))
        for same in zip(*layers, strict=True)
    ]
    ops += [TableOp(FIXED, row["OP CODE"], round(ns_of(row))) for row in rows if not row[LAYER_OF]]
    return costs_of(ops)


def pair_in(block: Block) -> tuple[float, float]:
    """Return the mean (sender's, receiver's) nanoseconds of attention over the layers of a step of two rows."""
    layers = [[ns_of(row) for row in layer if _is_attention(row)] for layer in _layers(block.rows)]
    if not layers or any(len(ns) < 2 for ns in layers):
        raise NotMeasured(f"{block.name} has no attention of two rows")
    return mean(map(max, layers)), mean(map(min, layers))
