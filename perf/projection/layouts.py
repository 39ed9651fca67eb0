# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The layouts of 2 to 16 chips beside each other, from parts that simulated chips executed, a cycle a nanosecond."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from models.llama31_8b.config import preset
from models.llama31_8b.latency import (
    CHIP_COUNTS,
    HITS,
    KV_HEADS,
    Costs,
    Times,
    budget_keys,
    step_ns,
    token_ns,
)
from models.llama31_8b.tt.mesh import TILE
from perf.lib.data_file import FOLDER, Row, read, read_rows
from perf.step.figures import over_formula
from perf.step.layer import NORM, collectives_of, replaced_by_all_reduces
from perf.step.shapes import EMBEDDING, HEAD, LAYER, head_pieces
from perf.sweep.configurations import Configuration
from perf.sweep.paper import CSV, cycles_of
from perf.sweep.table import read as read_sweep

CONTEXTS = (1024, 4096, 16384, 65536, 131072)
CHIPS = (2, 4, 8, 16)
HIT_RATES = (1.0, 0.95, 0.9, 0.75)
HEADS = 32
ASSUMPTIONS = (
    "TP: a chip's part of a layer, attention, two all-reduces a layer with the products in them, embedding, its gather "
    "and the head's pieces",
    "a cache split over two rows: each reads half of the tokens; merging takes all in what an all-reduce of two chips "
    "takes, which sends 8 KB, as much as 16 heads' partial attention; not implemented, not executed",
    "ALSpec: appendix F, with what the executed pairs with a guess by a budget took beyond exact attention of as many "
    "keys and of all, and beyond a layer's other parts; keys extrapolated beyond 8K tokens, their choice counted, hits "
    "given",
    "TP ends at eight chips, the key/value heads: on sixteen it leaves eight idle",
)


def load() -> tuple[Times, set[tuple[int, int]]]:
    """Return the times of perf/data, and the (chips of a row, context) all of whose parts were executed."""
    ops = [op for op in read_rows("steps/decode_layer_ops.csv") if op["sharding"] == "sharded"]
    pairs, attention = executed_pairs(), _attention(ops, cycles_of(read_sweep(CSV)))
    collectives = {n: collectives_of(preset("llama-3.1-8b"), n) for n in CHIP_COUNTS[1:]}
    costs = {n: _costs(n, ops, collectives.get(n, {"gather": 0, "all_reduces": 0})) for n in CHIP_COUNTS}
    times = Times(
        verify_ns=round(mean(row["part_sender"] - row["part_exact"] for row in pairs)),
        pair_ns=round(mean(over_formula(row) for row in pairs)),
        merge_ns=round(collectives[2]["all_reduce"]),
        row_costs=costs,
        attention=attention,
    )
    times = replace(times, guess_ns=round(mean(row["part_receiver"] - exact_of_keys(row, times) for row in pairs)))
    return times, {(n, at) for n in CHIP_COUNTS for at in attention[n]}


