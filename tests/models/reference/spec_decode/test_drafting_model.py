# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Model drafts: bonus calibration, drift without it, cache bookkeeping, and that q is the distribution of the
tokens."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams, make_generators, warp_logits
from models.llama31_8b.reference.alspec.policies import SinkAttention
from models.llama31_8b.reference.spec_decode.draft_verification import verify_greedy
from models.llama31_8b.reference.spec_decode.model_drafter import ModelDrafter, SelfDrafter
from models.llama31_8b.spec_decode.draft_shape import DraftShape
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.support import speculation_models as small

SHAPES = {
    "chain": DraftShape(4),
    "tree": DraftShape(3, 2, budget=12),
    "grown": DraftShape(3, 2, grown=True, budget=8),
}
PROMPTS = [small.prompts(1, n, seed=n)[0] for n in (20, 33, 27)]


def entries(cache, user, length):
    return [e[user, :, :length] for e in (*cache.keys, *cache.values)]


def deviation(cache, sequential, user, length):
    """Largest relative error over the entries of one user."""
    return max(
        float((a - b).norm() / b.norm())
        for a, b in zip(entries(cache, user, length), entries(sequential, user, length))
    )


def iterate(drafter, rounds=6, seed=0, sampling=SamplingParams(), accept_rate=0.7):
    """Draft-and-accept rounds with made-up targets, yielding after every draft the drafter's cache beside the
    cache of a sequential pass over what was decided. Acceptance is random but real: paths of the drafted
    tree."""
    generator = torch.Generator().manual_seed(seed)
    users = list(range(len(PROMPTS)))
    drafter.start(PROMPTS, None, sampling, make_generators(sampling, 3), 200)
    texts = [list(p) for p in PROMPTS]
    committed = [[int(torch.randint(0, 64, (1,), generator=generator))] for _ in users]
    for _ in range(rounds):
        for text, tokens in zip(texts, committed):
            text += tokens
        draft = drafter.draft(users, committed, drafter.shape)
        sequential = drafter.model.new_cache(3, 200)
        drafter.model.prefill(texts, sequential)
        yield draft, sequential, texts
        # The target's choice after each node: often one of the node's children, else something else.
        chosen = torch.randint(0, 64, draft.tokens.shape, generator=generator)
        for user in users:
            for node in range(draft.trees.width):
                child = int(draft.trees.first_child[user, node])
                if child >= 0 and float(torch.rand(1, generator=generator)) < accept_rate:
                    sibling = int(draft.trees.next_sibling[user, child])
                    chosen[user, node] = draft.tokens[user, sibling if sibling >= 0 else child]
        verified = verify_greedy(draft.trees, draft.tokens, chosen)
        drafter.accept(users, verified)
        committed = [[*draft.tokens[user, verified.nodes(user)].tolist(), int(verified.bonus[user])] for user in users]


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("fuzzy", [None, 2, 4, [[0, 1, 2], [3], [4, 5]]], ids=["sequential", "2", "4", "custom"])
def test_draft_cache_is_that_of_a_sequential_pass(form, fuzzy):
    drafter = ModelDrafter(small.resembling(0.1), SHAPES[form], fuzzy=fuzzy)
    worst, different = 0.0, set()
    for _, sequential, texts in iterate(drafter):
        lengths = [len(text) for text in texts]
        different.add(tuple(b - a for a, b in zip(lengths, lengths[1:])))
        for user, length in enumerate(lengths):
            worst = max(worst, deviation(drafter.cache, sequential, user, length))
    logger.info("{} fuzzy {}: largest relative error of the draft cache {:.2e}", form, fuzzy, worst)
    assert worst < 1e-5
    assert len(different) > 2, "users must accept different numbers of tokens"


@pytest.mark.parametrize("form", SHAPES)
def test_without_calibration_the_cache_drifts(form):
    drafter = ModelDrafter(small.resembling(0.1), SHAPES[form], fuzzy=4, calibrate=False)
    drift = []
    for _, sequential, texts in iterate(drafter, rounds=8):
        drift.append(max(deviation(drafter.cache, sequential, user, len(text)) for user, text in enumerate(texts)))
    logger.info(
        "{}: relative error of the uncalibrated draft cache by iteration {}",
        form,
        [f"{d:.3f}" for d in drift],
    )
    assert drift[0] < 1e-5, "nothing fuzzy has been kept yet"
    assert drift[-1] > 0.02 and drift[-1] > 1000 * drift[0]


def test_fuzzy_passes_do_change_the_draft():
    """So that the calibration tests compare something."""
    sequential = next(
        iterate(ModelDrafter(small.resembling(0.1), DraftShape(6), sampled=True), sampling=SamplingParams(1.0))
    )[0]
    fuzzy = next(
        iterate(
            ModelDrafter(small.resembling(0.1), DraftShape(6), fuzzy=4, sampled=True),
            sampling=SamplingParams(1.0),
        )
    )[0]
    assert torch.allclose(sequential.probabilities[:, 0], fuzzy.probabilities[:, 0], atol=1e-6), "first token is exact"
    assert not torch.allclose(sequential.probabilities[:, 1], fuzzy.probabilities[:, 1], atol=1e-3)


