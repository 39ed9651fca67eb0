# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What speculation gains on boards: appendix F of the ALSpec paper at assumed, measured and executed hits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from models.llama31_8b.latency import (
    CHIP_COUNTS,
    LAYERS,
    MIN_CONTEXT,
    budget_keys,
    split_layers,
    step_ns,
    token_latency,
    token_ns,
)
from perf.lib.data_file import Row

# How the quality study calls the product's guess by its default budget.
BUDGET_WORDS = ("budget", "own decay=0.5 budget=0.98")
LAYERS_HIT_RATES = (0.5, 0.625, 0.75, 0.875, 1.0)
# What the rows of measured hits have in common; the rest is averaged over windows.
GROUP = ("context", "chunk_size", "predictor", "threshold", "nodes", "rule")
HITS_ASSUMPTIONS = (
    "a hit rate is SmolLM2's at the measured context, taken to Llama 3.1 8B and to the projected one: hits fall with "
    "the context, so the gains of one predictor over another say more than the speeds",
    "a guess of both ends takes as long whichever 2S keys it reads; one by a budget reads what SmolLM2's slowest head "
    "of a layer does, 1.5 times as much with each doubling of the context, and its choice is counted",
    "a step of N nodes takes what a step of one does: attention waits for the cache and products for the weights; that "
    "holds up to 32 rows, and 64 nodes are shown under the same assumption",
    "drafting takes no time",
)


def hit_rows(measured: Iterable[Row], contexts: Sequence[int] = (65536, 131072), chips: int = 16) -> list[Row]:
    """Return what measured hit rates are worth at long contexts on `chips` chips, by HITS_ASSUMPTIONS.

    measured: rows of the quality study's `perplexity`, `budgets`, `trees` or `chains`; their windows are averaged.
    contexts: projected. A row has tokens/s/user, and the gains over exact attention in steps of as many nodes:
    `over_tp` with tensor parallelism on as many chips, of which it uses eight at most, `over_misses` with a pair that
    never hits. Raises ValueError for rows without hit rates, or of a guess of ends longer than MIN_CONTEXT.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in measured:
        if "budget" in str(row["predictor"]) and row["predictor"] not in BUDGET_WORDS:
            continue  # other budgets read another number of keys
        if row.get("hit_rate") is None or 2 * row["chunk_size"] > MIN_CONTEXT:
            raise ValueError(f"wanted rows with a hit rate and S up to {MIN_CONTEXT // 2}, got {row}")
        row = {"nodes": 1} | row
        groups.setdefault(tuple(row.get(name) for name in GROUP), []).append(row)
    found = []
    for (key, rows), context in product(groups.items(), contexts):
        share = sum(row["hit_rate"] for row in rows) / len(rows)
        # As measured, all nodes of a chain whose tokens are right, or one.
        counts = ("tokens_per_step", "exact_tokens_per_step")
        tokens, exact = (sum(row.get(name) or row["nodes"] for row in rows) / len(rows) for name in counts)
        keys = budget_keys(context) if str(rows[0]["predictor"]) in BUDGET_WORDS else None
        ns = step_ns(share, context, chips, keys) / tokens
        row = dict(zip(GROUP, key, strict=True)) | {"hit_rate": share, "tokens_per_step": tokens}
        row |= {"projected": context, "chips": chips, "tokens_per_s": 1e9 / ns}
        row["over_tp"] = token_ns(context, None, min(chips, CHIP_COUNTS[-1])) / exact / ns
        found.append(row | {"over_misses": step_ns(0.0, context, chips, keys) / exact / ns})
    return found


def layer_rows(executed: Iterable[Row], hit_rates: Sequence[float] = LAYERS_HIT_RATES) -> list[Row]:
    """Return what two executed layers make of a whole model, beside appendix F with their parts, by hit rate.

    Each further layer adds the cycles from one layer's attention to the next one's, exchange included, which appendix F
    has not. Gains are over exact attention on one row. executed: rows of perf.step pair --layers 2 at one
    context. Raises ValueError unless there are a hit and a miss, of two layers or more.
    """
    found = {row["hit_rate"]: row for row in executed}
    if not {0.0, 1.0} <= set(found) or any(row["layers"] < 2 for row in found.values()):
        layers = sorted({row["layers"] for row in found.values()})
        raise ValueError(f"wanted steps of two layers with hits 1 and 0, got hits {sorted(found)} of {layers} layers")

    def whole(row: Row, part: str, pitch: str) -> int:
        return row[part] + (LAYERS - row["layers"]) * row[pitch]

    hit, context = found[1.0], found[1.0]["context"]
    exact = whole(hit, "exact", "layer_pitch_exact")
    all_hit, none_hit = (whole(row, "cycles", "layer_pitch") for row in (hit, found[0.0]))
    fixed, per_layer = hit["part_fixed"], hit["part_per_layer"]
    rows = []
    for rate in hit_rates:
        hits, misses = split_layers(LAYERS, rate)
        pair = (hits * all_hit + misses * none_hit) / LAYERS
        formula = token_latency(fixed, per_layer, None, hit["part_sender"], hit["part_receiver"], LAYERS, rate)
        row = {"context": context, "layers": LAYERS, "hit_rate": rate, "exact": exact}
        row |= {"pair": round(pair), "gain": exact / pair, "formula": formula}
        rows.append(row | {"formula_gain": token_latency(fixed, per_layer, hit["part_exact"]) / formula})
    return rows
