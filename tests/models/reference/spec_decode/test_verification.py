# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exact verification keeps the target's distribution, on chains and trees; a wrong verifier is caught."""

import pytest
import torch
from loguru import logger
from scipy.stats import chisquare

from models.llama31_8b.generation.sampling import (
    SamplingParams,
    inverse_cdf,
    warp_logits,
)
from models.llama31_8b.reference.spec_decode import draft_verification as verification
from models.llama31_8b.reference.spec_decode.draft_verification import verify_exact, verify_greedy
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch, fixed_shape

VOCAB, DRAWS, ROOT = 8, 40_000, 3
SETTINGS = {
    "t1": SamplingParams(1.0),
    "t0.6-p0.9": SamplingParams(0.6, top_p=0.9),
    "t1.5-k5": SamplingParams(1.5, top_k=5),
}


def rand(*shape, seed):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def drawn_without_replacement(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Draw distinct tokens one after another, each from what the earlier ones leave: [n, vocab] and [n, count] ->
    int64 [n, count]; 0 where a row has run out of tokens, a filler that must never be accepted."""
    weights, drawn = probabilities.double().clone(), torch.zeros(uniforms.shape, dtype=torch.int64)
    for column in range(uniforms.shape[1]):
        rows = (weights.sum(-1) > 0).nonzero().flatten()
        if len(rows):
            drawn[rows, column] = inverse_cdf(weights[rows], uniforms[rows, column])
        weights[torch.arange(len(weights)), drawn[:, column]] = 0.0
    return drawn


def tables(params: SamplingParams, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Target and draft as Markov chains over the last token: two [VOCAB, VOCAB] tables of next-token distributions."""
    generator = torch.Generator().manual_seed(seed)
    target = 1.5 * torch.randn(VOCAB, VOCAB, generator=generator)
    draft = target + torch.randn(VOCAB, VOCAB, generator=generator)
    return warp_logits(target, params), warp_logits(draft, params)


def draft_tree(shape: TokenTree, q: torch.Tensor, kind: str, seed: int) -> tuple[TokenTreeBatch, torch.Tensor]:
    """DRAWS trees of one shape: children of every node drawn from q by `kind`. Returns trees and tokens."""
    trees = TokenTreeBatch.shared(shape, DRAWS)
    tokens = torch.full((DRAWS, len(shape)), ROOT)
    for node in range(len(shape)):
        children = (shape.parents == node).nonzero().flatten()
        if not len(children):
            continue
        distribution, uniforms = q[tokens[:, node]], rand(DRAWS, len(children), seed=seed * 100 + node)
        if kind == "distinct":
            drawn = drawn_without_replacement(distribution, uniforms)
        elif kind == "independent":
            drawn = torch.stack([inverse_cdf(distribution, uniforms[:, i]) for i in range(len(children))], dim=1)
        else:
            drawn = distribution.topk(len(children), dim=-1).indices
        tokens[:, children] = drawn
    return trees, tokens


def two_tokens(verified, tokens: torch.Tensor, p: torch.Tensor, seed: int) -> torch.Tensor:
    """The first two output tokens of every draw as one cell number; a second token the step did not yield is
    drawn from the target, as the next step would."""
    accepted = tokens.gather(1, verified.path.clamp(min=0))
    output = torch.cat([accepted, verified.bonus.unsqueeze(1)], dim=1)
    rows = torch.arange(len(output))
    output[rows, verified.lengths] = verified.bonus
    first = output[:, 0]
    drawn = inverse_cdf(p[first], rand(len(output), seed=seed)[:,])
    second = torch.where(verified.lengths >= 1, output[:, 1], drawn)
    return first * VOCAB + second


def p_value(cells: torch.Tensor, p: torch.Tensor) -> float:
    """Chi-squared of observed pairs against p(first | root) p(second | first)."""
    expected = (p[ROOT].double().unsqueeze(1) * p.double()).flatten()
    observed = torch.bincount(cells, minlength=VOCAB * VOCAB)
    if bool((observed[expected == 0] > 0).any()):
        return 0.0
    expected = expected / expected.sum() * len(cells)
    rare = expected < 10
    bins = [(observed[~rare], expected[~rare])]
    if bool(rare.any()) and float(expected[rare].sum()) > 0:
        bins.append((observed[rare].sum().reshape(1), expected[rare].sum().reshape(1)))
    return float(chisquare(*(torch.cat(v) for v in zip(*bins))).pvalue)


SHAPES = {
    "chain": TokenTree.chain(4),
    "star": TokenTree.from_parents([-1, 0, 0, 0]),
    "tree": fixed_shape(3, 3, 12).tree,
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", ["distinct", "independent", "top"])
@pytest.mark.parametrize("form", SHAPES)
def test_output_has_the_targets_distribution(form, kind, setting):
    p, q = tables(SETTINGS[setting])
    trees, tokens = draft_tree(SHAPES[form], q, kind, seed=1)
    verified = verify_exact(
        trees,
        tokens,
        p[tokens],
        None if kind == "top" else q[tokens],
        rand(*tokens.shape, seed=2),
        with_replacement=kind == "independent",
    )
    value = p_value(two_tokens(verified, tokens, p, seed=3), p)
    accepted = float(verified.lengths.double().mean())
    logger.info("{} {} {}: p = {:.3f}, {:.2f} tokens per step", form, kind, setting, value, 1 + accepted)
    assert accepted > 0.2, "the draft must matter for this test to mean anything"
    assert value > 1e-3


def test_siblings_beyond_the_drafts_support_are_skipped():
    """Top-p leaves the draft fewer tokens than the tree has siblings; the filler must never be accepted."""
    p, _ = tables(SETTINGS["t1"])
    _, q = tables(SamplingParams(0.5, top_p=0.5))
    assert int((q[ROOT] > 0).sum()) < 3
    trees, tokens = draft_tree(SHAPES["star"], q, "distinct", seed=1)
    verified = verify_exact(trees, tokens, p[tokens], q[tokens], rand(*tokens.shape, seed=2))
    assert p_value(two_tokens(verified, tokens, p, seed=3), p) > 1e-3


def test_siblings_raise_acceptance():
    p, q = tables(SETTINGS["t1"])
    rates = []
    for width in (1, 2, 4):
        trees, tokens = draft_tree(TokenTree.from_parents([-1] + [0] * width), q, "distinct", seed=1)
        verified = verify_exact(trees, tokens, p[tokens], q[tokens], rand(*tokens.shape, seed=2))
        rates.append(float(verified.lengths.double().mean()))
    # One child is accepted with probability sum(min(p, q)).
    assert rates[0] == pytest.approx(float(torch.minimum(p[ROOT], q[ROOT]).sum()), abs=0.01)
    assert rates[0] + 0.05 < rates[1] and rates[1] + 0.02 < rates[2]


def resamples_from_the_target(monkeypatch):
    """The commonest mistake: after a rejection, draw from p instead of norm(max(0, p - q))."""
    monkeypatch.setattr(verification, "_normalise", lambda weights, otherwise: otherwise)


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("mistake", ["resample-from-target", "wrong-draft-distribution", "ratio-for-point-mass"])
def test_wrong_verifiers_fail_the_same_test(form, mistake, monkeypatch):
    p, q = tables(SETTINGS["t1"])
    kind = "top" if mistake == "ratio-for-point-mass" else "distinct"
    trees, tokens = draft_tree(SHAPES[form], q, kind, seed=1)
    claimed = q
    if mistake == "resample-from-target":
        resamples_from_the_target(monkeypatch)
    elif mistake == "wrong-draft-distribution":
        claimed = warp_logits(q.log(), SamplingParams(0.8))
    verified = verify_exact(trees, tokens, p[tokens], claimed[tokens], rand(*tokens.shape, seed=2))
    assert p_value(two_tokens(verified, tokens, p, seed=3), p) < 1e-9


def test_distinct_siblings_checked_as_independent_ones_fail():
    p, q = tables(SETTINGS["t1"])
    trees, tokens = draft_tree(SHAPES["star"], q, "distinct", seed=1)
    uniforms = rand(*tokens.shape, seed=2)
    verified = verify_exact(trees, tokens, p[tokens], q[tokens], uniforms, with_replacement=True)
    assert p_value(two_tokens(verified, tokens, p, seed=3), p) < 1e-6


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("kind", ["distinct", "top"])
def test_greedy_is_exact_at_temperature_zero(form, kind):
    p, q = tables(SETTINGS["t1"], seed=9)
    one_hot = warp_logits(p.log(), SamplingParams())
    trees, tokens = draft_tree(SHAPES[form], q, kind, seed=1)
    uniforms = rand(*tokens.shape, seed=2)
    greedy = verify_greedy(trees, tokens, p.argmax(-1)[tokens])
    exact = verify_exact(trees, tokens, one_hot[tokens], None if kind == "top" else q[tokens], uniforms)
    for name in ("path", "lengths", "bonus"):
        assert torch.equal(getattr(greedy, name), getattr(exact, name)), name
    # And it is what one-by-one decoding does.
    token = torch.full((DRAWS,), ROOT)
    for step in range(greedy.path.shape[1] + 1):
        token = p.argmax(-1)[token]
        inside = greedy.lengths > step
        if bool(inside.any()):
            assert bool((tokens[inside, greedy.path[inside, step]] == token[inside]).all())
        at_end = greedy.lengths == step
        assert bool((greedy.bonus[at_end] == token[at_end]).all())


def test_a_user_is_verified_as_if_alone():
    p, q = tables(SETTINGS["t1"])
    shapes = [SHAPES["chain"], SHAPES["tree"], SHAPES["star"], TokenTree.chain(1)]
    trees = TokenTreeBatch.stack(shapes)
    tokens = torch.randint(0, VOCAB, (4, trees.width), generator=torch.Generator().manual_seed(1))
    uniforms = rand(4, trees.width, seed=2)
    together = verify_exact(trees, tokens, p[tokens], q[tokens], uniforms)
    for user, tree in enumerate(shapes):
        n = len(tree)
        one = tokens[user : user + 1, :n]
        alone = verify_exact(TokenTreeBatch.stack([tree]), one, p[one], q[one], uniforms[user : user + 1, :n])
        assert together.nodes(user) == alone.nodes(0) and together.bonus[user] == alone.bonus[0]
    assert together.lengths[3] == 0, "a lone root accepts nothing and still yields its bonus token"


def test_mismatched_shapes_are_refused():
    trees = TokenTreeBatch.shared(TokenTree.chain(3), 2)
    tokens, p = torch.zeros(2, 3, dtype=torch.int64), torch.full((2, 3, 4), 0.25)
    with pytest.raises(ValueError, match=r"target_probabilities.*\[2, 3\].*\[2, 2, 4\]"):
        verify_exact(trees, tokens, p[:, :2], None, torch.rand(2, 3))
    with pytest.raises(ValueError, match="uniforms"):
        verify_exact(trees, tokens, p, None, torch.rand(2, 2))
    with pytest.raises(ValueError, match="target_argmax"):
        verify_greedy(trees, tokens, torch.zeros(1, 3, dtype=torch.int64))
