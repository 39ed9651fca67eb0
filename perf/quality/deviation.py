# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How far the last hidden state really moves, beside what appendix A of the ALSpec paper allows (`bound.py`).

A text is run exactly and under attention-level speculation, and the residual stream of both is kept. All norms are over
the whole text (tokens and channels in one vector), so that attention, which reads earlier tokens, is a function of what
is compared and the triangle inequalities hold as they stand. The constants are those of this very run (ratios of
differences), hence lower bounds of the true Lipschitz constants: a bound from them is the best appendix A can give.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial

import torch
import torch.nn.functional as F

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.attention import Segments
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange

from .bound import high_probability_hilbert, linear, linear_printed, propagated, worst_case
from .forward import read
from .perplexity import join_rates
from .study import KEYS, Cell, Study

KEY = (*KEYS, "threshold")
VALUES = (
    "hit_rate",
    "deviation",
    "sum_of_errors",
    "root_of_squares",
    "by_layer_bound",
    "equation_3",
    "linear",
    "linear_printed",
    "high_probability",
    "alpha_mean",
    "alpha_max",
    "phi_mean",
    "phi_max",
    "deviation_by_layer",
    "seconds",
)


@dataclass
class Stream:
    """The residual stream of one pass: entry[i] enters layer i, middle[i] its MLP; entry has one more, the state
    behind the last layer. attended[i] and mlp[i]: what was added. All [T, hidden], float32."""

    entry: list[torch.Tensor] = field(default_factory=list)
    middle: list[torch.Tensor] = field(default_factory=list)
    attended: list[torch.Tensor] = field(default_factory=list)
    mlp: list[torch.Tensor] = field(default_factory=list)


class SpeculationErrors(ALSpecAttention):
    """Attention-level speculation that keeps what each taken guess adds: errors[layer], blocks of [t, heads * d]."""

    def __init__(self, threshold: float, guess_range: GuessRange, layers: int) -> None:
        super().__init__(threshold, guess_range)
        self.errors: list[list[torch.Tensor]] = [[] for _ in range(layers)]

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        out = super().attend(layer, segments)
        self.errors[layer].append(out - segments.exact())
        return out


def recorded_pass(model: ReferenceLlama, ids: list[int], policy: ALSpecAttention | None = None) -> Stream:
    """The residual stream of a text's pass, put together from what attention and MLP add in each layer."""
    added: dict[str, list[list[torch.Tensor]]] = {name: [[] for _ in model.layers] for name in ("o", "down")}
    handles = [
        getattr(layer, name).register_forward_hook(lambda _, __, out, kept=added[name][index]: kept.append(out))
        for index, layer in enumerate(model.layers)
        for name in added
    ]
    try:
        read(model, ids, policy, model.new_cache(1, len(ids)))
    finally:
        for handle in handles:
            handle.remove()
    stream = Stream([F.embedding(torch.tensor(ids), model.embedding).float()])
    for attended, mlp in zip(added["o"], added["down"]):
        # The reference takes a single token as a vector.
        stream.attended.append(torch.cat([part.view(-1, part.shape[-1]) for part in attended]).float())
        stream.mlp.append(torch.cat([part.view(-1, part.shape[-1]) for part in mlp]).float())
        stream.middle.append(stream.entry[-1] + stream.attended[-1])
        stream.entry.append(stream.middle[-1] + stream.mlp[-1])
    return stream


def _norm(x: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(x.double()))


def measured(
    model: ReferenceLlama,
    exact: Stream,
    ids: list[int],
    threshold: float,
    guess_range: GuessRange,
) -> dict[str, object]:
    """The columns VALUES but `seconds` for one text. Every figure but hit rate and constants is relative to the norm
    of the exact state behind the last layer."""
    policy = SpeculationErrors(threshold, guess_range, len(model.layers))
    stream = recorded_pass(model, ids, policy)
    with torch.inference_mode():
        added = [
            layer.o(torch.cat(errors).to(model.dtype)).float() for layer, errors in zip(model.layers, policy.errors)
        ]
    delta = [_norm(error) for error in added]
    # What this layer's attention would have given without its own guess, against the exact run's.
    inherited = [_norm(ours - error - theirs) for error, ours, theirs in zip(added, stream.attended, exact.attended)]
    moved = [_norm(a - b) for a, b in zip(stream.entry, exact.entry)]
    before_mlp = [_norm(a - b) for a, b in zip(stream.middle, exact.middle)]
    mlp = [_norm(a - b) for a, b in zip(stream.mlp, exact.mlp)]
    phi = [_ratio(a, b) for a, b in zip(inherited, moved)]
    alpha = [_ratio(a, b) for a, b in zip(mlp, before_mlp)]
    size, count = _norm(exact.entry[-1]), len(delta)
    worst = worst_case(max(alpha), max(phi), delta)
    return {
        "hit_rate": policy.statistics.hit_rate,
        "deviation": moved[-1] / size,
        "sum_of_errors": sum(delta) / size,
        "root_of_squares": sum(d**2 for d in delta) ** 0.5 / size,
        "by_layer_bound": propagated(alpha, phi, delta) / size,
        "equation_3": worst / size,
        "linear": linear(max(alpha), max(phi), max(delta), count) / size,
        "linear_printed": linear_printed(max(alpha), max(phi), max(delta), count) / size,
        "high_probability": None if threshold == float("inf") else high_probability_hilbert(threshold, count),
        "alpha_mean": sum(alpha) / count,
        "alpha_max": max(alpha),
        "phi_mean": sum(phi) / count,
        "phi_max": max(phi),
        "deviation_by_layer": join_rates([m / _norm(e) for m, e in zip(moved[1:], exact.entry[1:])]),
    }


def _ratio(difference: float, moved: float) -> float:
    """0 where nothing had moved: no constant can be read off."""
    return difference / moved if moved else 0.0


def cells(study: Study) -> Iterator[Cell]:
    """One cell a context, window, chunk size and threshold above 0."""
    settings, model = study.settings, study.loaded.model

    @lru_cache(maxsize=1)
    def exact(context: int, start: int) -> Stream:
        # Threshold 0 and not dense attention: the same sums in the same order, so equal inputs give equal outputs.
        policy = ALSpecAttention(0.0, settings.guess_range(settings.chunk_sizes[0]))
        return recorded_pass(model, study.window(context, start), policy)

    def measure(context: int, start: int, chunk_size: int, threshold: float) -> dict[str, object]:
        ids = study.window(context, start)
        return measured(model, exact(context, start), ids, threshold, settings.guess_range(chunk_size))

    for place in study.places():
        for threshold in (t for t in settings.thresholds if t > 0):
            yield Cell({**study.key(*place), "threshold": threshold}, partial(measure, *place, threshold))
