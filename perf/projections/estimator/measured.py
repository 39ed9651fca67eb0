# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""An owner's sweep (perf.sweep) in place of the ALSpec paper's tables: figure 7 from one's own measurements.

Of each mesh 1xN the decode steps of Llama 3.1 8B, one user, give the op table, and flash decode at every context that
was swept; straight lines join them. Those of two rows give the sender's and the receiver's flash decode.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from perf.projections.estimator.attention_latency import AttentionLatency
from perf.projections.estimator.tables import FLASH_DECODE_OP, ChipTable, Op
from perf.sweep.groups import FIRST, MID, merged, ns_of
from perf.sweep.table import GROUP, LAYER, PASS, ROLE, Block, read

MODEL = "llama-3.1-8b"
# What a sweep must agree in, so that its numbers are of one thing.
ALIKE = ("source", "plan", "precision", "users")
Row = dict[str, str]


class NotMeasured(ValueError):
    """Raised when the sweep does not hold what an estimate needs; the message says what to sweep."""


@dataclass(frozen=True)
class Sweep:
    """Tables by chips of a row, flash decode's ns by (chips of a row, context), and the pair's (sender, receiver) by
    (chips of a row, context, chunk size)."""

    name: str
    tables: dict[int, ChipTable]
    flash_decode: dict[int, list[tuple[int, float]]]
    pairs: dict[tuple[int, int], list[tuple[int, float, float]]] = field(default_factory=dict)

    def table(self, chips: int) -> ChipTable:
        """Return the op table. Errors: NotMeasured."""
        if chips not in self.tables:
            raise NotMeasured(
                f"{self.name} has no decode step on 1x{chips}; meshes: "
                + ", ".join(f"1x{count}" for count in sorted(self.tables))
            )
        return self.tables[chips]


def load(path: Path, filters: Sequence[str] = ()) -> Sweep:
    """Load a sweep's CSV. filters: option=value, where the file holds several plans, precisions or sources.

    Errors: TableError for another file, NotMeasured without a decode step of the model or with several kinds.
    """
    wanted = [text.partition("=") for text in filters]
    if bad := [text for text, (_, sign, _) in zip(filters, wanted, strict=True) if not sign]:
        raise NotMeasured(f"cannot read the filter {bad[0]!r}: option=value, e.g. plan=sharded or source=n150")
    steps = []
    for block in read(path):
        options = block.options() | {"source": block.source}
        of_model = options["family"] == "decode" and options["model"] == MODEL and options["users"] == "1"
        if block.status == PASS and of_model and all(options.get(n) == v for n, _, v in wanted):
            steps.append((options, block))
    if not steps:
        raise NotMeasured(
            f"{path} has no passed decode step of {MODEL} for one user"
            + (f" with {' '.join(filters)}" if filters else "")
            + ": sweep --suite decode"
        )
    kinds = {tuple(options[name] for name in ALIKE) for options, _ in steps}
    attentions = {options["attention"] for options, _ in steps} - {"speculative"}
    if len(kinds) > 1 or len(attentions) > 1:
        found = sorted(" ".join(f"{n}={v}" for n, v in zip(ALIKE, kind, strict=True)) for kind in kinds)
        raise NotMeasured(
            f"{path} holds several kinds of steps ({'; '.join(found)}; attention {', '.join(sorted(attentions))}): "
            "choose one with --measured-only, e.g. plan=" + sorted(kinds)[0][1]
        )
    tables: dict[int, ChipTable] = {}
    flash: dict[int, list[tuple[int, float]]] = {}
    pairs: dict[tuple[int, int], list[tuple[int, float, float]]] = {}
    for options, block in sorted(steps, key=lambda step: int(step[0]["context"])):
        rows, chips = map(int, options["mesh"].split("x"))
        context = int(options["context"])
        if rows == 1:
            table = table_of(block, chips)
            tables.setdefault(chips, table)  # of the shortest context
            flash.setdefault(chips, []).append((context, float(table.flash_decode_ns)))
        else:
            sender, receiver = pair_of(block)
            pairs.setdefault((chips, int(options["chunk_size"])), []).append((context, sender, receiver))
    if not tables:
        raise NotMeasured(f"{path} has no decode step on one row of chips, of which estimates are made")
    source, plan, precision, _ = next(iter(kinds))
    return Sweep(f"{path.name} ({source}, plan {plan}, {precision})", tables, flash, pairs)


def _is_attention(row: Row) -> bool:
    return row[ROLE] == "attention" or FLASH_DECODE_OP in row["OP CODE"]


