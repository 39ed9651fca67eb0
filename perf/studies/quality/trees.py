# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation in steps that verify drafted trees: hits, and what is emitted, by tree size.

After a prefix of the long text, read exactly, the model drafts for itself over the first and last WINDOW tokens, as
`--draft self` does; one step verifies the tree, greedily. What it emits is compared with the exact step over the same
tree. What a budget's guess knows is from chains of ADVANCE tokens, the last KNOWN of the prefix: each is decided, and
goes on with the exact output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from models.llama31_8b.generation.sampling import Draws, SamplingParams
from models.llama31_8b.reference.alspec.policies import AttentionPolicy, ExactAttention
from models.llama31_8b.reference.generate import TorchEngine, self_drafter
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.spec_decode.draft_verification import DraftVerification, verify_greedy
from models.llama31_8b.spec_decode.draft_settings import DraftShape
from models.llama31_8b.spec_decode.tree import TokenTreeBatch

from .forward import text_pass
from .predictors import PredictedGuess
from .study import RULE, Cell, Place, Study, join_rates

# tokens_per_step: emitted, the bonus token included. exact_tokens_per_step: by exact attention over the same trees.
# divergence: KL(exact || speculating) of the next token after the root and each accepted node. loss: exact log
# probability of the likeliest token less that of the emitted one, nats per token. agreement: of the emitted tokens with
# the exact model's choices after the same nodes.
VALUES = (
    *("steps", "hit_rate", "tokens_per_step", "exact_tokens_per_step", "divergence", "loss", "agreement"),
    *("pass_rate_by_depth", "hit_rate_by_layer", "seconds"),
)
SHAPES = {4: DraftShape(3, 1, False, 4), 16: DraftShape(6, 4, True, 16), 64: DraftShape(10, 4, True, 64)}
WINDOW = 32
STEPS = 8  # of a window, every SPACING tokens up to its end
SPACING = 24
ROOM = 64  # of a step's nodes after the longest prefix
KNOWN = 256
ADVANCE = 4  # about what a step over a tree emits


class _Site(NamedTuple):
    """A drafted tree, its exact log probabilities [N, vocab] and what they emit."""

    trees: TokenTreeBatch
    tokens: torch.Tensor
    exact: torch.Tensor
    verified: DraftVerification


def cells(study: Study) -> Iterator[Cell]:
    """Yield a cell per place and number of nodes, with a row for each finite threshold above 0."""
    for place in study.places(ROOM + STEPS * SPACING):
        for nodes in SHAPES:
            yield Cell({**study.key(place), "nodes": nodes}, partial(_measure, study, place, nodes))


@torch.inference_mode()
def _measure(study: Study, place: Place, nodes: int) -> list[dict[str, object]]:
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
