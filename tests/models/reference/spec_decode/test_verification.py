# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exact verification keeps the target's distribution, on chains and trees; tests/mutations has wrong verifiers.
The sigmoid approximation against the paper's equations."""

import math

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams, SigmoidApproximation, inverse_cdf, warp_logits
from models.llama31_8b.reference.spec_decode.draft_verification import verify_exact, verify_greedy, verify_sigmoid
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch, fixed_shape
from tests.models.spec_decode.speculation_models import p_value, rand

VOCAB, DRAWS, ROOT = 8, 40_000, 3
SETTINGS = {
    "t1": SamplingParams(1.0),
    "t0.6-p0.9": SamplingParams(0.6, top_p=0.9),
    "t1.5-k5": SamplingParams(1.5, top_k=5),
}


def tables(params: SamplingParams, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Target and draft as Markov chains over the last token: two [VOCAB, VOCAB] tables of next-token distributions."""
    generator = torch.Generator().manual_seed(seed)
    target = 1.5 * torch.randn(VOCAB, VOCAB, generator=generator)
    draft = target + torch.randn(VOCAB, VOCAB, generator=generator)
    return warp_logits(target, params), warp_logits(draft, params)


def draft_tree(shape: TokenTree, q: torch.Tensor, kind: str) -> tuple[TokenTreeBatch, torch.Tensor]:
    """DRAWS trees of one shape: children of every node drawn from q by `kind`, of "distinct" ones without replacement;
    where q has too few, tokens that it never gives fill up. Returns trees and tokens."""
    generator = torch.Generator().manual_seed(100)
    trees = TokenTreeBatch.shared(shape, DRAWS)
    tokens = torch.full((DRAWS, len(shape)), ROOT)
    for node in range(len(shape)):
        children = (shape.parents == node).nonzero().flatten()
        if not len(children):
            continue
        distribution = q[tokens[:, node]]
        if kind == "distinct":
            tokens[:, children] = distribution.double().multinomial(len(children), generator=generator)
        else:
            tokens[:, children] = distribution.topk(len(children), dim=-1).indices
    return trees, tokens


def verified_by(shape: TokenTree, p: torch.Tensor, q: torch.Tensor, kind: str = "distinct"):
    """Return an exact verification of DRAWS trees, and the p value of the first two output tokens, of which the second
    is drawn from the target, as the next step would, where this one did not yield it."""
    trees, tokens = draft_tree(shape, q, kind)
    drawn_from = None if kind == "top" else q[tokens]
    verified = verify_exact(trees, tokens, p[tokens], drawn_from, rand(*tokens.shape, seed=2))
    accepted = tokens.gather(1, verified.path.clamp(min=0))
    output = torch.cat([accepted, verified.bonus.unsqueeze(1)], dim=1)
    output[torch.arange(DRAWS), verified.lengths] = verified.bonus
    first = output[:, 0]
    second = torch.where(verified.lengths >= 1, output[:, 1], inverse_cdf(p[first], rand(DRAWS, seed=3)))
    return verified, p_value(first * VOCAB + second, p[ROOT].double().unsqueeze(1) * p.double())


SHAPES = {
    "chain": TokenTree.chain(4),
    "star": TokenTree.from_parents([-1, 0, 0, 0]),
    "tree": fixed_shape(3, 3, 12).tree,
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", ["distinct", "top"])
@pytest.mark.parametrize("form", SHAPES)
def test_output_has_the_targets_distribution(form, kind, setting):
    p, q = tables(SETTINGS[setting])
    verified, value = verified_by(SHAPES[form], p, q, kind)
    accepted = float(verified.lengths.double().mean())
    logger.info("{} {} {}: p = {:.3f}, {:.2f} tokens per step", form, kind, setting, value, 1 + accepted)
    assert accepted > 0.2, "the draft must matter for this test to mean anything"
    assert value > 1e-3


def test_siblings_beyond_the_drafts_support_are_skipped():
    """Top-p leaves the draft fewer tokens than the tree has siblings; the filler must never be accepted."""
    p, _ = tables(SETTINGS["t1"])
    _, q = tables(SamplingParams(0.5, top_p=0.5))
    assert int((q[ROOT] > 0).sum()) < 3
    assert verified_by(SHAPES["star"], p, q)[1] > 1e-3


def test_siblings_raise_acceptance():
    p, q = tables(SETTINGS["t1"])
    stars = (TokenTree.from_parents([-1] + [0] * width) for width in (1, 2, 4))
    rates = [float(verified_by(star, p, q)[0].lengths.double().mean()) for star in stars]
    # One child is accepted with probability sum(min(p, q)).
    assert rates[0] == pytest.approx(float(torch.minimum(p[ROOT], q[ROOT]).sum()), abs=0.01)
    assert rates[0] + 0.05 < rates[1] and rates[1] + 0.02 < rates[2]


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("kind", ["distinct", "top"])
def test_greedy_is_exact_at_temperature_zero(form, kind):
    p, q = tables(SETTINGS["t1"], seed=9)
    one_hot = warp_logits(p.log(), SamplingParams())
    trees, tokens = draft_tree(SHAPES[form], q, kind)
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


def paper_step(z_p, z_q, drafted, uniforms, alpha, beta):
    """Equations 1 to 3 and 5 for one chain in plain floats. z_p: gamma + 1 rows, z_q: gamma rows of logits;
    uniforms: one for the last draw, then one a drafted token. Returns (number accepted, last token)."""

    def hat(z):
        return [1.0 / (1.0 + math.exp(-((v - alpha) / (beta - alpha)))) for v in z]

    def draw(weights, u):
        goal, total = u * sum(weights), 0.0
        for token, weight in enumerate(weights):
            total += weight
            if total > goal:
                return token
        return max(t for t, w in enumerate(weights) if w > 0)

    def softmax(z):
        top = max(z)
        e = [math.exp(v - top) for v in z]
        return [v / sum(e) for v in e]

    for c, token in enumerate(drafted):
        p_hat, q_hat = hat(z_p[c]), hat(z_q[c])
        tau = min(1.0, p_hat[token] / q_hat[token])
        if uniforms[c + 1] > tau:
            a = [max(0.0, p - q) for p, q in zip(p_hat, q_hat)]
            return c, draw(a if sum(a) > 0 else softmax(z_p[c]), uniforms[0])
    return len(drafted), draw(softmax(z_p[len(drafted)]), uniforms[0])


@pytest.mark.parametrize("scale", [(-1e3, 1e3), (-1e4, 1e4), (-1.0, 1.0), (-3.0, 8.0)])
def test_matches_the_papers_equations(scale):
    rows, gamma = 400, 3
    generator = torch.Generator().manual_seed(1)
    z_p = 6 * torch.randn(rows, gamma + 1, VOCAB, generator=generator)
    z_q = z_p + 4 * torch.randn(rows, gamma + 1, VOCAB, generator=generator)
    tokens = torch.randint(0, VOCAB, (rows, gamma + 1), generator=generator)
    uniforms = rand(rows, gamma + 1, seed=2)
    # Half of the rows get uniforms close to 1, where wide scales reject at all.
    uniforms[::2, 1:] = 1 - uniforms[::2, 1:] * 4 / (scale[1] - scale[0])
    trees = TokenTreeBatch.shared(TokenTree.chain(gamma + 1), rows)
    got = verify_sigmoid(trees, tokens, z_p, z_q, uniforms, SamplingParams(1.0), SigmoidApproximation(*scale))
    for row in range(rows):
        given = (part.tolist() for part in (z_p[row], z_q[row], tokens[row, 1:], uniforms[row]))
        expected = paper_step(*given, *scale)
        assert (int(got.lengths[row]), int(got.bonus[row])) == expected, row
    assert 0 < int((got.lengths < gamma).sum()) < rows, "both outcomes must occur"


def test_siblings_are_tried_in_turn():
    params, trees = SamplingParams(1.0), TokenTreeBatch.shared(TokenTree.from_parents([-1, 0, 0]), 1)
    z_p, z_q = torch.zeros(1, 3, 3), torch.zeros(1, 3, 3)
    z_p[0, 0], z_q[0, 0] = torch.tensor([-500.0, 500.0, 0.0]), torch.tensor([500.0, -500.0, 0.0])
    tokens = torch.tensor([[0, 0, 1]])
    verified = verify_sigmoid(trees, tokens, z_p, z_q, torch.tensor([[0.5, 0.999, 0.999]]), params)
    assert verified.nodes(0) == [2]
    rejected = verify_sigmoid(trees, tokens * 0, z_p, z_q, torch.tensor([[0.5, 0.999, 0.999]]), params)
    assert rejected.nodes(0) == [] and int(rejected.bonus) == 1


def test_what_the_warpers_leave_out_stays_out():
    params = SamplingParams(1.0, top_k=2)
    trees = TokenTreeBatch.shared(TokenTree.chain(2), 500)
    z = torch.tensor([3.0, 2.0, 1.0, 0.0]).expand(500, 2, -1)
    tokens = torch.full((500, 2), 2)
    verified = verify_sigmoid(trees, tokens, z, z, rand(500, 2, seed=1) * 0.99 + 0.005, params)
    reached = torch.where(verified.lengths > 0, tokens[:, 1], verified.bonus)
    assert set(verified.bonus.tolist()) <= {0, 1}
    assert set(reached.tolist()) <= {0, 1, 2}


@pytest.mark.parametrize("scale", [(0.0, 1.0), (-1.0, 0.0), (1.0, -1.0)])
def test_bad_scales_are_refused(scale):
    with pytest.raises(ValueError, match="alpha < 0 < beta"):
        SigmoidApproximation(*scale)