def _attention(ops: Sequence[Row], sweep: Mapping[str, float]) -> dict[int, dict[int, float]]:
    """Return executed exact attention by chips of a row and context: of the sweep, else of layers."""
    found: dict[int, dict[int, float]] = defaultdict(dict)
    for chips in CHIP_COUNTS:
        for context in CONTEXTS:
            shape = {"heads": HEADS // chips, "kv_heads": KV_HEADS // chips, "chunk_size": 256, "context": context}
            name = Configuration.make("flash_decode", variant="exact", **shape).name
            if name in sweep:
                found[chips][context] = sweep[name]
    for op in (op for op in ops if op["op"] == "attention" and op["stage"] == LAYER):
        found[op["tp"]].setdefault(op["context"], op["cycles"])
    return found


def _took(ops: Sequence[Row], stage: str, tp: int) -> list[tuple[str, float]]:
    """Return name and cycles of a stage's programs."""
    own = [op for op in ops if op["stage"] == stage and op["tp"] == tp]
    first = own[0]  # the file's rows of one run follow each other
    run = [op for op in own if (op["weights"], op["context"]) == (first["weights"], first["context"])]
    return [(op["op"], op["cycles"]) for op in run]


def executed_pairs() -> list[Row]:
    """Return the executed steps of two layers of pairs with a guess by a budget, all of whose layers hit or none."""
    rows = [row for path in sorted((FOLDER / "steps").glob("pair_8b_*.json")) for row in read(path)[1]]
    return [row for row in rows if row["predictor"] == "budget" and row["hit_rate"] in (0, 1)]


def exact_of_keys(row: Row, times: Times) -> float:
    """Return the cycles of exact attention over the keys that such a step's guess reads for each head."""
    keys = TILE * (row["chosen"] + 1) + int(row["chunk_size"])
    return times.flash_decode_ns(keys, KV_HEADS // row["kv_heads"])


def _costs(chips: int, ops: Sequence[Row], collectives: Mapping[str, float]) -> Costs:
    """Return the costs of a row."""
    programs = _took(ops, LAYER, chips)
    gone = replaced_by_all_reduces([name for name, _ in programs]) if chips > 1 else [False] * len(programs)
    layer = sum(took for (name, took), there in zip(programs, gone, strict=True) if name != "attention" and not there)
    head = _took(ops, HEAD, 1)
    norm = sum(took for name, took in head if name == NORM)
    fixed = sum(took for _, took in _took(ops, EMBEDDING, chips)) + norm + collectives["gather"]
    fixed += (sum(took for _, took in head) - norm) * head_pieces(preset("llama-3.1-8b")) / chips
    return Costs(float(fixed), layer + collectives["all_reduces"])


def layout_rows(contexts: Sequence[int] = CONTEXTS, chips: Sequence[int] = CHIPS) -> list[Row]:
    """Return a row per number of chips and context: tokens/s/user with tensor parallelism over all, or eight, and its
    gains: `split` of a cache over two rows, `at_...` of attention-level speculation at HIT_RATES. tp_parts: whether all
    of its parts were executed; all else is projected. fastest: with the hits of a guess by the default budget."""
    times, executed = load()
    rows = []
    for count in chips:
        for context in contexts:
            row, at = min(count, CHIP_COUNTS[-1]), (context, count, budget_keys(context), times)
            tp = token_ns(context, None, row, times)
            split = token_ns(context, None, count, times, split_cache=True)
            speeds = {"TP": tp, "split cache": split, "ALSpec": step_ns(HITS["budget"], *at)}
            found: Row = {"chips": count, "context": context, "tp_tokens_per_s": 1e9 / tp}
            found |= {"tp_parts": "executed" if (row, context) in executed else "projected", "split": tp / split}
            found |= {f"at_{100 * rate:g}": tp / step_ns(rate, *at) for rate in HIT_RATES}
            rows.append(found | {"fastest": min(speeds, key=lambda name: speeds[name])})
    return rows


def save_plot(rows: Sequence[Row], path: Path) -> None:
    """Draw gains over tensor parallelism by cached tokens into `path` (.png, .svg or .pdf), a panel per number of
    chips. OSError when the file cannot be written."""
    from matplotlib.figure import Figure

    counts = sorted({row["chips"] for row in rows})
    lines = {"split": ("cache split over two rows", "tab:orange", "-")}
    lines |= {"at_100": ("ALSpec, all guesses pass", "tab:blue", "-"), "at_95": ("ALSpec, 95 %", "tab:blue", "--")}
    lines |= {"at_75": ("ALSpec, 75 %", "tab:blue", ":")}
    figure = Figure(figsize=(2.6 * len(counts) + 0.6, 3.6), dpi=110, layout="constrained")
    panels = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
    for panel, count in zip(panels, counts, strict=True):
        own = [row for row in rows if row["chips"] == count]
        places = range(len(own))
        panel.axhline(1, color="black", linewidth=1.5, label="TP")
        for name, (label, colour, style) in lines.items():
            panel.plot(places, [row[name] for row in own], style, marker="o", markersize=3, color=colour, label=label)
        panel.set_title(f"{count} chips" + (", TP on 8" if count > CHIP_COUNTS[-1] else ""), fontsize=10)
        panel.set_xticks(places, labels=[f"{row['context'] // 1024}K" for row in own])
        panel.set_xlabel("cached tokens")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("tokens/s over TP")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Software": None} if path.suffix == ".png" else None)
