# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The torch model of the op's arithmetic against the reference's verifiers, and the distribution of its tokens."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from loguru import logger
from scipy.stats import chi2

from models.llama31_8b.reference.spec_decode.draft_verification import verify_greedy
from tests.support.host_kernels import run_header
from tests.tt_kernels.speculative_sampling.sampling import (
    KINDS,
    PARTS,
    Call,
    check_rows,
    outcome_rows,
    part_of_two_thousand,
    random_batch,
    trees_of,
)
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_sampling.checks import (
    Problem,
    check_problem,
    check_sigmoid,
    check_temperature,
    check_warpers,
)
from tt_kernels.speculative_sampling.op import uniform_words
from tt_kernels.speculative_sampling.program import Slice, choose_work_split
from tt_kernels.speculative_sampling.reference import (
    BAD_DRAFT,
    BAD_TARGET,
    BAD_TREE,
    SigmoidModel,
    UserModel,
    greedy_reference,
    scale_of,
    speculative_sampling_reference,
)

ROUNDS = 100_000
# A right sampler fails with this probability, once and for all: the seeds are fixed.
CHANCE = 1e-4


@pytest.mark.parametrize("with_replacement", (False, True))
@pytest.mark.parametrize("kind", KINDS)
def test_decisions_are_the_references(kind, with_replacement):
    calls = []
    for seed, (nodes, vocab) in enumerate(((1, 32), (2, 33), (4, 100), (9, 1025), (8, 50))):
        temperature = (1.0, 0.6, 1.7)[seed % 3]
        options = {"temperature": temperature, "draft_temperature": temperature * (1.0, 1.3)[seed % 2]}
        batch = random_batch(100 * seed, 12, nodes, vocab, kind, with_replacement)
        calls.append(Call(batch, options | {"with_replacement": with_replacement}))
    check_rows(calls, list(map(outcome_rows, calls)))


def test_the_two_thousand_cases_of_the_chip():
    calls = [call for part in range(PARTS) for call in part_of_two_thousand(part)]
    assert sum(len(call.batch.tokens) for call in calls) == 2000
    check_rows(calls, list(map(outcome_rows, calls)))


def test_greedy_is_the_references():
    generator = torch.Generator().manual_seed(3)
    batch = random_batch(5, 40, 8, 40, "flat", with_replacement=True)
    choices = torch.randint(0, 3, (40, 8), generator=generator)
    tokens = batch.tokens % 3
    found = verify_greedy(trees_of(batch.parents), tokens, choices)
    for user, outcome in enumerate(greedy_reference(tokens, batch.parents, choices)):
        assert (list(outcome.path), outcome.bonus) == (found.nodes(user), int(found.bonus[user]))


@pytest.mark.parametrize("value", (math.nan, -math.nan, math.inf))
def test_logits_that_are_no_numbers_end_in_a_status(value):
    batch = random_batch(0, 1, 2, 40, "flat")
    for logits, status in ((batch.target, BAD_TARGET), (batch.draft, BAD_DRAFT)):
        kept = logits[0, 0, 7].clone()
        logits[0, 0, 7] = value
        outcome = speculative_sampling_reference(batch.tokens, batch.parents, batch.target, batch.draft, batch.words)[0]
        assert (outcome.status, outcome.path, outcome.bonus) == (status, (), 0)
        logits[0, 0, 7] = kept


@pytest.mark.parametrize(
    "parents, tokens",
    [([0, 0], [1, 1]), ([-1, 1], [1, 1]), ([-1, -2], [1, 1]), ([-1, 0], [1, 40]), ([-1, 0], [1, -1])],
)
def test_trees_that_are_none_end_in_a_status(parents, tokens):
    batch = random_batch(0, 1, 2, 40, "flat")
    assert UserModel(parents, batch.target[0], batch.draft[0]).verify(tokens, [1, 1]).status == BAD_TREE


def test_uniforms_are_rounded_down():
    words = uniform_words(torch.tensor([0.0, 1 - 2.0**-53, 0.5], dtype=torch.float64))
    assert words.tolist() == [0, 2**32 - 1, 2**31]


def test_wide_numbers_of_the_kernel(tmp_path):
    """wide.hpp against Python's integers, borders included."""
    sums = [1, 2, 3, 2**31 - 1, 2**31, 2**31 + 1, 2**47 + 12345, 2**48 - 1, 987654321987]
    words = [0, 1, 2**16, 2**31, 2**32 - 1, 123456789]
    cases = list(itertools.product(words, words, words, sums, sums[::2]))
    body = """
        const auto draft = wide::scaled_draft(in[0], in[1], in[3]), target = wide::scaled_target(in[2], in[4]);
        const Number share = wide::share(in[0], in[3]);
        std::printf("%d %llu %u", wide::less(draft, target), share, wide::reciprocal(in[3]));
    """
    found = run_header(tmp_path, "tt_kernels/speculative_sampling/kernels/wide.hpp", 5, body, cases)
    for (u, q, p, s, t), numbers in zip(cases, found, strict=True):
        scale = torch.tensor(scale_of(s)).view(torch.int32).item()
        assert numbers == [u * q * s < p * t << 32, u * s >> 32, scale]


