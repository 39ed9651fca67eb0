# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode latency of Llama 3.1 8B on N150 chips: tensor parallelism against speculative + tensor parallelism.

The formulas are appendix F of the ALSpec paper over its tables 4 to 7; `perf.projections.estimator.attention_latency`
supplies flash decode beyond the one context the paper prints. `python -m perf.projections.estimator --help` for the
command.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from perf.projections.estimator.attention_latency import AttentionLatency
from perf.projections.estimator.tables import CHIP_COUNTS, LAYERS, ChipTable, chip_table

MIN_CONTEXT = 1024
MAX_CONTEXT = 131072
CHUNK_SIZES = (128, 256, 512)
MODES = ("tp", "sp+tp")
# The best case the paper states (section 5.2).
BEST_CONTEXT, BEST_HIT_RATE, BEST_SPEEDUP = 98304, 0.875, 1.65


def context_label(context: int) -> str:
    """Return 98304 as 96K; a number that is no multiple of 1024 as it is."""
    return f"{context // 1024}K" if context % 1024 == 0 else str(context)


def split_layers(layers: int, hit_rate: float) -> tuple[int, int]:
    """Return (hits, misses): floor(layers * r) and ceil(layers * (1 - r)), appendix F; they add up to `layers`.

    A product within 1e-9 of a whole number counts as that number, so that 30 layers at 0.7 give 21 hits.
    """
    if not isinstance(layers, int) or layers < 1:
        raise ValueError(f"layers must be a whole number of at least 1, got {layers!r}")
    check_hit_rate(hit_rate)
    hits = math.floor(layers * hit_rate + 1e-9)
    return hits, layers - hits


def check_hit_rate(hit_rate: object) -> None:
    """Raise ValueError unless 0 <= hit_rate <= 1."""
    if not isinstance(hit_rate, (int, float)) or not 0 <= hit_rate <= 1:
        raise ValueError(f"hit_rate must be 0 to 1, got {hit_rate!r}")


def token_latency(
    fixed: float,
    per_layer: float,
    fd: float | None = None,
    sfd_s: float | None = None,
    sfd_r: float | None = None,
    layers: int = LAYERS,
    hit_rate: float | None = None,
) -> float:
    """Return the latency of one decoded token by appendix F, in the unit of its arguments (ns, cycles, ...).

    fixed: outside the layers; per_layer: a layer without attention; fd: flash decode; sfd_s, sfd_r: speculative flash
    decode at the sender and at the receiver. Without a hit rate it is full tensor parallelism, which needs fd; with one
    it is SP+TP, which needs sfd_s and sfd_r. A hit costs the receiver's wait and then the longer of the sender's rest
    and the layer; a miss costs the sender and the layer one after the other.

    ValueError for a missing or negative time, a hit rate outside 0..1, or a receiver slower than its sender.
    """
    _time("fixed", fixed)
    _time("per_layer", per_layer)
    if hit_rate is None:
        exact = _time("fd", fd)
        split_layers(layers, 0.0)
        return fixed + layers * (per_layer + exact)
    sender, receiver = _time("sfd_s", sfd_s), _time("sfd_r", sfd_r)
    hits, misses = split_layers(layers, hit_rate)
    if receiver > sender:
        raise ValueError(f"the guess cannot arrive after the exact result: sfd_r {sfd_r} > sfd_s {sfd_s}")
    return fixed + hits * (receiver + max(sender - receiver, per_layer)) + misses * (per_layer + sender)


def _time(name: str, value: float | None) -> float:
    if value is None or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a time of at least 0, got {value!r}")
    return value


@dataclass(frozen=True)
class Estimate:
    """One point of figure 7. Times in nanoseconds of device kernels; attention times are those of one layer.

    tp_chips is the size of a tensor-parallel group, whose table gives per_layer_ns and fixed_ns: all chips
    with full TP, half of them with SP+TP. hit_rate, hits, misses, sender_ns and receiver_ns are None with
    full TP.
    """

    mode: str
    context: int
    chips: int
    tp_chips: int
    chunk_size: int
    layers: int
    hit_rate: float | None
    hits: int | None
    misses: int | None
    fixed_ns: float
    per_layer_ns: float
    flash_decode_ns: float
    sender_ns: float | None
    receiver_ns: float | None
    token_latency_ns: float

    @property
    def tokens_per_s_per_user(self) -> float:
        """1 / token latency."""
        return 1e9 / self.token_latency_ns

    @property
    def attention_overhead_ns(self) -> float:
        """What attention adds to a token: its latency less fixed_ns and every layer's per_layer_ns."""
        return self.token_latency_ns - self.fixed_ns - self.layers * self.per_layer_ns

    def to_dict(self) -> dict[str, object]:
        """Return fields and derived figures, for machines."""
        return {
            **asdict(self),
            "tokens_per_s_per_user": self.tokens_per_s_per_user,
            "attention_overhead_ns": self.attention_overhead_ns,
        }


def estimate(
    context: int,
    hit_rate: float | None,
    chips: int,
    mode: str,
    chunk_size: int = 256,
    attention: AttentionLatency | None = None,
    tables: Callable[[int], ChipTable] = chip_table,
) -> Estimate:
    """Estimate one decoded token of Llama 3.1 8B, batch 1.

    context: cached positions, MIN_CONTEXT..MAX_CONTEXT (1K = 1024). hit_rate: 0..1, needed by "sp+tp" and
    unused by "tp". chips: 1, 2, 4 or 8 N150; mode "tp" (all chips one group) or "sp+tp" (two groups of chips
    / 2, so 2 chips at least). chunk_size: S, 128, 256 or 512. attention: other parameters of the attention
    model. tables: an op table by chips, by default the paper's. ValueError names any of these that is out of range.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if chips not in CHIP_COUNTS:
        raise ValueError(f"chips must be one of {', '.join(map(str, CHIP_COUNTS))}, got {chips!r}")
    if not isinstance(context, int) or not MIN_CONTEXT <= context <= MAX_CONTEXT:
        raise ValueError(f"context must be a whole number in {MIN_CONTEXT}..{MAX_CONTEXT}, got {context!r}")
    if chunk_size not in CHUNK_SIZES:
        raise ValueError(f"chunk_size must be one of {', '.join(map(str, CHUNK_SIZES))}, got {chunk_size!r}")
    attention = attention or AttentionLatency()
    speculative = mode == "sp+tp"
    if speculative and chips == 1:
        raise ValueError("sp+tp needs a sender and a receiver group: chips must be 2, 4 or 8, got 1")
    if speculative or hit_rate is not None:
        check_hit_rate(hit_rate)
    tp_chips = chips // 2 if speculative else chips
    table = tables(tp_chips)
    fd = attention.flash_decode_ns(context, tp_chips)
    sender = attention.sender_ns(context, tp_chips) if speculative else None
    receiver = attention.receiver_ns(context, tp_chips, chunk_size) if speculative else None
    rate = hit_rate if speculative else None
    hits, misses = (None, None) if rate is None else split_layers(LAYERS, rate)
    return Estimate(
        mode=mode,
        context=context,
        chips=chips,
        tp_chips=tp_chips,
        chunk_size=chunk_size,
        layers=LAYERS,
        hit_rate=rate,
        hits=hits,
        misses=misses,
        fixed_ns=table.fixed_ns,
        per_layer_ns=table.per_layer_ns,
        flash_decode_ns=fd,
        sender_ns=sender,
        receiver_ns=receiver,
        token_latency_ns=token_latency(table.fixed_ns, table.per_layer_ns, fd, sender, receiver, LAYERS, rate),
    )
