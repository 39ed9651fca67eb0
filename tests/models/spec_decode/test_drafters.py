# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What drafters draft, over models in torch: n-gram look-up, bonus calibration, and that logits are those that tokens
were drawn from. Each call names positions; nothing else is kept between calls. Draft shapes, and layer-parallel
strategies."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger

from models.llama31_8b.generation.sampling import Draws, SamplingParams, make_generators
from models.llama31_8b.reference.alspec.policies import SinkAttention
from models.llama31_8b.reference.generate import TorchEngine, model_drafter, self_drafter
from models.llama31_8b.spec_decode.draft_settings import DraftShape, groups_of
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


@pytest.mark.parametrize(
    ("layers", "size", "strategy"),
    [
        (32, 2, "0 1-2 3-4 5-6 7-8 9-10 11-12 13-14 15-16 17-18 19-20 21-22 23-24 25-26 27-28 29-30 31"),
        (32, 3, "0 1-3 4-6 7-9 10-12 13-15 16-18 19-21 22-24 25-27 28-30 31"),
        (32, 4, "0 1-3 4-7 8-11 12-15 16-19 20-23 24-27 28-30 31"),
        (32, 5, "0 1-3 4-8 9-13 14-18 19-23 24-28 29-30 31"),
        (28, 4, "0 1-3 4-7 8-11 12-15 16-19 20-23 24-26 27"),
    ],
)
def test_strategies_of_table_6(layers, size, strategy):
    groups = [f"{group[0]}-{group[-1]}" if len(group) > 1 else str(group[0]) for group in groups_of(layers, size)]
    assert groups == strategy.split()


@given(st.integers(1, 80), st.integers(1, 8))
def test_strategies_cover_every_layer_once(layers, size):
    if size > max(1, layers - 2):
        with pytest.raises(ValueError, match=f"model of {layers} layers, got {size}"):
            groups_of(layers, size)
        return
    groups = groups_of(layers, size)
    assert [layer for group in groups for layer in group] == list(range(layers))
    assert len(groups[0]) == 1 and len(groups[-1]) == 1 and max(map(len, groups)) <= size


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        (None, None, DraftShape(4)),
        (None, 7, DraftShape(7)),
        (None, 0, DraftShape(0)),
        ("5x3", None, DraftShape(5, 3, budget=16)),
        ("5x3", 5, DraftShape(5, 3, budget=16)),
        ("4x1", None, DraftShape(4, 1, budget=5)),
        ("4x9", None, DraftShape(4, 9, budget=32)),
        ("auto", None, DraftShape(5, 4, True)),
        ("auto", 6, DraftShape(6, 4, True)),
    ],
)
def test_tree_options(text, length, expected):
    assert DraftShape.parse(text, length) == expected


@pytest.mark.parametrize("text", ["4", "4x", "x4", "0x2", "2x0", "4x2x2", "-1x2", "Auto", "4 x 2"])
def test_bad_tree_options_are_refused(text):
    with pytest.raises(ValueError, match=text.replace("-", ".")):
        DraftShape.parse(text)


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError, match="tree 4x2 has depth 4, but the draft length is given as 5"):
        DraftShape.parse("4x2", 5)
    words = "a draft of 40 tokens needs 41 rows with its root, a verification pass has 32"
    with pytest.raises(ValueError, match=words):
        DraftShape.parse("40x2")
    for fields in ({"length": -1}, {"width": 0}, {"budget": 1}, {"length": 2.5}):
        with pytest.raises(ValueError, match="draft .* must be an integer"):
            DraftShape(**fields)