@pytest.mark.parametrize("fuzzy", [None, 3])
@pytest.mark.parametrize("form", ["chain", "tree"])
def test_draft_distributions_are_those_of_the_drafted_paths(form, fuzzy):
    """Row i of the probabilities is what the draft model, run along the path to node i, says: what exactness
    needs."""
    sampling = SamplingParams(0.8, top_p=0.95)
    drafter = ModelDrafter(small.resembling(0.1), SHAPES[form], fuzzy=fuzzy, sampled=True)
    for draft, sequential, texts in iterate(drafter, rounds=3, sampling=sampling):
        tree = TokenTree.from_parents(draft.trees.parents[0])
        for user, text in enumerate(texts):
            for node in range(len(tree)):
                if draft.trees.first_child[user, node] < 0:
                    continue
                path = tree.path(node)
                cache = drafter.model.new_cache(1, 200)
                logits = drafter.model.prefill([text], cache)
                for step in path[1:]:
                    token = draft.tokens[user, step].reshape(1, 1)
                    logits = drafter.model.forward(token, cache, layer_groups=drafter.layer_groups)[:, 0]
                expected = warp_logits(logits[0], sampling)
                torch.testing.assert_close(draft.probabilities[user, node], expected, atol=2e-5, rtol=1e-3)
                children = [c for c in range(len(tree)) if tree.parents[c] == node]
                drawn = draft.tokens[user, children].tolist()
                support = int((expected > 0).sum())
                assert len(set(drawn[:support])) == len(drawn[:support]), "siblings are distinct"


def test_most_probable_children_come_first():
    drafter = ModelDrafter(small.resembling(0.1), DraftShape(2, 3, budget=13))
    draft, sequential, texts = next(iterate(drafter))
    assert draft.probabilities is None
    for user, text in enumerate(texts):
        cache = drafter.model.new_cache(1, 200)
        logits = drafter.model.prefill([text], cache)
        assert draft.tokens[user, 1:4].tolist() == logits[0].topk(3).indices.tolist()
        logits = drafter.model.forward(draft.tokens[user, 2].reshape(1, 1), cache)[0, 0]
        assert draft.tokens[user, 7:10].tolist() == logits.topk(3).indices.tolist()


@pytest.mark.parametrize("form", SHAPES)
def test_raw_logits_are_kept_on_request(form):
    drafter = ModelDrafter(small.resembling(0.1), SHAPES[form])
    generators = make_generators(SamplingParams(), 3)
    drafter.start(PROMPTS, None, SamplingParams(), generators, 200, keep_logits=True)
    draft = drafter.draft([0, 1, 2], [[1], [2], [3]], drafter.shape)
    for user in range(3):
        cache = drafter.model.new_cache(1, 200)
        logits = drafter.model.prefill([[*PROMPTS[user], user + 1]], cache)
        torch.testing.assert_close(draft.logits[user, 0], logits[0], atol=1e-4, rtol=1e-4)
        child = int(draft.trees.first_child[user, 0])
        if int(draft.trees.first_child[user, child]) >= 0:
            logits = drafter.model.forward(draft.tokens[user, child].reshape(1, 1), cache)[0, 0]
            torch.testing.assert_close(draft.logits[user, child], logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("form", SHAPES)
def test_self_draft_leaves_the_targets_cache_as_it_was(form):
    model = small.target()
    texts = small.prompts(2, 100, seed=4)
    cache = model.new_cache(2, 160)
    model.prefill(texts, cache)
    before = cache.clone()
    drafter = SelfDrafter(model, SHAPES[form], window=32, fuzzy=2)
    drafter.start(texts, cache, SamplingParams(), make_generators(SamplingParams(), 2), 160)
    draft = drafter.draft([0, 1], [[5], [6]], drafter.shape)
    assert torch.equal(cache.lengths, before.lengths)
    for user in range(2):
        assert all(torch.equal(a, b) for a, b in zip(entries(cache, user, 100), entries(before, user, 100)))
        # The first candidate is the target's own choice over the first and last 32 positions.
        logits = model.forward(torch.tensor([[5 + user]]), before.user(user), policy=SinkAttention(32), commit=False)
        assert int(draft.tokens[user, 1]) == int(logits.argmax())
        exact = model.forward(torch.tensor([[5 + user]]), before.user(user), commit=False)
        assert not torch.allclose(logits, exact, atol=1e-3), "the window must matter here"


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_tree_written_level_by_level_is_the_tree_written_at_once(levels):
    """The model's forward with more tree nodes than tokens, which tree drafting rests on."""
    model = small.target()
    tree = TokenTree.from_parents([-1, 0, 0, 1, 1, 2, 3, 3, 5])
    trees, tokens = TokenTreeBatch.shared(tree, 2), torch.tensor(small.prompts(2, 9, seed=8))
    cache = model.new_cache(2, 64)
    model.prefill(small.prompts(2, 30), cache)
    together = model.forward(tokens, cache, tree=trees, commit=False, logits="all")
    bounds = {1: [0, 9], 2: [0, 4, 9], 3: [0, 1, 3, 9]}[levels]
    parts = []
    for first, last in zip(bounds, bounds[1:]):
        seen = TokenTreeBatch(
            trees.parents[:, :last],
            trees.enter[:, :last],
            trees.leave[:, :last],
            trees.depth[:, :last],
            trees.counts,
        )
        parts.append(model.forward(tokens[:, first:last], cache, tree=seen, commit=False, logits="all"))
    torch.testing.assert_close(torch.cat(parts, 1), together, atol=1e-5, rtol=1e-5)
    chain = model.forward(tokens[:, tree.path(6)], cache, commit=False, logits="all")
    torch.testing.assert_close(together[:, tree.path(6)], chain, atol=1e-5, rtol=1e-5)