def table_of(block: Block, chips: int) -> ChipTable:
    """Return a decode step as a table of the paper's form: a layer's programs (mean over decoder-mid, else layer 0),
    and those outside the layers. Errors: NotMeasured for a step without attention in its layers."""
    rows = merged(block)
    group = MID if any(row[GROUP] == MID for row in rows) else FIRST
    layers: dict[str, list[Row]] = {}
    for row in rows:
        if row[LAYER] and row[GROUP] == group:
            layers.setdefault(row[LAYER], []).append(row)
    same = list(layers.values())
    if not same or not any(_is_attention(row) for row in same[0]) or len({len(rows) for rows in same}) > 1:
        raise NotMeasured(f"{block.name} has no layers of the same programs with an attention among them")
    per_layer = tuple(
        Op(
            FLASH_DECODE_OP if _is_attention(column[0]) else column[0]["OP CODE"],
            round(mean(map(ns_of, column))),
        )
        for column in zip(*same, strict=True)
    )
    fixed = tuple(Op(row["OP CODE"], round(ns_of(row))) for row in rows if not row[LAYER])
    return ChipTable(chips, per_layer, fixed)


def pair_of(block: Block) -> tuple[float, float]:
    """Return the mean (sender's, receiver's) time of attention over the layers (of `table_of`) of a step of two rows,
    in ns."""
    layers: dict[str, list[float]] = {}
    group = MID if any(row[GROUP] == MID for row in block.rows) else FIRST
    for row in block.rows:
        if row[LAYER] and row[GROUP] == group and _is_attention(row):
            layers.setdefault(row[LAYER], []).append(ns_of(row))
    if not layers or any(len(times) < 2 for times in layers.values()):
        raise NotMeasured(f"{block.name} has no attention of two rows")
    return mean(map(max, layers.values())), mean(map(min, layers.values()))


@dataclass(frozen=True)
class MeasuredAttention(AttentionLatency):
    """Flash decode between measured contexts; sender and receiver measured where a pair was swept with this chunk
    size, else with the assumptions of AttentionLatency."""

    sweep: Sweep | None = None

    def _line(self, points: Sequence[tuple[int, float]], context: int, what: str) -> float:
        contexts = [at for at, _ in points]
        if not contexts[0] <= context <= contexts[-1]:
            raise NotMeasured(f"context {context} is outside what was swept of {what}: {contexts[0]} to {contexts[-1]}")
        right = max(1, bisect.bisect_left(contexts, context))
        if len(points) == 1:
            return points[0][1]
        (x0, y0), (x1, y1) = points[right - 1], points[right]
        return y0 + (y1 - y0) * (context - x0) / (x1 - x0)

    @property
    def known(self) -> Sweep:
        if self.sweep is None:
            raise NotMeasured("no sweep was given")
        return self.sweep

    def flash_decode_ns(self, context: int, tp_chips: int) -> float:
        self.known.table(tp_chips)
        return self._line(self.known.flash_decode[tp_chips], context, f"1x{tp_chips}")

    def _pair(self, context: int, tp_chips: int, chunk_size: int, which: int) -> float | None:
        points = self.known.pairs.get((tp_chips, chunk_size))
        if not points:
            return None
        return self._line([(p[0], p[1 + which]) for p in points], context, f"2x{tp_chips}, chunks of {chunk_size}")

    def sender_ns(self, context: int, tp_chips: int) -> float:
        chunks = sorted(size for chips, size in self.known.pairs if chips == tp_chips)
        for size in chunks:
            if (found := self._pair(context, tp_chips, size, 0)) is not None:
                return found
        return self.flash_decode_ns(context, tp_chips) + self.verify_ns

    def receiver_ns(self, context: int, tp_chips: int, chunk_size: int) -> float:
        sender = self.sender_ns(context, tp_chips)
        found = self._pair(context, tp_chips, chunk_size, 1)
        if found is not None:
            return min(sender, found)
        first = self.known.flash_decode[tp_chips][0][0]
        guess = self.flash_decode_ns(max(first, min(2 * chunk_size, context)), tp_chips) + self.hop_ns
        return min(sender, guess)

    def assumptions(self) -> list[str]:
        known = self.known
        meshes = "; ".join(
            f"1x{chips} at {', '.join(str(at) for at, _ in points)}"
            for chips, points in sorted(known.flash_decode.items())
        )
        lines = [
            f"all times are of {known.name}, kernels alone; between contexts straight lines",
            f"flash decode and op tables: {meshes}",
        ]
        if known.pairs:
            sizes = ", ".join(f"2x{chips} with chunks of {size}" for chips, size in sorted(known.pairs))
            lines.append(f"sender and receiver: measured on {sizes}")
        lines.append(
            f"elsewhere assumed: sender {self.verify_ns / 1000:.1f} us over flash decode, receiver flash decode of two "
            f"chunks (of the shortest context swept, if they are fewer) and {self.hop_ns / 1000:.1f} us for a hop"
        )
        return lines

    def to_dict(self) -> dict[str, float]:
        return {"verify_ns": self.verify_ns, "hop_ns": self.hop_ns}
