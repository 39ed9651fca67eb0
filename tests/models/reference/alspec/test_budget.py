# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses by a budget, against loops over single keys in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama31_8b.reference.alspec.budget import BudgetGuess, running_averages, tiles_by_budget
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, ExactAttention
from models.llama31_8b.reference.model.attention import ManyQueries, OneQuery, Segments
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.support.attention_cases import dense_attention_of, filled, path_to, random_tokens

BUDGET = 0.6
RANGE = GuessRange.by_budget(32, BUDGET)
LENGTHS = (5, 90, 97, 160, 230)


@pytest.fixture(scope="module")
def cache(model):
    return filled(model, LENGTHS, 256)


@settings(max_examples=500)
@given(
    st.lists(st.sampled_from([0.0, 0.0, 0.25, 0.5, 0.5, 1.0, 7.0, 512.0]), min_size=1, max_size=12),
    st.sampled_from([0.01, 0.25, 0.5, 0.75, 0.9, 0.999]),
    st.integers(0, 5),
    st.integers(0, 13),
)
def test_tiles_are_read_until_little_is_left(weight, budget, first, end):
    """Ties, zeros, one hot tile, all chosen, none; in exact numbers."""
    total, ranked = sum(weight), sorted((-heavy, t) for t, heavy in enumerate(weight) if first <= t < end and heavy)
    expected: list[int] = []
    while sum(-heavy for heavy, _ in ranked) > (1 - budget) * total:
        expected.append(ranked.pop(0)[1])
    chosen = tiles_by_budget(torch.tensor(weight), budget, first, torch.tensor([end]))
    assert chosen.nonzero().flatten().tolist() == sorted(expected)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.sampled_from([0.0, 0.5, 0.9]))
def test_averages_are_those_of_one_pass_after_another(sent, decay):
    generator = torch.Generator().manual_seed(len(sent))
    average, passes = torch.rand(2, 5, generator=generator), torch.rand(2, len(sent), 5, generator=generator)
    earlier, after = running_averages(average, passes, torch.tensor(sent), decay)
    for token, counts in enumerate(sent):
        torch.testing.assert_close(earlier[:, token], average)
        if counts:
            average = decay * average + (1 - decay) * passes[:, token]
    torch.testing.assert_close(after, average)


class Recorded(ALSpecAttention):
    """calls: by layer and user the queries [kv_heads, g, t, d] and the output [t, h * d]."""

    calls: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]]

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        out = super().attend(layer, segments)
        assert isinstance(segments, OneQuery | ManyQueries)
        rows = segments.rows
        users = segments.query.view(rows.stop - rows.start, 2, 2, -1, segments.query.shape[-1])
        for row, query, its in zip(range(rows.start, rows.stop), users, out.view(len(users), -1, 32), strict=True):
            self.calls[layer, row] = query, its
        return out


# Of two users, the second's padded; what each round keeps, the root among it; a plain step between.
TREES = [[-1, 0, 1, 0, 3, 3, 5], [-1, 0, 0, 2]]
KEPT = [([0, 3, 5, 6], [0]), ([0], [0, 2, 3]), None, ([0, 1, 2], [0, 1]), ([0, 3], [0, 2]), ([0], [0])]


