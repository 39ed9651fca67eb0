# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The static baselines of the ALSpec paper's section 2, as many guesses taken as by attention-level speculation.

Acceptance by layer is measured on a window that is not scored. Of these layers `matched` takes the guess on the k
readiest, with k / layers the hit rate of the dynamic run it stands beside (which `dynamic` repeats), and `share` takes
it on those whose acceptance exceeds p (the paper: p = 0.8). `sink` takes it everywhere. Layers without an exact pass
have no attention to follow, so beside `--predictor followed` a static guess reads first and last keys: `matched` alone
is measured, `share` and `sink` would be those of `ends`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from models.llama31_8b.reference.alspec.policies import (
    ALSpecAttention,
    AttentionPolicy,
    SinkAttention,
    StaticAttention,
)

from .forward import read
from .study import COMPARED, KEYS, Cell, Study

KEY = (*KEYS, "method", "parameter")
VALUES = (*COMPARED, "layers", "seconds")
# Acceptance above which a layer is fixed to the guess: the paper's, and lower ones where few layers reach it.
SHARES = (0.8, 0.5, 0.3)
# The threshold of the calibration for `share`: the paper's choice.
CALIBRATION_THRESHOLD = 0.10


def readiest(acceptance: Sequence[float], hit_rate: float) -> list[int]:
    """Return the layers of highest acceptance, as many as come nearest to `hit_rate` of all; ties: the earlier
    layer."""
    count = round(hit_rate * len(acceptance))
    order = sorted(range(len(acceptance)), key=lambda layer: (-acceptance[layer], layer))
    return sorted(order[:count])


def cells(study: Study) -> Iterator[Cell]:
    """Yield for every context, start and chunk size: dynamic and matched by finite threshold; for `ends` also shares
    and sink."""
    settings = study.settings
    fixed_ends = replace(settings, predictor="ends")

    @lru_cache(maxsize=None)
    def acceptance(context: int, chunk_size: int, threshold: float) -> tuple[float, ...]:
        policy = ALSpecAttention(threshold, fixed_ends.guess_range(chunk_size))
        window = study.window(context, study.starts(context)[-1])
        read(study.loaded.model, window, policy, study.loaded.model.new_cache(1, context))
        return tuple(rate for rate in policy.statistics.hit_rate_per_layer if rate is not None)

    def dynamic(context: int, start: int, chunk_size: int, threshold: float) -> dict[str, object]:
        return {**study.speculated(context, start, chunk_size, threshold).columns, "layers": ""}

    def matched(context: int, start: int, chunk_size: int, threshold: float) -> dict[str, object]:
        rate = study.speculated(context, start, chunk_size, threshold).hit_rate
        layers = readiest(acceptance(context, chunk_size, threshold), rate or 0.0)
        return static(context, start, chunk_size, layers)

    def share(context: int, start: int, chunk_size: int, least: float) -> dict[str, object]:
        ready = acceptance(context, chunk_size, CALIBRATION_THRESHOLD)
        return static(context, start, chunk_size, [layer for layer, rate in enumerate(ready) if rate > least])

    def static(context: int, start: int, chunk_size: int, layers: Sequence[int]) -> dict[str, object]:
        policy = StaticAttention(fixed_ends.guess_range(chunk_size), layers)
        return fixed(context, start, policy, list(layers))

    def sink(context: int, start: int, chunk_size: int, _: float) -> dict[str, object]:
        policy = SinkAttention(fixed_ends.guess_range(chunk_size))
        return fixed(context, start, policy, list(range(study.layers)))

    def fixed(context: int, start: int, policy: AttentionPolicy, layers: list[int]) -> dict[str, object]:
        _, columns = study.compared(context, start, policy)
        shown = " ".join(map(str, layers))
        return {**columns, "hit_rate": len(layers) / study.layers, "layers": shown}

    finite = tuple(t for t in settings.thresholds if 0 < t < float("inf"))
    kinds: list[tuple[str, Callable, tuple[float, ...]]] = [
        ("dynamic", dynamic, finite),
        ("matched", matched, finite),
    ]
    if settings.predictor == "ends":
        kinds += [("share", share, SHARES), ("sink", sink, (float("inf"),))]
    for place in study.places():
        for method, run, parameters in kinds:
            for parameter in parameters:
                key = {**study.key(*place), "method": method, "parameter": parameter}
                yield Cell(key, partial(run, *place, parameter))
