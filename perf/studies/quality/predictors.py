# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Other guesses than the first and the last S tokens, compared at equal bytes read (the ALSpec paper leaves them open).

All are judged on the hidden states of exact attention, in one pass, so that each sees the same queries, keys and
values. A guess reads `keys` cached tokens of every key/value head: some first ones, some last ones up to the tile
boundary after the query, and whole tiles of 32 in between, chosen for each key/value head by a score of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch

from models.llama31_8b.reference.alspec.policies import AttentionPolicy
from models.llama31_8b.reference.model.attention import ManyQueries, Segments
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange

from .forward import read, weigh
from .study import Cell, Study

KEY = ("model", "text", "context", "start", "keys", "predictor", "threshold")
VALUES = ("hit_rate", "median_distance", "speculating", "seconds")
TILE = 32


class Predictor(NamedTuple):
    """first, last: shares of the keys that are read at the ends; the rest are tiles in between by `score`. whole_tail:
    the last keys are counted without the last tile, where that is not full, and so are up to 31 more."""

    first: float
    last: float
    score: str | None = None
    whole_tail: bool = False


# One tile of first tokens holds the sink; `oracle` knows the attention it guesses, and bounds what tiles can give.
PREDICTORS = {
    "first + last": Predictor(1 / 2, 1 / 2),
    "whole tail": Predictor(1 / 2, 1 / 2, whole_tail=True),
    "quarter first": Predictor(1 / 4, 3 / 4),
    "tile first": Predictor(0, 1),
    "high key norm": Predictor(0, 1 / 2, "norm"),
    "low key norm": Predictor(0, 1 / 2, "-norm"),
    "last step's mass": Predictor(0, 1 / 2, "mass"),
    "oracle": Predictor(0, 1 / 2, "oracle"),
}


def lengths(predictor: Predictor, keys: int) -> tuple[int, int, int]:
    """Return (first tokens, last tokens, tiles in between) that add up to `keys`; at least one tile is first."""
    first = max(TILE, int(keys * predictor.first) // TILE * TILE)
    last = int(keys * predictor.last) // TILE * TILE if predictor.score else keys - first
    return first, last, (keys - first - last) // TILE


class ComparedGuesses(AttentionPolicy):
    """Exact attention that keeps the relative distance of every predictor's guess.

    cache: the one the text is written to, for the norms of its keys. distances: by (predictor, keys) a list over blocks
    and layers of float32 [queries], NaN where fewer than `keys` tokens are cached.
    """

    name = "compared guesses"
    needs_scores = True  # of every query and key: texts go through in blocks, on a GPU too

    def __init__(self, cache: KVCache, budgets: tuple[int, ...]) -> None:
        super().__init__(TILE, TILE)
        self.cache, self.budgets = cache, budgets
        self.distances: dict[tuple[str, int], list[torch.Tensor]] = {
            (name, keys): [] for name in PREDICTORS for keys in budgets
        }
        self._mass: dict[int, torch.Tensor] = {}

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        self._cached = step.cached[0]

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        if not isinstance(segments, ManyQueries):
            raise ValueError("guesses are compared on texts of two tokens and more per step")
        cached = self._cached[segments.tokens]
        scores = segments.scores.masked_fill(~segments.visible, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        mass = _by_tile(weights.sum(1)).sum(-1)  # [kv_heads, t, tiles]
        tiles = mass.shape[-1]
        keys = self.cache.keys[layer][0, :, : weights.shape[-1]].float().norm(dim=-1)
        norm = _by_tile(keys).mean(-1)[:, None].expand_as(mass)
        before = self._mass.get(layer, torch.zeros_like(mass[:, :1]))
        before = torch.nn.functional.pad(before, (0, tiles - before.shape[-1]))
        ranking = {"norm": norm, "-norm": -norm, "mass": torch.cat((before, mass[:, :-1]), 1), "oracle": mass}
        self._mass[layer] = mass[:, -1:]
        exact = weigh(weights, segments.values)
        size = exact.norm(dim=1)
        for (name, budget), found in self.distances.items():
            read = _read(PREDICTORS[name], budget, cached, ranking, weights.shape[-1])
            chosen = weights * read[:, None]
            guess = weigh(chosen / chosen.sum(-1, keepdim=True), segments.values)
            distance = (guess - exact).norm(dim=1) / size
            found.append(distance.masked_fill(cached < budget, float("nan")))
        return exact


def _by_tile(of_keys: torch.Tensor) -> torch.Tensor:
    """Return [..., n] of the keys -> [..., tiles, TILE], zeros after the last."""
    return torch.nn.functional.pad(of_keys, (0, -of_keys.shape[-1] % TILE)).unflatten(-1, (-1, TILE))


def _read(
    predictor: Predictor, budget: int, cached: torch.Tensor, ranking: dict[str, torch.Tensor], slots: int
) -> torch.Tensor:
    """Return bool [kv_heads or 1, t, slots]: which keys the guess reads."""
    first, last, middle = lengths(predictor, budget)
    start = GuessRange(first, last, TILE, predictor.whole_tail).tail_start(cached)[:, None]
    keys = torch.arange(slots)
    ends = ((keys < first) | (keys >= start))[None]
    if predictor.score is None or not middle:
        return ends
    rank = ranking[predictor.score]
    tile = torch.arange(rank.shape[-1]) * TILE
    inside = (tile >= first) & (tile < start)
    rank = rank.masked_fill(~inside, float("-inf"))
    best = rank.topk(min(middle, rank.shape[-1]), dim=-1).indices
    taken = torch.zeros_like(rank, dtype=torch.bool).scatter_(-1, best, True) & inside
    return ends | taken.repeat_interleave(TILE, dim=-1)[..., :slots]


def cells(study: Study) -> Iterator[Cell]:
    """Yield a cell per context and window, with a row for each predictor, number of keys and finite threshold."""
    settings = study.settings
    for context in settings.contexts:
        budgets = tuple(2 * size for size in settings.chunk_sizes if 2 * size < context)
        for start in study.starts(context)[:-1]:
            key = {
                "model": study.loaded.config.name,
                "text": study.texts.name,
                "context": context,
                "start": start,
            }
            yield Cell(key, partial(_measure, study, context, start, budgets))


def _measure(study: Study, context: int, start: int, budgets: tuple[int, ...]) -> list[dict[str, object]]:
    model, thresholds = study.loaded.model, study.settings.thresholds
    cache = model.new_cache(1, context)
    policy = ComparedGuesses(cache, budgets)
    read(model, study.window(context, start), policy, cache)
    rows = []
    for (name, keys), distances in policy.distances.items():
        distance = torch.cat(distances)
        distance = distance[~distance.isnan()]
        for threshold in (t for t in thresholds if 0 < t < float("inf")):
            rows.append(
                {
                    "keys": keys,
                    "predictor": name,
                    "threshold": threshold,
                    "hit_rate": float((distance < threshold).double().mean()),
                    "median_distance": float(distance.median()),
                    "speculating": len(distance) // study.layers,
                }
            )
    return rows
