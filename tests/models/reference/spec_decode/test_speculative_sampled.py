# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sampled speculative output has the target's distribution: the whole generation loop, cache and all, over real models
of eight tokens, chi-squared tests against the exact distribution of the next two tokens. The rule of acceptance alone,
on more draws: test_verification.py."""

from functools import lru_cache

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import generate, model_drafter
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.reference.spec_decode.draft_verification import verify_exact
from models.llama31_8b.spec_decode.draft_settings import DraftShape
from models.llama31_8b.spec_decode.drafters import NGramDrafter
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.models.spec_decode.speculation_models import p_value, rand

VOCAB, DRAWS, PROMPT = 8, 100_000, [3, 1, 4, 1, 5, 2, 6, 5]
CONFIG = LlamaConfig(VOCAB, 16, 24, 4, 2, 1, 8, 64)


@lru_cache
def model(name: str) -> ReferenceLlama:
    weights = random_state_dict(CONFIG, 0)
    if name == "draft":
        generator = torch.Generator().manual_seed(1)
        weights = {k: v * (1 + 0.12 * torch.randn(v.shape, generator=generator)) for k, v in weights.items()}
    return ReferenceLlama.from_state_dict(CONFIG, weights)


@lru_cache
def path_logits(name: str) -> list[torch.Tensor]:
    """Logits after the prompt and every path of 0, 1 and 2 tokens: [1, V], [V, V], [V * V, V]; path digits in
    base V."""
    llama, levels = model(name), []
    for depth in range(3):
        paths = torch.cartesian_prod(*[torch.arange(VOCAB)] * depth).reshape(-1, depth) if depth else None
        batch = 1 if paths is None else len(paths)
        cache = llama.new_cache(batch)
        logits = llama.prefill([PROMPT] * batch, cache)
        levels.append(logits if paths is None else llama.forward(paths, cache)[:, 0])
    return levels


def distributions(name: str, params: SamplingParams) -> list[torch.Tensor]:
    return [warp_logits(logits, params) for logits in path_logits(name)]


LOOPS = {
    "chain-fuzzy": (500, lambda: model_drafter(model("draft"), fuzzy=2), DraftShape(2)),
    "tree": (500, lambda: model_drafter(model("draft")), DraftShape(2, 2, budget=7)),
    "grown": (500, lambda: model_drafter(model("draft")), DraftShape(2, 3, grown=True, budget=6)),
    "ngram": (800, lambda: NGramDrafter(smallest=1), DraftShape(2, 2)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_whole_loop_keeps_the_distribution(name):
    """Three tokens a text: the first from prefill, the others from speculation; distribution of (first, second) and of
    (second, third)."""
    params = SamplingParams(1.0, top_p=0.95, seed=17)
    users, drafter, shape = LOOPS[name]
    prompts, request = [PROMPT] * users, {"max_new_tokens": 3, "sampling": params, "eos_token_ids": ()}
    result = generate(model("target"), prompts, drafter=drafter(), shape=shape, **request)
    texts = torch.tensor(result.token_ids)
    p = distributions("target", params)
    first_second = p[0][0].unsqueeze(1) * p[1]
    triples = first_second.unsqueeze(2) * p[2].view(VOCAB, VOCAB, VOCAB)
    values = (
        p_value(texts[:, 0] * VOCAB + texts[:, 1], first_second),
        p_value(texts[:, 1] * VOCAB + texts[:, 2], triples.sum(0)),
    )
    metrics = result.speculation
    logger.info("{}: p = {}, mean acceptance length {:.2f}", name, values, metrics.mean_acceptance_length)
    assert metrics.num_accepted_tokens > 0.1 * metrics.num_drafts
    assert min(values) > 1e-3


LONG_PROMPT = (PROMPT * 4)[:30]
GUESS, THRESHOLD = GuessRange(2, 2, 1), 0.8


def speculating(roots: torch.Tensor, drafted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distributions after the root and after each of its drafted children, [rows, 1 + children, V], in the target that
    speculates on attention; and its decisions, bool [layers, rows]. drafted: [rows, children]."""
    policy = ALSpecAttention(THRESHOLD, GUESS)
    cache = model("target").new_cache(len(roots))
    model("target").prefill([LONG_PROMPT] * len(roots), cache)
    trees = TokenTreeBatch.shared(TokenTree.from_parents([-1] + [0] * drafted.shape[1]), len(roots))
    tokens = torch.cat([roots[:, None], drafted], dim=1)
    logits = model("target").forward(tokens, cache, policy=policy, tree=trees, commit=False, logits="all")
    return warp_logits(logits, SamplingParams(1.0)), policy.statistics.steps[-1].accepted[:, :, 0]


