# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a run measures, part by part: each yields cells, whose rows go to one CSV file.

- perplexity: loss, divergence and hits of a long text (ALSpec paper, section 5.1 and table 1's rows).
- baselines: the static policies of the paper's section 2, as many guesses taken as by attention-level speculation.
- divergence: how many greedy tokens until the text first differs from that of exact attention.
- chains: steps that verify N tokens at once: the text cut into chains of N, every token right.
- trees: steps that verify drafted trees: hits, and what is emitted, by tree size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from models.llama31_8b.generation.sampling import Draws, SamplingParams
from models.llama31_8b.reference.alspec.policies import AttentionPolicy, ExactAttention, SinkAttention, StaticAttention
from models.llama31_8b.reference.generate import TorchEngine, generate, self_drafter
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.spec_decode.draft_verification import DraftVerification, verify_greedy
from models.llama31_8b.spec_decode.draft_settings import DraftShape
from models.llama31_8b.spec_decode.tree import TokenTreeBatch

from .forward import COMPARED, text_pass
from .predictors import PredictedGuess
from .study import GUESSED, RULE, Cell, Place, Study, join_rates


class Part(NamedTuple):
    """What a part measures, and the columns of its file besides KEYS and `seconds`."""

    cells: Callable[[Study], Iterator[Cell]]
    key: tuple[str, ...]
    values: tuple[str, ...]


def perplexity(study: Study) -> Iterator[Cell]:
    """Yield a cell per place and threshold, contexts in the outer loop: each has one exact pass."""
    for place, threshold in product(study.places(), study.settings.thresholds):
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
    for place, threshold in product(study.places(room=settings.new_tokens), settings.thresholds):
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

    for place, nodes, threshold in product(study.places(), NODES, study.settings.finite):
        key = {**study.key(place), "nodes": nodes, "rule": RULE, "threshold": threshold}
        yield Cell(key, partial(measure, place, nodes, threshold))


SHAPES = {4: DraftShape(3, 1, False, 4), 16: DraftShape(6, 4, True, 16), 64: DraftShape(10, 4, True, 64)}
WINDOW = 32
STEPS = 8  # of a window, every SPACING tokens up to its end
SPACING = 24
ROOM = 64  # of a step's nodes after the longest prefix
KNOWN = 256
ADVANCE = 4  # about what a step over a tree emits


def trees(study: Study) -> Iterator[Cell]:
    """Yield a cell per place and number of nodes, with a row for each finite threshold above 0.

    After a prefix of the long text, read exactly, the model drafts for itself over the first and last WINDOW tokens, as
    `--draft self` does; one step verifies the tree, greedily. What it emits is compared with the exact step over the
    same tree. What a budget's guess knows is from chains of ADVANCE tokens, the last KNOWN of the prefix: each is
    decided, and goes on with the exact output.
    """
    for place, nodes in product(study.places(ROOM + STEPS * SPACING), SHAPES):
        yield Cell({**study.key(place), "nodes": nodes}, partial(_drafted, study, place, nodes))


class _Site(NamedTuple):
    """A drafted tree, its exact log probabilities [N, vocab] and what they emit."""

    trees: TokenTreeBatch
    tokens: torch.Tensor
    exact: torch.Tensor
    verified: DraftVerification


@torch.inference_mode()
def _drafted(study: Study, place: Place, nodes: int) -> list[dict[str, object]]:
    model, context, window = study.loaded.model, place.context, study.window(place.context, place.start)
    cache = model.new_cache(1, context)
    model.prefill([window[: context - ROOM]], cache)
    steps: dict[float, list[dict[str, Any]]] = {threshold: [] for threshold in study.settings.finite}
    for index in range(STEPS):
        length = context - ROOM - index * SPACING  # descending: what a step writes is after every later prefix
        cache.truncate(length)
        site = _site(study, window[: length + 1], cache, SHAPES[nodes])
        for threshold, found in steps.items():
            policy = study.settings.in_steps(threshold, place.chunk_size, place.predictor, site.trees.width)
            if policy.guess_range.budget is not None:
                known = min(KNOWN, length // ADVANCE * ADVANCE)
                _learn(model, cache, window[length - known : length], policy)
            found.append(_step(model, cache, site, policy))
    return [{"rule": RULE, "threshold": threshold, **_row(found)} for threshold, found in steps.items()]


def _learn(model: ReferenceLlama, cache: KVCache, ids: list[int], policy: PredictedGuess) -> None:
    """Have `policy` pass over the last tokens of the cache, `ids`, in chains whose outputs are exact."""
    cache.truncate(int(cache.lengths[0]) - len(ids))
    nodes, how = policy.nodes, policy.predictor
    policy.nodes, policy.predictor = ADVANCE, replace(how, exact=True)
    text_pass(model, ids, policy, cache=cache)
    policy.nodes, policy.predictor = nodes, how
    policy.passed.clear()


def _site(study: Study, ids: list[int], cache: KVCache, shape: DraftShape) -> _Site:
    """Draft after all of the ids but the last, which is the root and not in the cache."""
    engine, drafter = TorchEngine(study.loaded.model), self_drafter(study.loaded.model, WINDOW)
    engine.cache = cache
    drafter.begin(engine, shape)
    draft = drafter.draft({0: ids}, {0: len(ids) - 1}, shape, Draws(SamplingParams(), []))
    cache.truncate(len(ids) - 1)
    trees, tokens = TokenTreeBatch.stack([draft.trees[0]]), torch.tensor([draft.tokens[0]])
    exact = _scores(study.loaded.model, cache, trees, tokens, ExactAttention())
    return _Site(trees, tokens, exact, verify_greedy(trees, tokens, exact.argmax(-1)[None]))


def _scores(
    model: ReferenceLlama, cache: KVCache, trees: TokenTreeBatch, tokens: torch.Tensor, policy: AttentionPolicy
) -> torch.Tensor:
    logits = model.forward(tokens, cache, policy=policy, tree=trees, commit=False, logits="all")
    assert isinstance(logits, torch.Tensor)
    return F.log_softmax(logits[0], dim=-1)


def _step(model: ReferenceLlama, cache: KVCache, site: _Site, policy: PredictedGuess) -> dict[str, Any]:
    """Return hits [layers], pass rates alone and depths [N], and sums over the tokens that the step emits."""
    scores = _scores(model, cache, site.trees, site.tokens, policy)
    verified = verify_greedy(site.trees, site.tokens, scores.argmax(-1)[None])
    nodes = [0, *verified.nodes(0)]
    emitted = torch.cat((site.tokens[0, nodes[1:]], verified.bonus))
    exact = site.exact[nodes]
    return {
        "hits": policy.statistics.steps[-1].accepted[:, 0].double().mean(1),
        "passed": torch.cat(policy.passed).double().mean(0),
        "depth": site.trees.depth[0],
        "emitted": len(nodes),
        "exact_emitted": 1 + int(site.verified.lengths[0]),
        "divergence": float(F.kl_div(scores[nodes], exact, log_target=True, reduction="sum")),
        "loss": float((exact.amax(-1) - exact.gather(1, emitted[:, None])[:, 0]).sum()),
        "agreement": int((exact.argmax(-1) == emitted).sum()),
    }


def _row(steps: list[dict[str, Any]]) -> dict[str, object]:
    """Average the steps of a window; of what is emitted, over tokens."""
    emitted, exact_emitted = (sum(step[name] for step in steps) for name in ("emitted", "exact_emitted"))
    by_layer = torch.stack([step["hits"] for step in steps]).mean(0)
    passed, depth = (torch.cat([step[name] for step in steps]) for name in ("passed", "depth"))
    return {
        "steps": len(steps),
        "hit_rate": float(by_layer.mean()),
        "tokens_per_step": emitted / len(steps),
        "exact_tokens_per_step": exact_emitted / len(steps),
        **{name: sum(step[name] for step in steps) / emitted for name in ("divergence", "loss", "agreement")},
        "pass_rate_by_depth": join_rates([float(passed[depth == d].mean()) for d in range(int(depth.max()) + 1)]),
        "hit_rate_by_layer": join_rates(by_layer.tolist()),
    }


# tokens_per_step: emitted, the bonus token included. exact_tokens_per_step: by exact attention over the same trees.
# divergence: KL(exact || speculating) of the next token after the root and each accepted node. loss: exact log
# probability of the likeliest token less that of the emitted one, nats per token. agreement: of the emitted tokens with
# the exact model's choices after the same nodes.
# carried: the share of the outputs taken that would not pass by itself. pass_rate_by_depth: of outputs by themselves.
OF_STEPS = ("nodes", "rule", "threshold")
PARTS = {
    "perplexity": Part(perplexity, ("threshold",), (*COMPARED, *GUESSED)),
    "baselines": Part(baselines, ("method", "parameter"), (*COMPARED, "layers")),
    "divergence": Part(divergence, ("threshold",), ("new_tokens", "first_difference", "agreement", "hit_rate")),
    "chains": Part(chains, OF_STEPS, (*COMPARED, "carried", "pass_rate_by_depth", "hit_rate_by_layer")),
    "trees": Part(
        trees,
        OF_STEPS,
        (
            *("steps", "hit_rate", "tokens_per_step", "exact_tokens_per_step", "divergence", "loss", "agreement"),
            *("pass_rate_by_depth", "hit_rate_by_layer"),
        ),
    ),
}
