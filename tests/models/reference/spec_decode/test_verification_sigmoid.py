# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The sigmoid approximation against the paper's equations, and how far it is from the target's
distribution."""

import math

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference.spec_decode.draft_verification import (
    SigmoidApproximation,
    verify_sigmoid,
)
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch

VOCAB = 8


def rand(*shape, seed):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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
        expected = paper_step(
            z_p[row].tolist(), z_q[row].tolist(), tokens[row, 1:].tolist(), uniforms[row].tolist(), *scale
        )
        assert (int(got.lengths[row]), int(got.bonus[row])) == expected, row
    assert 0 < int((got.lengths < gamma).sum()) < rows, "both outcomes must occur"


def test_it_says_that_it_is_lossy():
    messages = []
    sink = logger.add(messages.append, format="{level} {message}")
    SigmoidApproximation().announce()
    logger.remove(sink)
    assert len(messages) == 1 and "WARNING" in messages[0] and "LOSSY" in messages[0]


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


def test_greedy_and_draftless_use_are_refused():
    trees = TokenTreeBatch.shared(TokenTree.chain(2), 1)
    tokens, z, u = torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, 4), torch.rand(1, 2)
    with pytest.raises(ValueError, match="temperature above 0"):
        verify_sigmoid(trees, tokens, z, z, u, SamplingParams())
    with pytest.raises(ValueError, match="draft model's logits"):
        verify_sigmoid(trees, tokens, z, None, u, SamplingParams(1.0))
