# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""perf.studies.quality's rules for steps of several tokens: each against its formula, chains and trees."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.reference.alspec.acceptance import TREE_RULES
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.spec_decode.tree import TokenTree
from perf.studies.quality.forward import text_pass
from perf.studies.quality.tree_rules import RULES, StepSpeculation
from tests.support.attention_cases import random_tokens, tiny_config

TOKENS = 256
RANGE = GuessRange.both_ends(32)


@pytest.fixture(scope="module")
def tiny() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(), seed=4)


@pytest.mark.parametrize("rule", RULES)
def test_steps_of_one_token_are_plain_speculation(tiny, rule):
    ids = random_tokens(TOKENS, seed=6)
    reference = text_pass(tiny, ids, ALSpecAttention(0.5, RANGE))
    ours = text_pass(tiny, ids, StepSpeculation(0.5, RANGE, 1, rule))
    assert torch.equal(ours.accepted, reference.accepted) and 0 < ours.hit_rate() < 1
    torch.testing.assert_close(ours.states, reference.states, rtol=1e-4, atol=1e-4)


def test_each_rule_is_its_formula():
    draw = torch.Generator().manual_seed(1)
    exact = torch.randn((8, 6), generator=draw)
    guess = exact + 0.4 * torch.randn((8, 6), generator=draw) * torch.rand((8, 1), generator=draw)
    apart, size = (guess - exact).norm(dim=1), exact.norm(dim=1)
    threshold = 0.25
    alone = apart < threshold * size
    assert bool(alone.any()) and not bool(alone.all())
    for nodes in (2, 4):
        for rule in RULES:
            policy = StepSpeculation(threshold, RANGE, nodes, rule, [0, nodes - 1])
            for step in range(0, 8, nodes):
                mine = slice(step, step + nodes)
                path = [step, step + nodes - 1]
                wanted = {
                    "every node": bool(alone[mine].all()),
                    "joint": bool(apart[mine].norm() < threshold * size[mine].norm()),
                    "likeliest path": bool(apart[path].norm() < threshold * size[path].norm()),
                }
                decided = policy._decide(guess, exact)[mine]
                if rule == "each node":
                    assert torch.equal(decided, alone[mine])
                else:
                    assert decided.tolist() == [wanted[rule]] * nodes


@pytest.mark.parametrize("rule", ("every node", "joint", "likeliest path"))
def test_a_chain_as_a_tree_is_a_step_of_the_text(tiny, rule):
    """The last step of 8 tokens after the same cache: one tree, and the end of a text."""
    ids, start = random_tokens(TOKENS, seed=6), TOKENS - 8
    cache = tiny.new_cache(1, TOKENS)
    tiny.prefill([ids[:start]], cache)
    tree = StepSpeculation(0.6, RANGE, 8, rule, list(range(8)))
    chain = StepSpeculation(0.6, RANGE, 8, rule)
    last = torch.tensor([ids[start:]])
    ours = tiny.forward(last, cache, policy=tree, tree=TokenTree.chain(8), commit=False, logits="all")
    wanted = tiny.forward(last, cache, policy=chain, commit=False, logits="all")
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)
    assert torch.equal(tree.statistics.steps[0].accepted, chain.statistics.steps[0].accepted)


@pytest.mark.parametrize("rule", TREE_RULES)
@pytest.mark.parametrize("threshold", (0.6, 0.8))
def test_trees_are_decided_as_the_reference_decides_them(tiny, rule, threshold):
    """The two sum in another order: outputs agree to rounding."""
    ids, start = random_tokens(TOKENS, seed=6), 200
    tree, last = TokenTree.from_parents([-1, 0, 0, 1, 1, 2, 3, 6]), torch.tensor([random_tokens(8, seed=9)])
    found = []
    ours = StepSpeculation(threshold, RANGE, 8, rule, [0, 1, 3, 6, 7])
    for policy in (ours, ALSpecAttention(threshold, RANGE, tree_rule=rule)):
        cache = tiny.new_cache(1, TOKENS)
        tiny.prefill([ids[:start]], cache)
        found.append(tiny.forward(last, cache, policy=policy, tree=tree, commit=False, logits="all"))
        found.append(policy.statistics.steps[0].accepted)
    torch.testing.assert_close(found[0], found[2], rtol=1e-4, atol=1e-4)
    assert torch.equal(found[1], found[3]) and bool(found[1].any())


def test_threshold_0_is_exact(tiny):
    ids = random_tokens(TOKENS, seed=6)
    exact = text_pass(tiny, ids)
    ours = text_pass(tiny, ids, StepSpeculation(0.0, RANGE, 16, "joint"))
    assert ours.hit_rate() == 0
    torch.testing.assert_close(ours.states, exact.states, rtol=1e-4, atol=1e-4)


def test_what_is_no_step_is_refused(tiny):
    with pytest.raises(ValueError, match="rule must be one of joint, every node, likeliest path, each node, got 'all'"):
        StepSpeculation(0.1, RANGE, 4, "all")
    with pytest.raises(ValueError, match="10 tokens are no steps of 4"):
        tiny.forward(torch.tensor([[1] * 10]), tiny.new_cache(1, 16), policy=StepSpeculation(0.1, RANGE, 4, "joint"))
