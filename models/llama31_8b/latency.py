# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode latency of Llama 3.1 8B on N150 chips: appendix F of the ALSpec paper over parts executed on simulated chips.

A token takes fixed + hits * (receiver + max(sender - receiver, layer)) + misses * (layer + sender), or with tensor
parallelism alone fixed + 32 * (layer + FD). Two groups that speculate have the times of half of the chips. These are
times of device kernels; the host's are left out. FD(K) is flash decode of K cached tokens; a sender takes verify_ns
more. All cores make a guess: with k keys, at least MIN_CONTEXT, a receiver takes FD(k) and guess_ns, and by a budget
the step also the choice of tiles. Tensor parallelism with its cache split over two rows takes FD(K / 2) and merge_ns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MIN_CONTEXT, MAX_CONTEXT = 1024, 131072
LAYERS = 32
MOST_CHIPS = 16  # of the meshes that a report estimates
KV_HEADS = 8
# Keys that a guess by a budget of 0.98 reads with 8K cached tokens, in the head of a layer that reads most, and their
# growth with each doubling: SmolLM2's at 1K to 8K tokens (perf/data/quality/budgets.csv); beyond, an extrapolation.
BUDGET_KEYS, BUDGET_KEYS_AT, BUDGET_KEYS_GROWTH = 1999, 8192, 1.5
# Hits at threshold 0.10 of a guess by that budget, at 1K to 8K tokens, and of one of both ends at 8K: SmolLM2's
# (perf/data/quality/budgets.csv, perplexity.csv).
HITS = {"budget": 0.95, "ends": 0.19}
# Cycles, at 1 GHz, of choosing one head's tiles at 64K tokens, executed (perf/data/ops/tile_selection.json), and who
# does it: both data movement cores of each core.
SELECTION_NS, SELECTION_AT, SELECTORS = 77119, 65536, 126
# A prompt of PREFILL_FROM tokens or more, by chips of a row: nanoseconds by token, and by token and token before it;
# least squares over a projected floor (perf/data/projections/prefill.json).
PREFILL_FROM = 2048
PREFILL_NS = {1: (127100.0, 7.636), 2: (103552.0, 3.8201), 4: (77203.3, 1.9107), 8: (52131.5, 0.95775)}


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of a token on one row of chips: outside the layers, and a layer without flash decode."""

    fixed_ns: float
    per_layer_ns: float


CHIP_COUNTS = (1, 2, 4, 8)  # of a tensor-parallel row


@dataclass(frozen=True)
class Times:
    """Times of a row of chips, a cycle of simulated ones a nanosecond.

    row_costs: by chips of a row, at the shortest context. attention: of a layer, by chips of a row and context; lines
    are straight between contexts, and beyond the last ones. verify_ns: what a sender takes beside flash decode.
    guess_ns: what a receiver waits beside flash decode of the guess's keys. pair_ns: what exchange and skipping add to
    a layer of a pair, which appendix F leaves out. merge_ns: of two rows' partial attention, in a
    layer whose cache is split.
    """

    verify_ns: float = 3000.0  # assumed: two L2 norms over 32 x 128 values, "almost no" time in the paper
    guess_ns: float = 5270.0  # a hop of 8 KiB, as tt-metal measured the exchange of two chips
    pair_ns: float = 0.0
    merge_ns: float = 0.0
    row_costs: Mapping[int, Costs] = field(default_factory=dict)
    attention: Mapping[int, Mapping[int, float]] = field(default_factory=dict)

    def flash_decode_ns(self, context: int, tp_chips: int) -> float:
        """Return FD(K) of a layer whose KV heads `tp_chips` chips share."""
        points = sorted(self.attention[tp_chips].items())
        end = next((i for i, (at, _) in enumerate(points) if i > 0 and context <= at), len(points) - 1)
        (start, first), (stop, last) = points[end - 1 : end + 1]
        return first + (context - start) * (last - first) / (stop - start)

    def sender_ns(self, context: int, tp_chips: int) -> float:
        """Return SFD_S(K): flash decode and the verification."""
        return self.flash_decode_ns(context, tp_chips) + self.verify_ns

    def receiver_ns(self, context: int, tp_chips: int, keys: int | None = None) -> float:
        """Return SFD_R(K), until the guess has arrived; at most the sender's time. keys: of a guess by a budget, None
        for one of both ends."""
        guess = self.flash_decode_ns(max(MIN_CONTEXT, keys or 0), tp_chips) + self.guess_ns
        return min(guess, self.sender_ns(context, tp_chips))


# Of Llama 3.1 8B, as perf/projection/layouts.py has them from perf/data; it says what was executed and what assumed.
EXECUTED = Times(
    verify_ns=5119,
    guess_ns=5636,
    pair_ns=12240,
    merge_ns=6271,
    row_costs={
        1: Costs(2319652, 712636),
        2: Costs(1179762, 357843),
        4: Costs(613465.5, 187067),
        8: Costs(332419.875, 119241),
    },
    attention={
        1: {1024: 17622, 4096: 44563, 16384: 153114, 65536: 567299},
        2: {1024: 13095, 4096: 27956, 16384: 80085},
        4: {1024: 10942, 4096: 18598, 16384: 46001, 65536: 153651},
        8: {1024: 10271, 4096: 14117, 16384: 28538, 65536: 79957},
    },
)


def budget_keys(context: int) -> int:
    """Return the keys that a guess by the default budget reads of `context` cached tokens, in a layer's slowest
    head."""
    return min(context, round(BUDGET_KEYS * BUDGET_KEYS_GROWTH ** math.log2(context / BUDGET_KEYS_AT)))


def split_layers(layers: int, hit_rate: float) -> tuple[int, int]:
    """Return (hits, misses): floor(layers * r) and ceil(layers * (1 - r)), appendix F; they add up to `layers`.

    A product within 1e-9 of a whole number counts as that number, so that 30 layers at 0.7 give 21 hits. Raises
    ValueError for layers below 1 or a hit rate outside 0 to 1.
    """
    if not isinstance(layers, int) or layers < 1:
        raise ValueError(f"layers must be a whole number of at least 1, got {layers!r}")
    check_hit_rate(hit_rate)
    hits = math.floor(layers * hit_rate + 1e-9)
    return hits, layers - hits


def check_hit_rate(hit_rate: float) -> None:
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

    Without a hit rate, the share of layers whose guess passes, it is full tensor parallelism, with one it is SP+TP. A
    hit costs the receiver's wait and then the longer of the sender's rest and the layer; a miss costs the sender and
    the layer one after the other.

    fixed: outside the layers. per_layer: a layer without attention. fd: flash decode, for tensor parallelism. sfd_s,
    sfd_r: speculative flash decode at the sender and the receiver, for SP+TP. Raises ValueError for a hit rate outside
    0 to 1.
    """
    if hit_rate is None:
        assert fd is not None
        return fixed + layers * (per_layer + fd)
    assert sfd_s is not None and sfd_r is not None and sfd_r <= sfd_s, "a guess arrives before the exact result"
    hits, misses = split_layers(layers, hit_rate)
    return fixed + hits * (sfd_r + max(sfd_s - sfd_r, per_layer)) + misses * (per_layer + sfd_s)


