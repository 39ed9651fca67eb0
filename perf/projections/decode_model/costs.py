# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What one device op of a decode step costs: bytes over a rate, tiles over the matrix unit's, a launch, a link.

An op is described by what it moves and computes on one chip (`Op`); `Parameters.ns` turns that into nanoseconds of its
kernels. Specifications (Wormhole) are constants here, collectives take what was measured of them in September 2026
(perf.projections.ethernet), everything else is fitted (fit.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S
from perf.projections.estimator.attention_latency import CORES_PER_HEAD, KV_HEADS, fitted_head_rate
from perf.projections.ethernet import ALL_GATHER, REDUCE_SCATTER, collective_ns

CLOCK_HZ = 1e9
# Cycles of a 32 x 32 x 32 product on a core: 32768 multiply-adds, 2048 per cycle and pass (4 TFLOPs per core at LoFi).
TILE_CYCLES = {"LoFi": 16, "HiFi2": 32, "HiFi3": 48, "HiFi4": 64}
# Cores that read a DRAM-sharded weight and multiply by it: one per bank.
DRAM_READERS = 12
WORKERS = 64
# What the fused op of eight chips sends is gathered.
MEASURED_COLLECTIVES = {"AllGather": ALL_GATHER, "ReduceScatter": REDUCE_SCATTER, "AllGatherMatmul": ALL_GATHER}
MATMUL, ATTENTION, COLLECTIVE, STREAM = "matmul", "attention", "collective", "stream"


class NotIdentified(ValueError):
    """Raised for a parameter that the table of the fit says nothing about; the message names both."""


@dataclass(frozen=True)
class Op:
    """One launch on one chip. name: its op code, as profilers print it. role: what it does in the model.

    kind: MATMUL, ATTENTION, COLLECTIVE, STREAM (bytes alone), or a name of its own: launch + `work` times a fitted
    unit. dram_bytes: read from DRAM. products: 32 x 32 x 32 tile products over `cores`. hops: blocks of the activation
    that a matmul multicasts one after another. chips, link_bytes: of a collective, and the bytes of its whole tensor.
    heads, positions, users: of attention. dram_share: of the fitted DRAM rate, where a layout is known not to reach it.
    """

    name: str
    role: str
    kind: str
    work: float = 1.0
    dram_bytes: int = 0
    products: int = 0
    fidelity: str = "HiFi2"
    cores: int = DRAM_READERS
    hops: int = 0
    chips: int = 1
    link_bytes: int = 0
    heads: int = 0
    positions: int = 0
    users: int = 1
    dram_share: float = 1.0
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compute_ns(self) -> float:
        """The matrix unit's time for `products`, cores alike."""
        return math.ceil(self.products / self.cores) * TILE_CYCLES[self.fidelity] / CLOCK_HZ * 1e9


@dataclass(frozen=True)
class Parameters:
    """Nanoseconds, and bytes/s for the rate. None: not identified by the table of the fit.

    dram_bytes_per_s: what a DRAM-sharded matmul reads at. launch: of any op. matmul_start: of a matmul, until its
    readers stream. hop: one block of a matmul's activation. attention_start: of flash decode, beside its reading.
    units: by kind, a unit of work.
    """

    chips: int
    dram_bytes_per_s: float
    launch: float
    matmul_start: float
    hop: float | None
    attention_start: float
    units: Mapping[str, float]

    def ns(self, op: Op) -> float:
        """Kernel time of `op`. Errors: NotIdentified."""
        if op.kind == MATMUL:
            return self.matmul_ns(op)
        if op.kind == ATTENTION:
            return self.attention_start + reading_ns(op)
        if op.kind == COLLECTIVE:
            fused = self.matmul_ns(op) if op.products else 0.0
            return collective_ns(MEASURED_COLLECTIVES[op.name], op.chips, op.link_bytes) + fused
        if op.kind == STREAM:
            return self.launch + op.dram_bytes / self.dram_bytes_per_s * 1e9
        return self.launch + op.work * self._known(op.kind, self.units.get(op.kind))

    def matmul_ns(self, op: Op) -> float:
        """Return the start, and then the longest of reading weights, multiplying, and multicasting the activation."""
        return self.matmul_start + max(self.bounds(op).values())

    def bounds(self, op: Op) -> dict[str, float]:
        """Return what may hold a matmul up, in nanoseconds."""
        return {
            "DRAM": op.dram_bytes / (self.dram_bytes_per_s * op.dram_share) * 1e9,
            "math": op.compute_ns,
            "hops": op.hops * (self.hop or 0.0),
        }

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            raise NotIdentified(f"{name} is not in the table of {self.chips} chips: fit on another mesh to predict it")
        return value


def reading_ns(op: Op) -> float:
    """Return what flash decode takes to read its keys and values, by the estimator's model beyond 1K (fitted to
    published runs, not to the paper): a chip's heads at the DRAM rate, and what each head costs however few share the
    chip.

    With so many heads and users that a head has fewer than its 16 cores, its own share takes longer by as much.
    """
    pairs = op.heads * op.users
    crowding = max(1.0, pairs * CORES_PER_HEAD / max(WORKERS, KV_HEADS * CORES_PER_HEAD))
    of_a_head = op.dram_bytes / pairs
    return (op.dram_bytes / DRAM_BYTES_PER_S + crowding * of_a_head / fitted_head_rate()) * 1e9
