# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses by parameters: against an oracle in numpy that goes token by token, and against the reference's policies."""

from functools import cache

import numpy as np
import pytest
import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.attention import ManyQueries
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange
from models.llama31_8b.spec_decode.tree import TokenTree
from perf.studies.quality.predictors import ENDS, OWN_AVERAGE, PredictedGuess, Predictor
from tests.support.attention_cases import random_tokens, tiny_config

THRESHOLD_OF_TREES = 0.42
S, TOKENS, LAYERS, KV_HEADS, GROUP, DIM = 64, 400, 3, 2, 3, 8
CASES = (
    *("exact", "budget=0.9", "own decay=0.5 budget=0.98", "own budget=0.95"),
    *("every=4 decay=0.5 budget=0.95", "every=2", "exact own budget=0.9"),
)


def attention_of(seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return queries [m, g, t, d], keys [m, t, d] and values of each layer; scores lean on a few tiles that drift."""
    draw = np.random.default_rng(seed)
    drift = np.cumsum(draw.normal(size=(LAYERS, KV_HEADS, TOKENS, DIM)), axis=2)
    drift /= np.linalg.norm(drift, axis=-1, keepdims=True)
    found = []
    for layer in drift:
        query = 2.0 * layer[:, None] + 0.5 * draw.normal(size=(KV_HEADS, GROUP, TOKENS, DIM))
        keys = 2.0 * layer + 0.5 * draw.normal(size=(KV_HEADS, TOKENS, DIM))
        values = draw.normal(size=(KV_HEADS, TOKENS, DIM))
        found.append(tuple(part.astype(np.float32) for part in (query, keys, values)))
    return found


@cache
def oracle(how: Predictor, threshold: float) -> tuple[np.ndarray, list[np.ndarray], float, float]:
    """Return decisions [layers, t], outputs [t, heads * d] of each layer, and the sums of keys read and of the slowest
    head's, one token and one head after the other, in double precision."""
    layers = attention_of(seed=5)
    first, last = S if how.budget is None else 32, S
    tiles = -(-TOKENS // 32)
    average = np.zeros((LAYERS, 2, KV_HEADS, tiles))
    decisions, outputs = np.zeros((LAYERS, TOKENS), bool), [np.zeros((TOKENS, KV_HEADS * GROUP * DIM)) for _ in layers]
    read_sum = slowest_sum = 0.0
    for t in range(TOKENS):
        cached, rank = t + 1, 0
        for index, (query, keys, values) in enumerate(layers):
            weights = np.zeros((KV_HEADS, GROUP, TOKENS))
            for head in range(KV_HEADS):
                scores = query[head, :, t].astype(float) @ keys[head, :cached].T.astype(float)
                shares = np.exp(scores - scores.max(1, keepdims=True))
                weights[head, :, :cached] = shares / shares.sum(1, keepdims=True)
            mass = np.pad(weights.sum(1), ((0, 0), (0, tiles * 32 - TOKENS))).reshape(KV_HEADS, tiles, 32).sum(2)
            mine = rank if how.own else 0
            known = average[index, mine]
            tail = cached // 32 * 32 - last
            between = [tile for tile in range(tiles) if first <= 32 * tile < tail]
            chosen: list[tuple[int, int]] = []
            for h in range(KV_HEADS) if how.budget is not None else ():
                order = sorted((tile for tile in between if known[h, tile] > 0), key=lambda tile: -known[h, tile])
                left, total = sum(known[h, tile] for tile in order), known[h].sum()
                for tile in order:
                    if left <= (1 - how.budget) * total:
                        break
                    chosen.append((h, tile))
                    left -= known[h, tile]
            exact, guess, counts = [], [], []
            for head in range(KV_HEADS):
                read = np.zeros(TOKENS, bool)
                read[:first] = True
                read[max(0, tail) :] = True
                for h, tile in chosen:
                    if h == head:
                        read[32 * tile : 32 * tile + 32] = True
                read[cached:] = False
                part = weights[head] * read
                exact.append(weights[head] @ values[head])
                guess.append(part / part.sum(1, keepdims=True) @ values[head])
                counts.append(read.sum())
            exact, guess = np.concatenate(exact).ravel(), np.concatenate(guess).ravel()
            eligible = cached >= 2 * S
            near = np.linalg.norm(guess - exact) < threshold * np.linalg.norm(exact)
            hit = eligible and bool(near if how.every is None else cached % how.every)
            decisions[index, t] = hit
            outputs[index][t] = guess if hit and not how.exact else exact
            if eligible:
                read_sum, slowest_sum = read_sum + np.mean(counts), slowest_sum + max(counts)
            if how.every is None or not hit:
                average[index, mine] = how.decay * average[index, mine] + (1 - how.decay) * mass
            rank ^= hit
    return decisions, outputs, read_sum, slowest_sum


@pytest.mark.parametrize("words", CASES)
@pytest.mark.parametrize("cuts", ((0, TOKENS), (0, 2, 130, 259, TOKENS)), ids=("at once", "in blocks"))
def test_guesses_of_an_independent_oracle(words, cuts):
    how, layers = Predictor.parse(words), attention_of(seed=5)
    threshold = 0.25 if how.budget is None else 0.1
    policy, outputs = PredictedGuess(threshold, how.guess_range(S), how), [[] for _ in layers]
    for start, end in zip(cuts, cuts[1:]):
        step = DecodeStep([start], [0], end - start, guess_range=policy.guess_range)
        policy.begin_step(step, LAYERS)
        for index, (query, keys, values) in enumerate(layers):
            for block in step.blocks():
                now = slice(start + block.start, start + block.stop)
                parts = (
                    torch.from_numpy(query[:, :, now]),
                    *(torch.from_numpy(x[:, : now.stop]) for x in (keys, values)),
                )
                eligible = step.eligible[0, block]
                segments = ManyQueries(*parts, *step.masks(0, block), eligible, 0, block)
                outputs[index].append(policy.attend(index, segments))
    decisions, wanted, keys_read, slowest = oracle(how, threshold)
    accepted = torch.cat([step.accepted[:, 0] for step in policy.statistics.steps], dim=1)
    assert torch.equal(accepted, torch.from_numpy(decisions))
    assert 0.1 < decisions[:, 2 * S :].mean() < 0.99, "both outcomes must occur"
    for found, expected in zip(outputs, wanted):
        torch.testing.assert_close(torch.cat(found), torch.from_numpy(expected).float(), rtol=1e-4, atol=1e-5)
    assert (float(policy.keys_read), float(policy.slowest_head)) == pytest.approx((keys_read, slowest))


@pytest.fixture(scope="module")
def tiny() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(max_position_embeddings=300), seed=4)


@pytest.mark.parametrize(
    "words,why",
    [
        ("", "'' is no parameter"),
        ("turned", "'turned' is no parameter of a predictor: budget=VALUE, own"),
        ("every=1.5", "'every=1.5' is no parameter"),
        ("decay=1 budget=0.9", "decay must be at least 0 and below 1, got 1.0"),
        ("budget=1", "budget must be a number between 0 and 1, got 1.0"),
        ("decay=0.5", "they go with budget=VALUE"),
        ("every=4 own budget=0.9", "every must be at least 2 and goes with neither own nor exact"),
    ],
)
def test_words_that_describe_no_guess_are_refused(words, why):
    with pytest.raises(ValueError, match=why):
        Predictor.parse(words)


RANGE = GuessRange.both_ends(32)


def test_a_chain_as_a_tree_is_a_step_of_the_text(tiny):
    """The last step of 8 tokens after the same cache: one tree, and the end of a text."""
    ids, cache = random_tokens(256, seed=6), tiny.new_cache(1, 256)
    tiny.prefill([ids[:248]], cache)
    tree, chain = (PredictedGuess(0.6, RANGE, nodes=8) for _ in range(2))
    last = torch.tensor([ids[248:]])
    ours = tiny.forward(last, cache, policy=tree, tree=TokenTree.chain(8), commit=False, logits="all")
    wanted = tiny.forward(last, cache, policy=chain, commit=False, logits="all")
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)
    assert torch.equal(tree.statistics.steps[0].accepted, chain.statistics.steps[0].accepted)


