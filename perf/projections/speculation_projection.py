# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What measured step counts would mean on N150 chips, by the estimator's tables (appendix F of the ALSpec
paper).

Assumptions, all of them: Llama 3.1 8B, batch 1, full tensor parallelism; a target pass over up to 32 rows
costs what one row does (the weights and the cache are read once, and 32 rows fill one tile); a self-drafted
level costs a step whose attention reads the first and last S keys only; a looked-up draft costs nothing;
verification, sampling, host time and trace overheads cost nothing. Acceptance is that of whatever model was
measured, not of the 8B.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.llama31_8b.spec_decode.layer_groups import attention_stages, layer_groups
from perf.projections.estimator.attention_latency import AttentionLatency
from perf.projections.estimator.latency import estimate
from perf.projections.estimator.tables import LAYERS, chip_table

TILE_ROWS = 32
CHUNK_SIZE = 256


@dataclass(frozen=True)
class Projection:
    """One target step with drafting, against a plain one. Times in nanoseconds."""

    plain_ns: float
    level_ns: float
    levels: float
    tokens_per_step: float

    @property
    def gain(self) -> float:
        """Tokens a second with drafting over those without."""
        return self.tokens_per_step * self.plain_ns / (self.plain_ns + self.levels * self.level_ns)


def project(drafter: str, levels: float, tokens_per_step: float, context: int, chips: int) -> Projection:
    """drafter: "ngram" or "self". levels: drafted levels a step, on average. Raises ValueError for other
    drafters: a draft model's cost on the device is not in the tables."""
    if drafter not in ("ngram", "self"):
        raise ValueError(f"no device cost is known for the {drafter} drafter; projected are ngram and self")
    plain = estimate(context, None, chips, "tp").token_latency_ns
    level = 0.0
    if drafter == "self":
        table = chip_table(chips)
        guess = AttentionLatency().receiver_ns(context, chips, CHUNK_SIZE)
        level = table.fixed_ns + LAYERS * (table.per_layer_ns + guess)
    return Projection(plain, level, levels, tokens_per_step)


def attention_share(chips: int = 1) -> tuple[int, int]:
    """(attention, rest) of one decoder layer at 1K context in nanoseconds: everything up to and including the
    output projection, the layer's second product, belongs to attention."""
    products = attention = rest = 0
    for op in chip_table(chips).per_layer:
        if products < 2:
            attention += op.ns
        else:
            rest += op.ns
        products += op.name == "Matmul"
    return attention, rest


def fuzzy_drafting_speedup(size: int, length: int, layers: int = LAYERS) -> float:
    """Speed-up of the drafting stage of an 8B draft model, one chip a layer of a group (EasySpec section
    3.2): n * T_seq over T_seq + (n - 1) * T_fuzzy, with the group's attentions at once and no cost for
    joining them."""
    attention, rest = attention_share()
    fixed = chip_table(1).fixed_ns
    sequential = fixed + layers * (attention + rest)
    fuzzy = fixed + attention_stages(layer_groups(layers, size)) * attention + layers * rest
    return length * sequential / (sequential + (length - 1) * fuzzy)