def test_texts_have_the_distribution_of_the_speculating_target():
    """Which is a function of the text where drafts are: each token after a root is distributed as the target's that
    speculates on this very tree, and so is the one after an accepted draft. It is another target than the exact one.
    """
    users, width, params = 800, 3, SamplingParams(1.0, seed=70000)
    result = generate(
        model("target"),
        [LONG_PROMPT] * users,
        drafter=model_drafter(model("draft")),
        shape=DraftShape(1, width),
        policy=ALSpecAttention(THRESHOLD, GUESS),
        max_new_tokens=3,
        sampling=params,
        eos_token_ids=(),
    )
    texts = torch.tensor(result.token_ids)
    roots = torch.arange(VOCAB)
    cache = model("draft").new_cache(VOCAB)
    model("draft").prefill([LONG_PROMPT] * VOCAB, cache)
    drafted = model("draft").forward(roots[:, None], cache)[:, 0].topk(width).indices
    found, accepted = speculating(roots, drafted)
    exact = model("target").new_cache(VOCAB)
    first = warp_logits(model("target").prefill([LONG_PROMPT] * VOCAB, exact)[:1], params)[0]
    plain = warp_logits(model("target").forward(roots[:, None], exact)[:, 0], params)
    user, child = (texts[:, 1:2] == drafted[texts[:, 0]]).nonzero(as_tuple=True)  # whose draft was accepted, and which
    after = first[:, None] * found[:, 0].gather(1, drafted)  # that a root comes and a draft is accepted
    third = p_value((texts[user, 0] * width + child) * VOCAB + texts[user, 2], after[:, :, None] * found[:, 1:])
    second = [p_value(texts[:, 0] * VOCAB + texts[:, 1], first[:, None] * p) for p in (found[:, 0], plain)]
    logger.info("accepted {} of {}; p = {}, {}, exact target {}", len(user), users, second[0], third, second[1])
    assert 0 < accepted.double().mean() < 1 and len(user) > users / 20
    assert second[0] > 1e-3 and third > 1e-3 and second[1] < 1e-4


def test_drawn_drafts_are_verified_by_what_speculates_on_them():
    """The target's distribution then varies with what was drawn, and a token comes by acceptance from the draft that
    is this token, by rejection from any other: its probability is summed over all drafts. No target that speculates on
    one of the drafts has this distribution."""
    root, q = 3, distributions("draft", SamplingParams(1.0))[1][3].double()
    every = torch.arange(VOCAB)
    p = speculating(torch.full((VOCAB,), root), every[:, None])[0].double()
    kept = torch.minimum(q, p[every, 0, every])
    residual = (p[:, 0] - q).clamp(min=0)
    expected = kept + ((q - kept)[:, None] * residual / residual.sum(1, keepdim=True)).sum(0)
    drafts = inverse_cdf(q.float().expand(DRAWS, -1), rand(DRAWS, seed=1))
    tokens = torch.stack([torch.full((DRAWS,), root), drafts], dim=1)
    chain = TokenTreeBatch.shared(TokenTree.chain(2), DRAWS)
    rows = q.expand(DRAWS, 2, -1).clone()
    verified = verify_exact(chain, tokens, p[drafts], rows, rand(DRAWS, 2, seed=2))
    output = torch.where(verified.lengths > 0, drafts, verified.bonus)
    value, of_one = p_value(output, expected), max(p_value(output, p[draft, 0]) for draft in range(VOCAB))
    logger.info("p = {}, of the likeliest single draft {}", value, of_one)
    assert value > 1e-3 and of_one < 1e-6
