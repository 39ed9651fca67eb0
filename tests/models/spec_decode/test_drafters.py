# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What drafters draft, over models in torch: n-gram look-up, bonus calibration, and that logits are those that tokens
were drawn from. Each call names positions; nothing else is kept between calls."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger

from models.llama31_8b.generation.sampling import Draws, SamplingParams, make_generators
from models.llama31_8b.reference.alspec.policies import SinkAttention
from models.llama31_8b.reference.generate import TorchEngine, model_drafter, self_drafter
from models.llama31_8b.spec_decode.draft_settings import DraftShape
from models.llama31_8b.spec_decode.drafters import NGramDrafter, continuations
from tests.models.spec_decode import speculation_models as small

SHAPES = {
    "chain": DraftShape(4),
    "tree": DraftShape(3, 2, budget=12),
    "grown": DraftShape(3, 2, grown=True, budget=8),
}
PROMPTS = [small.prompts(1, n, seed=n)[0] for n in (20, 33, 27)]
GREEDY = SamplingParams()


def draws(sampling=GREEDY, users=3) -> Draws:
    return Draws(sampling, make_generators(sampling, users))


def entries(cache, user, length):
    return [e[user, :, :length] for e in (*cache.keys, *cache.values)]


def iterate(drafter, shape, rounds=6, sampling=GREEDY):
    """Draft rounds over texts that go on by random tokens, by a number of them that differs by user. Yields each
    draft with the texts it continues."""
    generator = torch.Generator().manual_seed(0)
    drafter.prefill(PROMPTS, [0] * 3, 200)
    texts = {user: list(prompt) for user, prompt in enumerate(PROMPTS)}
    drawn = draws(sampling)
    for _ in range(rounds):
        starts = {user: len(text) for user, text in texts.items()}
        for text in texts.values():
            count = int(torch.randint(1, 5, (1,), generator=generator))
            text += torch.randint(0, 64, (count,), generator=generator).tolist()
        yield drafter.draft(texts, starts, shape, drawn), texts


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("fuzzy", [None, 2, 4])
def test_the_draft_cache_is_that_of_a_sequential_pass(form, fuzzy):
    """Over what was decided before the last draft: what drafting left there has been overwritten exactly."""
    drafter, worst = model_drafter(small.resembling(0.1), fuzzy=fuzzy), 0.0
    for _, texts in iterate(drafter, SHAPES[form]):
        model, cache = drafter.model.model, drafter.model.cache
        sequential = model.new_cache(3, 200)
        model.prefill(list(texts.values()), sequential)
        for user, text in texts.items():
            pairs = zip(entries(cache, user, len(text)), entries(sequential, user, len(text)))
            worst = max(worst, *(float((a - b).norm() / b.norm()) for a, b in pairs))
    logger.info("{} fuzzy {}: largest relative error of the draft cache {:.2e}", form, fuzzy, worst)
    assert worst < 1e-5


@pytest.mark.parametrize("fuzzy", [None, 3])
@pytest.mark.parametrize("form", SHAPES)
def test_logits_are_those_of_the_drafted_paths(form, fuzzy):
    """Row i is what the draft model, run along the path to node i, says: what exactness needs of a drawn chain. The
    children of a tree's node are its likeliest tokens."""
    drafter = model_drafter(small.resembling(0.1), fuzzy=fuzzy)
    model, groups = drafter.model.model, drafter.model.layer_groups
    for drafts, texts in iterate(drafter, SHAPES[form], rounds=2, sampling=SamplingParams(0.8)):
        assert drafts.drawn == (form == "chain")
        for user, text in texts.items():
            tree, tokens = drafts.trees[user], drafts.tokens[user]
            assert tokens[0] == text[-1]
            for node in range(len(tree)):
                children = [c for c in range(len(tree)) if tree.parents[c] == node]
                if not children:
                    continue
                cache = model.new_cache(1, 200)
                logits = model.prefill([text], cache)
                for step in tree.path(node)[1:]:
                    logits = model.forward(torch.tensor([[tokens[step]]]), cache, layer_groups=groups)[:, 0]
                torch.testing.assert_close(drafts.logits[user, node], logits[0], atol=2e-4, rtol=1e-3)
                if form != "chain":
                    likeliest = logits[0].topk(SHAPES[form].width).indices.tolist()
                    kept = [likeliest.index(tokens[child]) for child in children]
                    assert kept == sorted(kept), "the likeliest first"


@pytest.mark.parametrize("form", SHAPES)
def test_a_model_that_drafts_for_itself_reads_both_ends_of_its_cache(form):
    """It writes after the decided tokens alone, and its first candidate is its own choice over the window."""
    model, texts = small.target(), small.prompts(2, 101, seed=4)
    engine = TorchEngine(model)
    engine.cache = cache = model.new_cache(2, 160)
    model.prefill([text[:-1] for text in texts], cache)
    before, drafter = cache.clone(), self_drafter(model, 32, fuzzy=2)
    drafter.begin(engine, SHAPES[form])
    drafts = drafter.draft(dict(enumerate(texts)), {0: 100, 1: 100}, SHAPES[form], draws(users=2))
    for user, text in enumerate(texts):
        assert all(torch.equal(a, b) for a, b in zip(entries(cache, user, 100), entries(before, user, 100)))
        root = torch.tensor([text[-1:]])
        logits = model.forward(root, before.user(user), policy=SinkAttention(32), commit=False)
        assert drafts.tokens[user][1] == int(logits.argmax())
        exact = model.forward(root, before.user(user), commit=False)
        assert not torch.allclose(logits, exact, atol=1e-3), "the window must matter here"


def brute_force_continuations(tokens, sizes, count, length):
    found = []
    for size in sizes:
        for end in range(len(tokens) - 1, size - 1, -1):
            following = tokens[end : end + length]
            if tokens[end - size : end] == tokens[-size:] and following not in found:
                found.append(following)
    return found[:count]


@given(st.lists(st.sampled_from([0, 1, 256, 65793]), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 5))
def test_ngram_look_up_against_brute_force(tokens, count, length):
    """Ids whose bytes also match between two ids."""
    asked = tokens, (3, 2, 1), count, length
    assert continuations(*asked) == brute_force_continuations(*asked)


def test_ngram_drafts_chains_and_merged_trees():
    texts = {0: [7, 1, 2, 3, 9, 1, 2, 4, 9, 1, 2], 1: [5, 6, 7, 8]}
    drafter = NGramDrafter(smallest=1)
    chains = drafter.draft(texts, {}, DraftShape(3), draws())
    assert chains.tokens == {0: [2, 4, 9, 1], 1: [8]} and chains.logits is None
    assert chains.trees[0].parents.tolist() == [-1, 0, 1, 2]
    tree = drafter.draft({0: texts[0]}, {}, DraftShape(3, 2), draws())
    assert tree.tokens[0] == [2, 4, 9, 1, 3, 9, 1] and tree.trees[0].parents.tolist() == [-1, 0, 1, 2, 0, 4, 5]
    cut = drafter.draft({0: [*texts[0], 4, 9, 1, 2]}, {}, DraftShape(3, 2, budget=5), draws())
    assert len(cut.trees[0]) == 5, "the budget cuts the last sequence"
    longer = drafter.draft({0: [1, 2, 3, 9, 5, 3, 7, 1, 2, 3]}, {}, DraftShape(1), draws())
    assert longer.tokens[0] == [3, 9], "a longer match counts more than a later one"