def token_ns(
    context: int,
    hit_rate: float | None,
    chips: int,
    times: Times = EXECUTED,
    keys: int | None = None,
    split_cache: bool = False,
) -> float:
    """Return the nanoseconds of one decoded token of Llama 3.1 8B, batch 1: a point of figure 7.

    context: cached positions, MIN_CONTEXT to MAX_CONTEXT. hit_rate: 0 to 1 for two groups of half of the chips (SP+TP),
    None for one group of all (tensor parallelism). chips: 1, 2, 4 or 8 N150 of a group; twice as many for two groups or
    rows. keys: that a guess by a budget reads (budget_keys); None for a guess of both ends. split_cache: without a hit
    rate, over two rows of half of the chips, which merge their partial attention; at 2K and below they take as long as
    at MIN_CONTEXT. Raises ValueError naming any of these that is out of range.
    """
    if split_cache and hit_rate is not None:
        raise ValueError(f"a cache is split over two rows or they speculate, not both; hit_rate {hit_rate!r}")
    two_rows = split_cache or hit_rate is not None
    counts = [2 * count for count in CHIP_COUNTS] if two_rows else CHIP_COUNTS
    if chips not in counts:
        raise ValueError(f"chips must be one of {', '.join(map(str, counts))}, got {chips!r}")
    if not isinstance(context, int) or not MIN_CONTEXT <= context <= MAX_CONTEXT:
        raise ValueError(f"context must be a whole number in {MIN_CONTEXT}..{MAX_CONTEXT}, got {context!r}")
    tp_chips = chips // 2 if two_rows else chips
    costs = times.row_costs[tp_chips]
    if hit_rate is not None:
        sender, receiver = times.sender_ns(context, tp_chips), times.receiver_ns(context, tp_chips, keys)
        fixed = costs.fixed_ns
        if keys is not None:  # tiles are chosen, of all layers' heads on each chip
            fixed += math.ceil(LAYERS * KV_HEADS / tp_chips / SELECTORS) * SELECTION_NS * context / SELECTION_AT
        return token_latency(fixed, costs.per_layer_ns + times.pair_ns, None, sender, receiver, LAYERS, hit_rate)
    if split_cache:
        exact = times.flash_decode_ns(max(MIN_CONTEXT, -(-context // 2)), tp_chips) + times.merge_ns
    else:
        exact = times.flash_decode_ns(context, tp_chips)
    return token_latency(costs.fixed_ns, costs.per_layer_ns, exact)


def step_ns(hit_rate: float, context: int, chips: int, keys: int | None = None, times: Times = EXECUTED) -> float:
    """Return the nanoseconds of an SP+TP step whose hit rate is a mean over tokens: the line from no hits to all."""
    none, full = (token_ns(context, rate, chips, times, keys) for rate in (0.0, 1.0))
    return none + hit_rate * (full - none)


def prefill_ns(tokens: int, tp_chips: int, start: int = 0, layers: int = LAYERS) -> float:
    """Return the least nanoseconds in which a row of `tp_chips` chips caches a prompt of Llama 3.1 8B in performance
    precision, of which `start` tokens are cached. layers: of the model's, if not all."""
    token, pair = PREFILL_NS[tp_chips]
    return layers / LAYERS * tokens * (token + pair * (start + tokens / 2))


class Layout(NamedTuple):
    """A mesh of `rows` x `columns` chips and its decoded tokens/s for one user: attention-level speculation on two
    rows, tensor parallelism on one."""

    rows: int
    columns: int
    tokens_per_s: float

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


def layouts(chips: int, context: int, hit_rate: float | None = None, guess: str = "budget") -> list[Layout]:
    """Return every mesh of at most `chips` chips with its speed by EXECUTED, the fastest first.

    context: cached tokens, up to MAX_CONTEXT; fewer than MIN_CONTEXT count as so many. hit_rate: share of the guesses
    that pass on two rows, by default HITS of `guess`, what they read: "budget" or "ends". Raises ValueError naming any
    of these that is out of range.
    """
    if chips < 1:
        raise ValueError(f"chips must be at least 1, got {chips}")
    if context < 1:
        raise ValueError(f"context must be at least 1, got {context}")
    hit_rate = HITS[guess] if hit_rate is None else hit_rate
    check_hit_rate(hit_rate)
    context = max(context, MIN_CONTEXT)
    keys = budget_keys(context) if guess == "budget" else None
    found = []
    for count in CHIP_COUNTS:
        if count <= chips:
            found.append(Layout(1, count, 1e9 / token_ns(context, None, count)))
        if 2 * count <= chips:
            found.append(Layout(2, count, 1e9 / step_ns(hit_rate, context, 2 * count, keys)))
    return sorted(found, key=lambda layout: -layout.tokens_per_s)


def layout_rows(found: Sequence[Layout]) -> list[dict[str, Any]]:
    """Return layouts as rows; over_tp: the fastest mesh of one row."""
    tp = max(one.tokens_per_s for one in found if one.rows == 1)
    return [
        {"mesh": str(one), "attention": "alspec" if one.rows == 2 else "exact", "tokens_per_s": one.tokens_per_s}
        | {"over_tp": one.tokens_per_s / tp}
        for one in found
    ]


def estimates(hit_rate: float | None, context: int, predictor: str) -> list[dict[str, Any]]:
    """Return what measured hits give Llama 3.1 8B at this context and at 128K, the fastest mesh first; nothing without
    a hit rate. context: cached tokens; beyond 128K as at 128K. predictor: what the guess reads, a key of HITS."""
    if hit_rate is None:
        return []
    return [
        {"context": at} | row
        for at in sorted({min(context, MAX_CONTEXT), MAX_CONTEXT})
        for row in layout_rows(layouts(MOST_CHIPS, at, hit_rate, predictor))
    ]
