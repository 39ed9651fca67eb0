# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Latency of (speculative) flash decode on N150 chips, where the ALSpec paper prints none.

The paper prints FD(1K) for 1, 2, 4 and 8 chips (tables 4 to 7) and shows the rest only as figure 12. This
model goes through those measured points and adds what a longer KV cache costs:

    FD(K) = FD(1K) + (K - 1024) * bytes_per_position_and_head * (heads / DRAM rate + 1 / head rate)

Heads are split over the chips, so a chip streams `heads` = 8 / chips heads at the DRAM rate; the second term
is what each head costs however few share a chip (its cores' chunks, their gather and reduction over the NoC),
and is why splitting attention by head yields less and less (appendix D). The DRAM rate is the chip's
specification. The head rate is the one fitted number: least squares over seven published pairs of
short-context and 64K-context decode speeds (perf/data/published_64k.csv). No number of the paper beyond 1K
enters, so that its best case can be compared with what the model predicts.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cache

from perf.projections.estimator.tables import CHIP_COUNTS, LAYERS, chip_table, long_context_runs
from perf.projections.ethernet import exchange_ns

KV_HEADS = 8
HEAD_DIM = 128
# bfloat8_b: a tile of 1024 elements takes 1024 mantissa bytes and 64 shared exponents.
BYTES_PER_POSITION_AND_HEAD = 2 * HEAD_DIM * 1088 // 1024
ANCHOR_CONTEXT = 1024
# At 1K each worker of the anchor holds at most one chunk of this many positions (figure 7's chunk size).
ANCHOR_CHUNK = 256
CORES_PER_HEAD = 16
GUESS_BYTES = 32 * HEAD_DIM * 2  # of 32 heads on one chip, bfloat16
DRAM_BYTES_PER_S = 288e9
_SHORT_RUN_CONTEXT = 512 + 100
_LONG_RUN_CONTEXT = 65536 + 100


@cache
def fitted_head_rate(dram_bytes_per_s: float = DRAM_BYTES_PER_S) -> float:
    """Return the bytes/s of one KV head's share that explain the published 64K runs best, given the DRAM rate.

    A run's extra time per layer, long against short, is bytes * (heads / dram + 1 / head rate); the least-squares
    solution for 1 / head rate is the mean of what each run leaves over. A context is a run's prefill plus half of its
    200 decoded tokens.
    """
    size = (_LONG_RUN_CONTEXT - _SHORT_RUN_CONTEXT) * BYTES_PER_POSITION_AND_HEAD
    left_over = [
        (1 / run.long_tokens_per_s - 1 / run.short_tokens_per_s) / run.layers
        - size * (KV_HEADS / run.chips) / dram_bytes_per_s
        for run in long_context_runs()
    ]
    return size / (sum(left_over) / len(left_over))


@dataclass(frozen=True)
class AttentionLatency:
    """The model's parameters; latencies in nanoseconds, rates in bytes/s.

    dram_bytes_per_s: a Wormhole's GDDR6 specification. head_bytes_per_s: see `fitted_head_rate`.
    verify_ns: sender's overhead over flash decode, two L2 norms over 32 x 128 values (paper: "almost no").
    That one is an assumption. hop_ns: sending the 8 KiB guess one Ethernet hop, as two chips' exchange was measured.
    """

    dram_bytes_per_s: float = DRAM_BYTES_PER_S
    head_bytes_per_s: float = field(default_factory=fitted_head_rate)
    verify_ns: float = 3000.0
    hop_ns: float = field(default_factory=lambda: exchange_ns(GUESS_BYTES))

    def __post_init__(self) -> None:
        for name in ("dram_bytes_per_s", "head_bytes_per_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, got {getattr(self, name)}")
        for name in ("verify_ns", "hop_ns"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")

    def _ns_per_position(self, tp_chips: int) -> float:
        heads = KV_HEADS / tp_chips
        per_byte = heads / self.dram_bytes_per_s + 1 / self.head_bytes_per_s
        return BYTES_PER_POSITION_AND_HEAD * per_byte * 1e9

    def achieved_bytes_per_s(self, tp_chips: int) -> float:
        """Return the KV bytes/s that one of `tp_chips` chips reads at a long context."""
        return KV_HEADS / tp_chips * BYTES_PER_POSITION_AND_HEAD / self._ns_per_position(tp_chips) * 1e9

    def flash_decode_ns(self, context: int, tp_chips: int) -> float:
        """Return FD(K) of one layer with its KV heads split over `tp_chips` chips; exact at 1K."""
        added = (context - ANCHOR_CONTEXT) * self._ns_per_position(tp_chips)
        return chip_table(tp_chips).flash_decode_ns + added

    def sender_ns(self, context: int, tp_chips: int) -> float:
        """Return SFD_S(K): flash decode plus the verification."""
        return self.flash_decode_ns(context, tp_chips) + self.verify_ns

    def receiver_ns(self, context: int, tp_chips: int, chunk_size: int) -> float:
        """Return SFD_R(K), until the guess has arrived: the time for launch, two chunks on one core, and one hop.

        FD(1K) is launch, one chunk of 256 per core, and a reduction (which the guess spares, so this errs upwards); the
        rest of the two chunks goes at one core's share of the head rate. Never more than the sender's time.
        """
        rest = max(2 * chunk_size - ANCHOR_CHUNK, 0) * BYTES_PER_POSITION_AND_HEAD
        core_rate = self.head_bytes_per_s / CORES_PER_HEAD
        guess = chip_table(tp_chips).flash_decode_ns + rest / core_rate * 1e9 + self.hop_ns
        return min(guess, self.sender_ns(context, tp_chips))

    def assumptions(self) -> list[str]:
        """Return one sentence for each assumption, with its number."""
        rates = ", ".join(f"{self.achieved_bytes_per_s(chips) / 1e9:.0f}" for chips in CHIP_COUNTS)
        tables = [chip_table(chips) for chips in CHIP_COUNTS]
        layers, fixed, anchors = (
            " ".join(f"{getattr(table, name) / 1000:.1f}" for table in tables)
            for name in ("per_layer_ns", "fixed_ns", "flash_decode_ns")
        )
        dram = "specification" if self.dram_bytes_per_s == DRAM_BYTES_PER_S else "given"
        fitted = self.head_bytes_per_s == fitted_head_rate()
        source = f"fitted to {len(long_context_runs())} published 64K runs at 288 GB/s" if fitted else "given"
        head = f"{self.head_bytes_per_s / 1e9:.2f} GB/s per head"
        return [
            "a token: fixed + hits * (receiver + max(sender - receiver, layer)) + misses * (layer + sender), appendix "
            f"F; full TP: fixed + {LAYERS} * (layer + FD); SP+TP has the times of half of the chips",
            f"measured on {', '.join(map(str, CHIP_COUNTS))} chips (the paper's tables 4 to 7; no host time), us: "
            f"layer without flash decode {layers}; fixed {fixed}; FD(1K) {anchors}",
            f"KV cache bfloat8_b, {BYTES_PER_POSITION_AND_HEAD} B per position and KV head, {KV_HEADS} heads split "
            "over the chips",
            f"FD(K): FD(1K) + (K - {ANCHOR_CONTEXT}) * {BYTES_PER_POSITION_AND_HEAD} B * (heads per chip / "
            f"{self.dram_bytes_per_s / 1e9:.0f} GB/s of DRAM ({dram}) + 1 / {head} ({source})); GB/s per chip on 1, "
            f"2, 4, 8 chips: {rates} (no published run on 4)",
            f"sender: FD(K) + {self.verify_ns / 1000:.1f} us of verification (assumed)",
            f"receiver: FD(1K), which holds the launch and a chunk of {ANCHOR_CHUNK} positions per core, + (2 S - "
            f"{ANCHOR_CHUNK}) * {BYTES_PER_POSITION_AND_HEAD} B at a core's share, {head} / {CORES_PER_HEAD} cores, "
            f"+ {self.hop_ns / 1000:.1f} us for one hop (measured exchange); at most the sender",
        ]

    def to_dict(self) -> dict[str, float]:
        """Return the parameters, for machines."""
        return asdict(self)


@dataclass(frozen=True)
class PublishedCheck:
    """A published 64K run beside the model, in tokens/s/user; the error is relative to the published."""

    model: str
    board: str
    chips: int
    published_tokens_per_s: float
    predicted_tokens_per_s: float
    relative_error: float


def published_checks(attention: AttentionLatency) -> list[PublishedCheck]:
    """Predict each published 64K speed from the board's short-context speed and the modelled flash decode.

    Only flash decode is assumed to grow with the context (appendix F). The seven runs are also what the head
    rate is fitted to; the spread of the errors is the test of the model's one-parameter shape.
    """
    checks = []
    for run in long_context_runs():
        added_ns = attention.flash_decode_ns(_LONG_RUN_CONTEXT, run.chips)
        added_ns -= attention.flash_decode_ns(_SHORT_RUN_CONTEXT, run.chips)
        predicted = 1 / (1 / run.short_tokens_per_s + run.layers * added_ns * 1e-9)
        error = predicted / run.long_tokens_per_s - 1
        checks.append(PublishedCheck(run.model, run.board, run.chips, run.long_tokens_per_s, predicted, error))
    return checks
