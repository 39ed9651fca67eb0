# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A decode step's time by op, its share of the roofline, and what stands between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S, budget
from perf.projections.decode_model.costs import ATTENTION, Op, Parameters
from perf.projections.decode_model.fit import fit
from perf.projections.decode_model.plans import Step, attention
from perf.projections.estimator.attention_latency import AttentionLatency
from perf.projections.estimator.latency import token_latency
from perf.projections.estimator.tables import read_rows

CHUNK_SIZE = 256


@dataclass(frozen=True)
class Timed:
    """An op and its modelled nanoseconds."""

    op: Op
    ns: float


@dataclass(frozen=True)
class Prediction:
    """A step's modelled kernel times on one chip. gap_ns: between two programs, which no table holds (0: kernels
    alone). hit_rate: of attention-level speculation where the mesh has two rows, else None."""

    step: Step
    parameters: Parameters
    before: tuple[Timed, ...]
    layers: tuple[tuple[Timed, ...], ...]
    after: tuple[Timed, ...]
    gap_ns: float = 0.0
    hit_rate: float | None = None

    @property
    def launches(self) -> int:
        return len(self.before) + sum(map(len, self.layers)) + len(self.after)

    @property
    def fixed_ns(self) -> float:
        once = self.before + self.after
        return sum(timed.ns for timed in once) + self.gap_ns * len(once)

    @property
    def attention_ns(self) -> float:
        """Attention of one layer."""
        return sum(timed.ns for timed in self.layers[0] if timed.op.kind == ATTENTION)

    @property
    def token_ns(self) -> float:
        """The time of one step: with two TP groups by appendix F at `hit_rate`, its exchange and gate left out as
        there."""
        inside = sum(timed.ns + self.gap_ns for layer in self.layers for timed in layer)
        if self.hit_rate is None:
            return self.fixed_ns + inside
        layers = len(self.layers)
        sender = self.attention_ns + AttentionLatency().verify_ns
        receiver = guess_ns(self, CHUNK_SIZE, sender)
        rest = inside / layers - self.attention_ns
        return token_latency(self.fixed_ns, rest, None, sender, receiver, layers, self.hit_rate)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of one user."""
        return 1e9 / self.token_ns

    @property
    def floor_ns(self) -> float:
        """The time of reading what a step must read at the DRAM's specified rate, on one of the row's chips."""
        step = self.step
        needed = budget(step.config, step.mesh, step.formats, step.context, step.users)
        return needed.read_per_step / DRAM_BYTES_PER_S * 1e9

    @property
    def roofline_share(self) -> float:
        return self.floor_ns / self.token_ns


def guess_ns(told: Prediction, chunk_size: int, sender: float) -> float:
    """Return the time until a receiver has its guess: flash decode of two chunks and a hop, never more than the
    `sender` takes."""
    step = told.step
    guess = attention(
        step.config.num_key_value_heads // step.mesh.tp,
        step.config.head_dim,
        min(2 * chunk_size, step.context),
        step.users,
        step.formats.kv_cache,
    )
    return min(sender, told.parameters.ns(guess) + AttentionLatency().hop_ns)


def predict(
    step: Step, parameters: Parameters | None = None, gap_ns: float = 0.0, hit_rate: float | None = None
) -> Prediction:
    """Predict a step by the model. hit_rate: 0 to 1, for meshes of two rows and no other.

    Errors: ValueError for values out of range, NotIdentified where the fit's table says nothing about an op.
    """
    if not 0 <= gap_ns < float("inf"):
        raise ValueError(f"gap_ns must be at least 0 and finite, got {gap_ns}")
    if (hit_rate is None) != (step.mesh.sp == 1):
        raise ValueError(f"a hit rate is for meshes of two rows: got {hit_rate} for {step.mesh}")
    parameters = parameters or fit()

    def timed(ops: Sequence[Op]) -> tuple[Timed, ...]:
        return tuple(Timed(op, parameters.ns(op)) for op in ops)

    layers = tuple(timed(layer) for layer in step.layers())
    return Prediction(step, parameters, timed(step.before()), layers, timed(step.after()), gap_ns, hit_rate)


@dataclass(frozen=True)
class PublishedRow:
    """A published speed beside the model's. gap_ns: between programs, that would explain all of a slower one.
    fitted: the context's share of attention comes from published runs, this one among them."""

    chips: int
    context: int
    precision: str
    published: float
    modelled: float
    gap_ns: float
    fitted: bool

    @property
    def error(self) -> float:
        return self.modelled / self.published - 1


def published_rows(parameters: Parameters, plan: str = "sharded") -> list[PublishedRow]:
    """Compare tt-metal's published speeds of Llama 3.1 8B (perf/data/published_decode.csv), none of which the fit has
    seen."""
    from models.llama31_8b.tt.mesh import MeshShape

    found = []
    for row in read_rows("published_decode.csv"):
        chips, context, known = int(row["chips"]), int(row["context"]), float(row["tokens_per_s"])
        step = Step(MeshShape(1, chips), context, plan=plan, precision=row["plan"])
        told = predict(step, parameters)
        gap = (1e9 / known - told.token_ns) / told.launches
        found.append(PublishedRow(chips, context, row["plan"], known, told.tokens_per_s, gap, fitted=context > 1024))
    return found