def averages_and_tiles(query, keys, span: GuessRange, before: list[list[float]] | None):
    """Averages by tile, and the tiles, of each head of one user and layer, key by key in float64. query: [kv_heads, g,
    d]."""
    cached, groups, masses = keys.shape[1], [], []
    tail = cached // 32 * 32 - span.last
    for head in range(len(keys)):
        known = [0.0] * (cached // 32 + 1) if before is None else [*before[head], 0.0][: cached // 32 + 1]
        middle = sorted((-mass, t) for t, mass in enumerate(known) if span.first <= 32 * t < tail and mass > 0)
        tiles: list[int] = []
        while middle and sum(-mass for mass, _ in middle) > (1 - BUDGET) * sum(known):
            tiles.append(middle.pop(0)[1])
        mass = [0.0] * (cached // 32 + 1)
        for query_head in query[head].double():
            weights = [math.exp(float(query_head @ key.double())) for key in keys[head]]
            for key, weight in enumerate(weights):
                mass[key // 32] += weight / sum(weights)
        masses.append([(old + new) / 2 for old, new in zip(known, mass, strict=True)])
        groups.append(tiles)
    return masses, groups


def check_rounds(model, cache, rounds):
    """Run rounds, of each what users keep of TREES, None for a plain step. Compare each user's decision, the outputs of
    all nodes and the sender, which changes when all users hit, with loops over keys; return the calls with chosen
    tiles, the senders of all layers, and the statistics."""
    policy, chosen, senders = Recorded(0.4, RANGE), 0, []
    known: dict[tuple[int, int, int], list[list[float]]] = {}
    for number, kept in enumerate(rounds):
        policy.calls, lengths, sender = {}, cache.lengths.tolist(), 0
        trees = None if kept is None else TokenTreeBatch.stack([TokenTree.from_parents(each) for each in TREES])
        width = 1 if kept is None else trees.width
        tokens = torch.tensor([random_tokens(width, seed=700 + 10 * number + row) for row in range(cache.batch)])
        model.forward(tokens, cache, policy=policy, tree=trees, commit=kept is None)
        for layer in range(model.config.num_hidden_layers):
            hits = []
            for row, length in enumerate(lengths):
                query, out = policy.calls[layer, row]
                parents = [-1] if kept is None else TREES[row]
                keys, values, slots = cache.keys[layer][row], cache.values[layer][row], length + 1
                key = sender, layer, row
                known[key], tiles = averages_and_tiles(query[:, :, 0], keys[:, :slots], RANGE, known.get(key))
                chosen += any(tiles)
                guess, exact = [], []
                tail = slots // 32 * 32 - RANGE.last
                for node in range(len(parents)):
                    path = [length + each for each in path_to(parents, node)]
                    exact.append(
                        dense_attention_of(query[:, :, node].flatten(0, 1), keys, values, [*range(length), *path])
                    )
                    for head, its in enumerate(tiles):
                        read = [k for k in range(length) if k < RANGE.first or k >= tail or k // 32 in its]
                        own = keys[head : head + 1], values[head : head + 1]
                        guess.append(dense_attention_of(query[head, :, node], *own, read + path))
                ours, theirs = torch.cat(guess), torch.cat(exact)
                ratio = float((ours - theirs).norm() / theirs.norm())
                assert abs(ratio / 0.4 - 1) > 1e-4, "a near tie proves nothing"
                hits.append(slots >= 64 and ratio < 0.4)
                wanted = (ours if hits[-1] else theirs).view(len(parents), -1)
                torch.testing.assert_close(out[: len(parents)].double(), wanted, atol=2e-5, rtol=0)
            senders.append(sender)
            sender ^= all(hits)
        for row, nodes in enumerate(kept or ()):
            cache.keep(row, nodes)
    return chosen, senders, policy.statistics


@pytest.mark.parametrize("users, steps", [(range(5), 6), ([4], 12)], ids=["bypassed", "alone"])
def test_guesses_decisions_and_tiles_are_those_of_single_keys(model, cache, users, steps):
    """Users at different positions, two of them bypassed at first; then one by itself, whose hits change the sender."""
    chosen, senders, statistics = check_rounds(model, cache.view(list(users)).clone(), steps * [None])
    assert chosen >= steps * 2 and statistics.hits > 5 and statistics.misses > 5
    assert (statistics.bypassed > 0) == (len(users) > 1)
    if len(users) == 1:
        assert 5 < sum(senders) < len(senders) - 5, "both ranks send"


@pytest.mark.parametrize("users", [(3, 4), (2, 3), (4, 0)], ids=["far", "near", "bypassed"])
def test_nodes_read_their_roots_tiles_and_leave_its_pass(model, cache, users):
    """Rounds that keep some nodes, across borders of tiles, with a plain step between."""
    chosen, senders, statistics = check_rounds(model, cache.view(list(users)).clone(), KEPT)
    assert chosen > 10 and statistics.hits and statistics.misses
    assert set(senders) == ({0} if 0 in users else {0, 1}), "beside a bypassed user no sender changes"


@pytest.mark.parametrize("user", range(len(LENGTHS)))
def test_a_chain_decides_as_one_token_after_another(model, cache, user):
    cache = cache.view([user])
    tokens = torch.tensor([random_tokens(9, seed=80 + user)])
    single, chain = ALSpecAttention(0.4, RANGE), ALSpecAttention(0.4, RANGE)
    one, many = cache.clone(), cache.clone()
    steps = [model.forward(tokens[:, i : i + 1], one, policy=single) for i in range(9)]
    whole = model.forward(tokens[:, :1], many, policy=chain)
    rest = model.forward(tokens[:, 1:], many, policy=chain, logits="all")
    torch.testing.assert_close(torch.cat((whole, rest), 1), torch.cat(steps, 1), atol=1e-4, rtol=1e-4)
    assert single.statistics.decisions_per_token() == chain.statistics.decisions_per_token()
    assert len(chain.statistics.decisions_per_token()) == 9


def test_threshold_0_is_bit_identical_to_exact(model, cache):
    """Where both ranges bypass the same positions: others add up the same keys in another order."""
    cache = cache.view([0, 2, 3, 4]).clone()
    tokens = torch.tensor([random_tokens(5, seed=user) for user in range(cache.batch)])

    def run(policy) -> torch.Tensor:
        mine = cache.clone()
        return torch.cat([model.forward(tokens[:, i : i + 1], mine, policy=policy) for i in range(5)], dim=1)

    ends = GuessRange(RANGE.first, RANGE.last, 32, whole_tail=True)
    alspec = ALSpecAttention(0.0, RANGE)
    assert torch.equal(run(alspec), run(ExactAttention(ends)))
    assert alspec.statistics.hits == 0 and alspec.statistics.misses > 0


def test_weights_are_forgotten_where_the_last_pass_was_not_the_step_before(model, cache):
    """After a turn and a rollback a user is guessed from first and last alone; the users beside it are not touched."""
    policy = ALSpecAttention(0.4, RANGE)
    mine = cache.clone()
    tokens = torch.tensor([random_tokens(8, seed=90 + user) for user in range(mine.batch)])
    weights = policy.by_budget
    assert isinstance(weights, BudgetGuess) and weights.known(0, 0, 3) is None
    model.forward(tokens[:, :1], mine, policy=policy)
    before = weights.known(0, 0, 3)
    assert before is not None and before.shape == (model.config.num_key_value_heads, 161 // 32 + 1)
    torch.testing.assert_close(before.sum(1), torch.full((len(before),), 1.0 * before.sum(1)[0]))  # query heads a head

    def follows(before: torch.Tensor, after: torch.Tensor) -> bool:
        """Whether rank 0's weights of layer 0 count an earlier pass too: a first pass gives half of its weight."""
        return float(after.sum()) > 1.1 * float(before.sum()) / 2

    whole = 2 * before
    model.prefill([[1, 2, 3]], mine.user(3))
    model.forward(tokens[:, 1:2], mine, policy=policy)
    known = [weights.known(0, 0, user) for user in range(mine.batch)]
    assert [follows(whole, each) for each in known] == [True, True, True, False, True]
    mine.truncate([length - (user == 2) for user, length in enumerate(mine.lengths.tolist())])
    model.forward(tokens[:, 2:3], mine, policy=policy)
    known = [weights.known(0, 0, user) for user in range(mine.batch)]
    assert [follows(whole, each) for each in known] == [True, True, False, True, True]
    # What a tree's round does not keep is no rollback; going back before its root is one.
    tree, kept = TokenTree.from_parents([-1, 0, 0, 1]), [0, 1]
    for back, goes_on in ((0, True), (1, False)):
        mine.truncate([length - back * (len(kept) + 1) for length in mine.lengths.tolist()])
        model.forward(tokens[:, 3:7], mine, policy=policy, tree=tree, commit=False)
        for user in range(mine.batch):
            mine.keep(user, kept)
        assert all(follows(whole, weights.known(0, 0, user)) == goes_on for user in (0, 1, 3, 4))
    policy.reset()
    model.forward(tokens[:, 7:8], mine, policy=policy)
    assert not any(follows(whole, weights.known(0, 0, user)) for user in range(mine.batch))