# ------------------------------------------------------------------------------ distribution


def chi_squared(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """The probability that a right sampler deviates at least so far. Cells of which less than 5 are expected count
    together; a count where nothing is possible is impossible."""
    if counts[expected == 0].sum() > 0:
        return 0.0
    rare = expected < 5
    cells = [(counts[i].item(), expected[i].item()) for i in range(len(counts)) if not rare[i]]
    if expected[rare].sum() >= 5:
        cells.append((counts[rare].sum().item(), expected[rare].sum().item()))
    return float(chi2.sf(sum((found - wanted) ** 2 / wanted for found, wanted in cells), len(cells) - 1))


def two_tokens(
    model: UserModel,
    parents,
    vocab: int,
    drawn_at: float,
    seed: int,
    coarse: int | None = None,
    rounds=ROUNDS,
):
    """Rows of nodes below the root are those of the root, so a second token has the distribution of the first.

    Counts of the first two tokens of `rounds` verifications, [vocab, vocab + 1] flattened; the last column is where
    the second was not decided. Tokens are drawn from the model's draft at `drawn_at`."""
    generator = torch.Generator().manual_seed(seed)
    nodes = len(parents)
    tokens = torch.zeros(rounds, nodes, dtype=torch.int64)
    for node in range(nodes):
        children = [child for child, parent in enumerate(parents) if parent == node]
        if children:
            mass = torch.softmax(model.draft[node].double() / drawn_at, 0).expand(rounds, -1)
            tokens[:, children] = torch.multinomial(mass, len(children), model.with_replacement, generator=generator)
    words = torch.randint(0, 2**32, (rounds, nodes), generator=generator)
    if coarse is not None:  # of the children, not of the bonus
        words[:, 1:] = words[:, 1:] >> (32 - coarse) << (32 - coarse)
    cells = []
    for row, uniforms in zip(tokens.tolist(), words.tolist(), strict=True):
        outcome = model.verify(row, uniforms)
        new = [row[node] for node in outcome.path] + [outcome.bonus]
        cells.append(new[0] * (vocab + 1) + (new[1] if len(new) > 1 else vocab))
    return torch.bincount(torch.tensor(cells), minlength=vocab * (vocab + 1)).view(vocab, vocab + 1).float()


def rows(seed: int, nodes: int, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(1, vocab, generator=generator).bfloat16().expand(nodes, -1) for _ in range(2))


CHAIN, TREE = [-1, 0, 1], [-1, 0, 0, 0, 1]


@pytest.mark.parametrize("parents, with_replacement", [(CHAIN, False), (TREE, False), (TREE, True)])
def test_tokens_have_the_targets_distribution(parents, with_replacement):
    target, draft = rows(1, len(parents), 12)
    model = UserModel(parents, target, draft, 0.8, 1.1, with_replacement)
    counts = two_tokens(model, parents, 12, 1.1, seed=2)
    expected = torch.softmax(target[0].double() / 0.8, 0)
    first, second = counts.sum(1), counts[:, :-1].sum(0)
    chances = [chi_squared(first, ROUNDS * expected), chi_squared(second, second.sum() * expected)]
    logger.info(f"chi-squared of the first and the second token: {chances}")
    assert min(chances) > CHANCE


def test_point_masses_keep_the_distribution():
    """Children that were chosen, not drawn: all pairs of tokens of a small vocabulary in turn."""
    target, _ = rows(9, 3, 6)
    generator = torch.Generator().manual_seed(1)
    expected = torch.softmax(target[0].double(), 0)
    model = UserModel([-1, 0, 0], target, None)
    for pair in itertools.islice(itertools.permutations(range(6), 2), 3):
        words = torch.randint(0, 2**32, (3000, 3), generator=generator)
        counts = torch.zeros(6)
        for uniforms in words.tolist():
            outcome = model.verify([0, *pair], uniforms)
            counts[pair[outcome.path[0] - 1] if outcome.path else outcome.bonus] += 1
        assert chi_squared(counts, 3000 * expected) > CHANCE


# ------------------------------------------------------------------------------ what the op refuses


def facts(**changed) -> list:
    given = {
        "tokens": TensorFacts((2, 3), "UINT32", "ROW_MAJOR"),
        "parents": TensorFacts((2, 3), "INT32", "ROW_MAJOR"),
        "target": TensorFacts((2, 3, 50), "BFLOAT16", "TILE"),
        "draft": TensorFacts((2, 3, 50), "BFLOAT16", "TILE"),
        "uniforms": TensorFacts((2, 3), "UINT32", "ROW_MAJOR"),
    }
    return list((given | changed).values())


def test_shapes_are_read_from_tensors():
    assert check_problem(*facts()) == Problem(2, 3, 50, True, True)
    assert check_problem(*facts(draft=None)) == Problem(2, 3, 50, False, True)


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"tokens": TensorFacts((2, 4), "UINT32", "ROW_MAJOR")}, r"tokens must be UINT32 \[2, 3\].*\[2, 4\]"),
        ({"parents": TensorFacts((2, 3), "UINT32", "ROW_MAJOR")}, "parents must be INT32.*UINT32"),
        ({"draft": TensorFacts((2, 3, 50), "BFLOAT16", "ROW_MAJOR")}, "must be alike"),
        ({"draft": TensorFacts((2, 3, 50), "FLOAT32", "TILE")}, "draft_logits must be bfloat16.*FLOAT32"),
        ({"target": TensorFacts((3, 50), "BFLOAT16", "TILE"), "draft": None}, r"\(3, 50\)"),
        (
            {"target": TensorFacts((2, 33, 50), "BFLOAT16", "TILE"), "draft": None},
            "nodes must be from 1 to 32, got 33",
        ),
        (
            {"uniforms": TensorFacts((2, 3), "UINT32", "ROW_MAJOR", on_device=False)},
            "uniforms must be interleaved",
        ),
    ],
)
def test_refused_tensors(changed, said):
    with pytest.raises(UnsupportedError, match=said):
        check_problem(*facts(**changed))


