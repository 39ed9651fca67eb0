# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a run measures, part by part: each yields cells, whose rows go to one CSV file.

- perplexity: loss, divergence and hits of a long text (ALSpec paper, section 5.1 and table 1's rows).
- baselines: the static policies of the paper's section 2, as many guesses taken as by attention-level speculation.
- divergence: how many greedy tokens until the text first differs from that of exact attention.
- chains: steps that verify N tokens at once: the text cut into chains of N, every token right.
- trees: steps over drafted trees (trees.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import NamedTuple

import torch

from models.llama31_8b.reference.alspec.policies import AttentionPolicy, SinkAttention, StaticAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.kv_cache import KVCache

from . import trees
from .forward import COMPARED, text_pass
from .study import GUESSED, KEYS, RULE, Cell, Place, Study, join_rates


class Part(NamedTuple):
    """What a part measures, and the columns of its file."""

    cells: Callable[[Study], Iterator[Cell]]
    key: tuple[str, ...]
    values: tuple[str, ...]


def perplexity(study: Study) -> Iterator[Cell]:
    """Yield a cell per place and threshold, contexts in the outer loop: each has one exact pass."""
    for place in study.places():
        for threshold in study.settings.thresholds:
            yield Cell({**study.key(place), "threshold": threshold}, partial(study.speculated, place, threshold))


# Acceptance above which `share` fixes a layer to the guess: the paper's, and lower ones where few layers reach it.
SHARES = (0.8, 0.5, 0.3)
CALIBRATION_THRESHOLD = 0.10  # of the acceptance for `share`: the paper's choice


def readiest(acceptance: Sequence[float], hit_rate: float) -> list[int]:
    """Return the layers of highest acceptance, as many as come nearest to `hit_rate` of all; ties: the earlier
    layer."""
    count = round(hit_rate * len(acceptance))
    order = sorted(range(len(acceptance)), key=lambda layer: (-acceptance[layer], layer))
    return sorted(order[:count])


def baselines(study: Study) -> Iterator[Cell]:
    """Yield for every place: `dynamic` and `matched` by finite threshold; for `ends` also `share` and `sink`.

    Acceptance by layer is measured on a window that is not scored. `matched` takes the guess on as many of the readiest
    layers as give the hit rate of the dynamic run beside it, `share` on the layers whose acceptance exceeds p, and
    `sink` on all. Layers without an exact pass have no attention to follow, so static guesses read first and last keys
    whatever the predictor.
    """
    settings = study.settings

    @cache
    def acceptance(context: int, chunk_size: int, threshold: float) -> tuple[float, ...]:
        window = study.window(context, study.starts(context)[-1])
        found = text_pass(study.loaded.model, window, settings.policy(threshold, chunk_size, "ends"))
        return tuple(found.hit_rate_by_layer() or ())

    def dynamic(place: Place, threshold: float) -> dict[str, object]:
        columns = study.speculated(place, threshold)
        return {name: columns[name] for name in COMPARED} | {"layers": ""}

    def matched(place: Place, threshold: float) -> dict[str, object]:
        rate = float(str(study.speculated(place, threshold)["hit_rate"]))
        return static(place, readiest(acceptance(place.context, place.chunk_size, threshold), rate))

    def share(place: Place, least: float) -> dict[str, object]:
        ready = acceptance(place.context, place.chunk_size, CALIBRATION_THRESHOLD)
        return static(place, [layer for layer, rate in enumerate(ready) if rate > least])

    def static(place: Place, layers: list[int]) -> dict[str, object]:
        return fixed(place, StaticAttention(settings.guess_range(place.chunk_size), layers), layers)

    def sink(place: Place, _: float) -> dict[str, object]:
        return fixed(place, SinkAttention(settings.guess_range(place.chunk_size)), list(range(study.layers)))

    def fixed(place: Place, policy: AttentionPolicy, layers: list[int]) -> dict[str, object]:
        _, columns = study.compared(place.context, place.start, policy)
        return {**columns, "hit_rate": len(layers) / study.layers, "layers": " ".join(map(str, layers))}

    kinds: list[tuple[str, Callable, tuple[float, ...]]]
    kinds = [("dynamic", dynamic, settings.finite), ("matched", matched, settings.finite)]
    of_ends = [*kinds, ("share", share, SHARES), ("sink", sink, (float("inf"),))]
    for place in study.places():
        for method, run, parameters in of_ends if place.predictor == "ends" else kinds:
            for parameter in parameters:
                key = {**study.key(place), "method": method, "parameter": parameter}
                yield Cell(key, partial(run, place, parameter))


def first_difference(choices: torch.Tensor, text: torch.Tensor) -> int | None:
    """Return the tokens before the first choice that is not the text's; None when all agree. int64 [T] both."""
    wrong = (choices != text).nonzero()
    return int(wrong[0]) if len(wrong) else None


def divergence(study: Study) -> Iterator[Cell]:
    """Yield a cell per place and threshold; the window is the prompt, prefilled exactly as on the device.

    Until the first difference both texts are the same, so the exact text is made once and each policy reads it, all
    tokens in one pass: its first choice that differs is where its own text would.
    """
    settings, model = study.settings, study.loaded.model

    @lru_cache(maxsize=1)
    def exact(context: int, start: int) -> tuple[KVCache, list[int]]:
        """Return the cache of the prompt but for its last token, and that token with the exact text after it."""
        prompt = study.window(context, start)[: context - settings.new_tokens - 1]
        made = generate(model, [prompt], max_new_tokens=settings.new_tokens, eos_token_ids=()).token_ids[0]
        cache = model.new_cache(1, context)
        model.prefill([prompt[:-1]], cache)
        return cache, [prompt[-1], *made]

    def measure(place: Place, threshold: float) -> dict[str, object]:
        cache, text = exact(place.context, place.start)
        cached = int(cache.lengths[0])
        policy = settings.policy(threshold, place.chunk_size, place.predictor)
        result = text_pass(model, text, policy, cache=cache)
        cache.truncate(cached)
        following = torch.tensor(text[1:])
        return {
            "new_tokens": len(following),
            "first_difference": first_difference(result.choices[:-1], following),
            "agreement": float((result.choices[:-1] == following).double().mean()),
            "hit_rate": result.hit_rate(),
        }

    for context in settings.contexts:
        if context <= settings.new_tokens + 1:
            raise ValueError(f"a context of {context} tokens has no room for {settings.new_tokens} new ones")
    for place in study.places(room=settings.new_tokens):
        for threshold in settings.thresholds:
            yield Cell({**study.key(place), "threshold": threshold}, partial(measure, place, threshold))


NODES = (1, 4, 16, 64)


def chains(study: Study) -> Iterator[Cell]:
    """Yield a cell per place, number of nodes and finite threshold."""

    def measure(place: Place, nodes: int, threshold: float) -> dict[str, object]:
        policy = study.settings.in_steps(threshold, place.chunk_size, place.predictor, nodes)
        result, columns = study.compared(place.context, place.start, policy)
        assert result.accepted is not None and result.verified is not None
        starts = range(0, len(policy.passed), study.layers)
        blocks = [torch.stack(policy.passed[at : at + study.layers]) for at in starts]
        steps = result.verified.unflatten(0, (-1, nodes))[:, 0]
        alone = torch.cat(blocks, dim=1)[:, steps]  # [layers, steps, nodes]
        taken = result.accepted.unflatten(1, (-1, nodes))[:, steps]
        return {
            **columns,
            "carried": float((taken & ~alone).sum() / taken.sum().clamp(min=1)),
            "pass_rate_by_depth": join_rates(alone.double().mean((0, 1)).tolist()),
            "hit_rate_by_layer": join_rates(result.hit_rate_by_layer()),
        }

    for place in study.places():
        for nodes in NODES:
            for threshold in study.settings.finite:
                key = {**study.key(place), "nodes": nodes, "rule": RULE, "threshold": threshold}
                yield Cell(key, partial(measure, place, nodes, threshold))


# carried: the share of the outputs taken that would not pass by itself. pass_rate_by_depth: of outputs by themselves.
PARTS = {
    "perplexity": Part(perplexity, (*KEYS, "threshold"), (*COMPARED, *GUESSED, "seconds")),
    "baselines": Part(baselines, (*KEYS, "method", "parameter"), (*COMPARED, "layers", "seconds")),
    "divergence": Part(
        divergence, (*KEYS, "threshold"), ("new_tokens", "first_difference", "agreement", "hit_rate", "seconds")
    ),
    "chains": Part(
        chains,
        (*KEYS, "nodes", "rule", "threshold"),
        (*COMPARED, "carried", "pass_rate_by_depth", "hit_rate_by_layer", "seconds"),
    ),
    "trees": Part(trees.cells, (*KEYS, "nodes", "rule", "threshold"), trees.VALUES),
}