@pytest.mark.parametrize("how", (ENDS, OWN_AVERAGE), ids=("ends", "budget"))
def test_trees_are_decided_as_the_reference_decides_them(tiny, how):
    """Three steps, of each of which the root is kept. The two sum in another order: outputs agree to rounding."""
    span, ids = how.guess_range(32), random_tokens(256, seed=6)
    tree, found = TokenTree.from_parents([-1, 0, 0, 1, 1, 2, 3, 6]), []
    ours = PredictedGuess(THRESHOLD_OF_TREES, span, how, nodes=8)
    for policy in (ours, ALSpecAttention(THRESHOLD_OF_TREES, span)):
        cache, outputs = tiny.new_cache(1, 256), []
        tiny.prefill([ids[:200]], cache)
        for seed in (9, 10, 11):
            nodes = torch.tensor([random_tokens(8, seed=seed)])
            outputs.append(tiny.forward(nodes, cache, policy=policy, tree=tree, commit=False, logits="all"))
            cache.keep(0, [0])
        found.append((torch.stack(outputs), torch.stack([step.accepted for step in policy.statistics.steps])))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-4)
    assert torch.equal(found[0][1], found[1][1]) and bool(found[0][1].any()) and not bool(found[0][1].all())


@pytest.mark.parametrize("mean", (False, True))
def test_a_step_leaves_its_roots_weights_or_the_mean_of_its_nodes(mean):
    how = Predictor(budget=0.9, own=True, mean=mean)
    policy = PredictedGuess(0.1, how.guess_range(S), how, nodes=4)
    policy._eligible, policy._sender = torch.ones(12, dtype=torch.bool), torch.tensor([0, 1, 0]).repeat_interleave(4)
    passes = torch.rand(2, 12, 5, generator=torch.Generator().manual_seed(1))
    known = policy._known(0, slice(0, 12), passes, torch.arange(12))
    first = passes[:, :4].mean(1) if mean else passes[:, 0]
    assert torch.equal(known[:, :8], torch.zeros(2, 8, 5)), "neither rank has sent before"
    torch.testing.assert_close(known[:, 8:], first[:, None].expand(-1, 4, -1))


def test_what_is_no_step_is_refused(tiny):
    with pytest.raises(ValueError, match="10 tokens are no steps of 4"):
        tiny.forward(torch.tensor([[1] * 10]), tiny.new_cache(1, 16), policy=PredictedGuess(0.1, RANGE, nodes=4))