def test_a_layout_of_users_and_cores():
    cores = [(x, y) for y in range(8) for x in range(8)]
    alone = choose_work_split(cores, 3, 4000, None, None, 1)
    assert (alone.groups, alone.slices, alone.hub) == (
        (((0, 0),), ((1, 0),), ((2, 0),)),
        (Slice(0, 4000),),
        None,
    )
    whole = choose_work_split(cores, 8, 128256, None, None, 1)
    assert whole.hub == (7, 7) and [len(group) for group in whole.groups] == 8 * [7]
    assert sum(part.count for part in whole.slices) == 128256
    assert all(part.first % 1024 == 0 and part.count > 0 for part in whole.slices)
    row = choose_work_split(cores[:2], 5, 100, None, (0, 0), 2)
    assert (row.groups, row.slices, row.hub) == ((((1, 0),),), (Slice(0, 100),), (0, 0))


def test_refused_layouts():
    cores = [(0, 0), (1, 0)]
    for wanted in (0, 3, True, 1.0):
        with pytest.raises(UnsupportedError, match="cores_per_user must be from 1 to 2"):
            choose_work_split(cores, 1, 2000, wanted, None, 1)
    with pytest.raises(UnsupportedError, match="2 cores per user needs these and a hub"):
        choose_work_split(cores, 1, 2000, 2, None, 1)
    with pytest.raises(UnsupportedError, match=r"a hub, \(5, 5\)"):
        choose_work_split(cores, 1, 2000, 1, (5, 5), 2)


def test_refused_sigmoids():
    for alpha, beta in ((0.0, 1.0), (-1.0, 0.0), (1.0, 2.0), (-1e6, 1.0), (-1.0, 1e6)):
        with pytest.raises(UnsupportedError, match="alpha < 0 < beta <= 100000"):
            check_sigmoid(alpha, beta)
    for value in (math.nan, -math.inf, "1", True):
        with pytest.raises(UnsupportedError, match="alpha must be a finite number"):
            check_sigmoid(value, 1.0)
    assert check_sigmoid(-1e3, 1e3) == (-1e3, 1e3)


@pytest.mark.parametrize("value", (math.nan, math.inf))
def test_sigmoids_of_logits_that_are_no_numbers_end_in_a_status(value):
    batch = random_batch(0, 1, 2, 40, "flat")
    batch.tokens[0, 1] = 7
    for logits, status in ((batch.target, BAD_TARGET), (batch.draft, BAD_DRAFT)):
        kept = logits[0, 0, 7].clone()
        logits[0, 0, 7] = value
        outcome = SigmoidModel([-1, 0], batch.target[0], batch.draft[0]).verify([0, 7], [1, 1])
        assert (outcome.status, outcome.path, outcome.bonus) == (status, (), 0)
        logits[0, 0, 7] = kept


def test_refused_numbers():
    for value in (0.0, -1.0, math.nan, math.inf, "1", True):
        with pytest.raises(UnsupportedError, match="temperature"):
            check_temperature("temperature", value)
    for warpers in ((40, 1.0), (0, 0.9)):
        with pytest.raises(UnsupportedError, match="top_[kp]="):
            check_warpers(*warpers)
