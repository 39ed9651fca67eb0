# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels of speculative sampling on simulated N150 against the reference's verifiers, on one core or several; and
built at full size on mock N150."""

import math
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import NamedTuple

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference.spec_decode.draft_verification import (
    DraftVerification,
    SigmoidApproximation,
    verify_exact,
    verify_greedy,
    verify_sigmoid,
)
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.support import run_op
from tests.support.run_op import In, blank, check_refused, refusals, run_ops, set_bits, words

EXACT, SIGMOID = "speculative_sampling", "lossy_sigmoid_sampling"
FINE_STATUS, BAD_TREE, BAD_TARGET, BAD_DRAFT = range(4)


@dataclass(frozen=True)
class Batch:
    """Users of one call. tokens, parents, words [users, nodes] int64; target, draft [users, nodes, vocab] bfloat16;
    uniforms: float64 of which `words` are the whole numbers."""

    tokens: torch.Tensor
    parents: torch.Tensor
    target: torch.Tensor
    draft: torch.Tensor | None
    words: torch.Tensor

    @property
    def uniforms(self) -> torch.Tensor:
        return self.words.double() / 2.0**32


class Call(NamedTuple):
    """One launch. options: of the op."""

    batch: Batch
    options: dict
    op: str = EXACT
    layout: str = "ROW_MAJOR"

    def given(self) -> run_op.Call:
        """Return the call for a device."""
        logits = [
            None if part is None else In(part, layout=self.layout) for part in (self.batch.target, self.batch.draft)
        ]
        tokens, uniforms = (words(each, "uint32") for each in (self.batch.tokens, self.batch.words))
        given = tokens, words(self.batch.parents), *logits, uniforms
        return run_op.Call(f"{__name__}:verified", self.op, *given, **self.options)


def verified(op: str, *given, **options):
    """Call an op in the worker; return its rows of results, from which check() makes an error or none."""
    from tt_kernels.speculative_sampling import op as module

    found = getattr(module, op)(*given, **options)
    with suppress(module.VerificationError):
        found.check()
    return found.result


# ------------------------------------------------------------------------------ cases

KINDS = ("flat", "sharp", "close", "equal", "masked", "disjoint", "points")


def random_batch(seed: int, users: int, nodes: int, vocab: int, kind: str, with_replacement: bool = False) -> Batch:
    """Return trees, logits and drafted tokens of `users`. kind: flat or sharp rows; draft close or equal to the target;
    either with tokens at -inf; target and draft without a token in common; no draft at all."""
    generator = torch.Generator().manual_seed(seed)

    def logits(scale: float) -> torch.Tensor:
        return (scale * torch.randn(users, nodes, vocab, generator=generator)).bfloat16()

    scale = 6.0 if kind == "sharp" else 1.5
    target, draft = logits(scale), logits(scale)
    if kind == "equal":
        draft = target.clone()
    if kind == "close":
        draft = (target + 0.3 * draft).bfloat16()
    if kind in ("masked", "disjoint"):
        chosen = torch.rand(users, nodes, vocab, generator=generator) < 0.5
        chosen[..., 0], chosen[..., 1 % vocab] = True, False
        target[~chosen] = -torch.inf
        if kind == "disjoint":
            draft[chosen] = -torch.inf
        else:
            draft[torch.rand(users, nodes, vocab, generator=generator) < 0.3] = -torch.inf
            draft[..., 0] = 0.0
    parents = torch.full((users, nodes), -1)
    tokens = torch.randint(0, vocab, (users, nodes), generator=generator)
    for user in range(users):
        shape = seed + user
        for node in range(1, nodes):
            lowest = max(0, node - 1 - shape % 3)  # a chain for a third of the users
            parents[user, node] = int(torch.randint(lowest, node, (1,), generator=generator))
        for node in range(nodes):
            children = (parents[user] == node).nonzero().flatten()
            if not len(children):
                continue
            mass = torch.softmax(draft[user, node].float(), 0)
            count, most = len(children), int((mass > 0).sum())
            repeat = with_replacement or kind == "points" or most < count
            tokens[user, children] = torch.multinomial(mass, count, repeat, generator=generator)
    drawn = torch.randint(0, 2**32, (users, nodes), generator=generator)
    drawn[torch.rand(users, nodes, generator=generator) < 0.05] = 0
    return Batch(tokens, parents, target, None if kind == "points" else draft, drawn)


def likely_rejections(seed: int, users: int, nodes: int, vocab: int) -> Batch:
    """Return uniforms close to 1: what the draft likes more than the target is rejected."""
    batch = random_batch(seed, users, nodes, vocab, "sharp", True)
    batch.words[:, 1:] |= 0xF0000000
    return batch


# Bits of bfloat16 logits that are no numbers: NaNs of either sign, of the least and the largest payload, and infinity.
SPOILED_BITS = (0x7FC0, 0xFFC0, 0xFF81, 0xFFFF, 0x7F80)


def spoiled_batch(vocab: int) -> tuple[Batch, list[int]]:
    """Return users with one node below the root whose row, token or parent is wrong, each in a way, and one that is
    well; and the statuses of the former. The wrong logit is that of the drafted token, the last id, which no mode
    overlooks."""
    count = len(SPOILED_BITS)
    statuses = [*count * [BAD_TARGET], *count * [BAD_DRAFT], BAD_TREE, BAD_TREE]
    batch = random_batch(0, len(statuses) + 1, 2, vocab, "flat")
    last = vocab - 1
    batch.tokens[: 2 * count, 1] = last
    for i, bits in enumerate(SPOILED_BITS):
        set_bits(batch.target, (i, 0, last), bits)
        set_bits(batch.draft, (count + i, 0, last), bits)
    batch.tokens[-3, 1], batch.parents[-2, 1] = vocab, 1
    return batch, statuses


def spoiled_beside_the_draft(vocab: int) -> tuple[Batch, list[int]]:
    """Return users whose drafted token is 0 and has no chance, so that all of the rows of their root is looked at; in
    one of which the last id's logit is a NaN. And the statuses; the last user, whose rows hold -infinity alone, is
    well."""
    nans = (0xFFC0, 0xFF81, 0xFFFF)
    statuses = [*len(nans) * [BAD_TARGET], *len(nans) * [BAD_DRAFT]]
    batch = random_batch(0, len(statuses) + 1, 2, vocab, "flat")
    batch.tokens[:, 1], batch.words[:, 1] = 0, 2**32 - 1
    batch.target[:, 0, 0], batch.draft[:, 0, 0] = -math.inf, 3.0
    for i, bits in enumerate(nans):
        set_bits(batch.target, (i, 0, vocab - 1), bits)
        set_bits(batch.draft, (len(nans) + i, 0, vocab - 1), bits)
    return batch, statuses


def random_calls(seed: int, cases: int) -> list[Call]:
    """Return launches of `cases` users in all: vocabularies of 32 to 4096, most of them small, since a simulated chip
    takes a second for 64 ids and ten for 4096; one node, a few, and chains of depth 8; all KINDS; siblings that are
    distinct or not; every seventh launch the sigmoid approximation."""
    generator = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    calls: list[Call] = []
    while cases > 0:
        number, share = len(calls), pick(0, 99)
        vocab = pick(32, 128) if share < 88 else pick(129, 600) if share < 97 else pick(1000, 4096)
        users = min(cases, pick(12, 20) if vocab <= 128 else 4 if vocab <= 600 else 1)
        nodes = 1 if share % 10 == 0 else 9 if share % 10 == 1 else pick(2, 5)
        sigmoid = number % 7 == 6
        kinds = KINDS[:-1] if sigmoid else KINDS
        kind, repeat = "close" if nodes == 9 else kinds[pick(0, len(kinds) - 1)], bool(pick(0, 1))
        temperature = (1.0, 0.7, 1.4)[pick(0, 2)]
        batch = random_batch(pick(0, 2**30), users, nodes, vocab, kind, repeat)
        if nodes == 9:  # drafts of depth 8, likely to be accepted for a while
            batch.parents[:] = torch.arange(-1, nodes - 1)
            draw = torch.softmax((batch.target if kind == "points" else batch.draft).float() / temperature, -1)
            for node in range(nodes - 1):
                batch.tokens[:, node + 1] = torch.multinomial(draw[:, node], 1, generator=generator).flatten()
        if sigmoid:
            scale = (20.0, 1e3, 1e4)[pick(0, 2)]
            op, options = SIGMOID, {"alpha": -scale, "beta": scale}
        else:
            op, options = EXACT, {}
        layout = ("TILE", "ROW_MAJOR")[pick(0, 1)]
        calls.append(Call(batch, options | {"temperature": temperature}, op, layout))
        cases -= users
    return calls


PARTS = 20  # of 2,000 cases


# ------------------------------------------------------------------------------ the oracle


def trees_of(parents: torch.Tensor) -> TokenTreeBatch:
    """Return trees with the op's padding: nodes without a parent other than the root are reached by nobody."""
    return TokenTreeBatch.stack([TokenTree.from_parents(row) for row in parents.tolist()])


def as_rows(found: DraftVerification, tokens: torch.Tensor) -> list[list[int]]:
    """Return the rows that the op writes of the users. tokens: [users, nodes]."""
    rows = []
    for user, own in enumerate(tokens):
        path, bonus = found.nodes(user), int(found.bonus[user])
        new = [*own[path].tolist(), bonus]
        left = [-1] * (len(own) - len(path))
        rows.append([FINE_STATUS, len(path), bonus, len(new), *path, *left, *new, *left[1:]])
    return rows


def rows_of(call: Call) -> list[list[int]]:
    """Return the rows of results by the reference's verifiers."""
    batch, _, op, _ = call
    temperature, trees = call.options.get("temperature", 1.0), trees_of(batch.parents)
    if op == SIGMOID:
        scaling = SigmoidApproximation(call.options.get("alpha", -1e3), call.options.get("beta", 1e3))
        logits, params = (batch.target.float(), batch.draft.float()), SamplingParams(temperature=temperature)
        found = verify_sigmoid(trees, batch.tokens, *logits, batch.uniforms, params, scaling)
    else:
        target = torch.softmax(batch.target.double() / temperature, -1)
        draft = None if batch.draft is None else torch.softmax(batch.draft.double() / temperature, -1)
        found = verify_exact(trees, batch.tokens, target, draft, batch.uniforms)
    return as_rows(found, batch.tokens)


OP = "tt_kernels.speculative_sampling.op"
CHIP = "1x1"
SIGMOIDS = {"alpha": -20.0, "beta": 30.0}


def check(device, calls: list[Call]) -> None:
    """Assert that rows are the reference's, but for at most two users: a uniform number may lie so near to a border of
    two decisions that rounding tells them apart otherwise."""
    accepted, others = 0, []
    for call, found in zip(calls, run_ops(device, [call.given() for call in calls], timeout=1800), strict=True):
        for row, expected in zip(found["out"].tolist(), rows_of(call), strict=True):
            accepted += row[1]
            others += [(row, expected)] * (row != expected)
    logger.info(f"{accepted} tokens accepted; not the reference's: {others}")
    assert len(others) <= 2 and all(row[0] == FINE_STATUS for row, _ in others)


# ------------------------------------------------------------------------------ one chip

CASES = {
    "from rows": [
        Call(random_batch(10, 3, 5, 100, "flat"), {"temperature": 0.7}),
        Call(random_batch(20, 3, 4, 33, "sharp"), {"temperature": 0.7}),
        Call(random_batch(30, 3, 4, 70, "masked"), {"temperature": 0.7}),
        Call(random_batch(40, 1, 9, 1100, "flat"), {"temperature": 0.7}),
        Call(random_batch(50, 1, 3, 40, "disjoint"), {"temperature": 0.7}),
    ],
    "from tiles": [
        Call(random_batch(60, 4, 5, 100, "flat"), {}, layout="TILE"),
        Call(random_batch(70, 2, 20, 50, "equal", True), {}, layout="TILE"),
    ],
    "point masses": [
        Call(random_batch(80, 4, 5, 90, "points"), {}),
        Call(random_batch(90, 1, 1, 32, "points"), {}),
    ],
    # Flat, sharp, and draft equal to the target (so that nothing is left to resample from), from both layouts.
    "sigmoids": [
        Call(random_batch(100, 6, 4, 100, "flat", True), {"temperature": 0.7} | SIGMOIDS, SIGMOID, "TILE"),
        Call(random_batch(110, 4, 9, 1100, "sharp"), {"temperature": 0.7} | SIGMOIDS, SIGMOID, "TILE"),
        Call(random_batch(120, 3, 4, 70, "masked"), {"temperature": 0.7} | SIGMOIDS, SIGMOID, "TILE"),
        Call(likely_rejections(130, 6, 3, 90), {"temperature": 0.7} | SIGMOIDS, SIGMOID, "TILE"),
        Call(likely_rejections(140, 6, 4, 120), {}, SIGMOID),
        Call(random_batch(150, 3, 3, 50, "equal"), {}, SIGMOID),
    ],
}


@pytest.mark.sim
@pytest.mark.parametrize("calls", CASES.values(), ids=CASES)
def test_decisions_are_the_references(sim_device, calls):
    check(sim_device(CHIP), calls)


@pytest.mark.sim
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS + 1))])
def test_random_cases(sim_device, part):
    check(sim_device(CHIP), random_calls(1000 + part, 2000 // PARTS if part else 16))


def check_statuses(rows: list[list[int]], call: Call, statuses: list[int]) -> None:
    """Assert statuses, and the last user's row as if there were no other."""
    assert rows[:-1] == [[status, 0, 0, 0, *4 * [-1]] for status in statuses]
    last = Batch(*(getattr(call.batch, field.name)[-1:] for field in fields(Batch)))
    assert rows[-1:] == rows_of(call._replace(batch=last))


@pytest.mark.sim
@pytest.mark.parametrize("op", [EXACT, SIGMOID])
def test_errors_are_statuses(sim_device, op):
    """NaNs of either sign, infinity, a token and a parent out of range; and a user beside them that is well. The vector
    unit takes a negative NaN for -infinity, which is allowed; also in the row that a token is drawn from."""
    batch, statuses = spoiled_batch(40)
    spoiled = Call(batch, {}, op)
    batch, beside = spoiled_beside_the_draft(40)
    drawn = Call(batch, SIGMOIDS if op == SIGMOID else {}, op)
    found = run_ops(sim_device(CHIP), [spoiled.given(), drawn.given()])
    check_statuses(found[0]["out"].tolist(), spoiled, statuses)
    check_statuses(found[1]["out"].tolist(), drawn, beside)


@pytest.mark.sim
def test_greedy(sim_device):
    """Trees of a few tokens, so that choices meet them; and a choice that is no token."""
    batch = random_batch(5, 12, 6, 40, "points")
    tokens, choices = batch.tokens % 2, torch.randint(0, 2, (12, 6), generator=torch.Generator().manual_seed(1))
    choices[11] = 2**32 - 1
    given = words(tokens, "uint32"), words(batch.parents), words(choices, "uint32"), 40
    (found,) = run_ops(sim_device(CHIP), [run_op.Call(f"{Call.__module__}:verified", "greedy_verification", *given)])
    rows = found["out"].tolist()
    assert rows[:11] == as_rows(verify_greedy(trees_of(batch.parents), tokens, choices), tokens)[:11]
    assert rows[11] == [BAD_TARGET, 0, 0, 0, *12 * [-1]]


# Two tiles of ids on two cores; users take turns on them. Then three on three.
TWO = {"cores_per_user": 2}
SEVERAL_CORES = [
    Call(random_batch(200, 2, 3, 1100, "flat"), TWO, layout="TILE"),
    Call(likely_rejections(240, 2, 3, 1100), TWO, SIGMOID, "TILE"),
    Call(random_batch(210, 1, 3, 2500, "points"), {"cores_per_user": 3}, layout="TILE"),
]


@pytest.mark.sim
def test_a_user_on_several_cores(sim_device):
    check(sim_device("2x2"), SEVERAL_CORES)


@pytest.mark.sim
@pytest.mark.parametrize("op", [EXACT, pytest.param(SIGMOID, marks=pytest.mark.slow)])
def test_errors_on_several_cores_are_statuses(sim_device, op):
    """What is wrong lies with the second core."""
    batch, statuses = spoiled_batch(1100)
    (found,) = run_ops(sim_device("2x2"), [Call(batch, TWO, op).given()])
    check_statuses(found["out"].tolist(), Call(batch, {}, op), statuses)


# ------------------------------------------------------------------------------ full size, on mock N150

VOCAB = 128256


def build(users: int, nodes: int, vocab: int, op: str = EXACT, **options) -> run_op.Call:
    """Return a call on tensors of any contents."""
    rows = [blank([users, nodes], dtype, "ROW_MAJOR") for dtype in ("uint32", "int32", "uint32")]
    tokens, parents, uniforms = rows
    target, draft = (blank([users, nodes, vocab], "bfloat16") for _ in range(2))
    return run_op.Call(f"{OP}:{op}", tokens, parents, target, draft, uniforms, **options)


@pytest.mark.mock_mesh
def test_the_whole_vocabulary_fits_a_chip(mock_mesh):
    calls = {op: build(8, 8, VOCAB, op) for op in (EXACT, SIGMOID)}
    assert refusals(mock_mesh((1, 1)), calls) == dict.fromkeys(calls, "nothing")


@pytest.mark.mock_mesh
def test_what_does_not_fit_is_refused_before_any_launch_with_the_values_found(mock_mesh):
    given = {
        "a vocabulary of 1000000 needs 40": (1_000_000, {"cores_per_user": 1}),
        "vocab must be from 1 to 1048576, got 1100000": (1_100_000, {}),
        "64 cores per user needs these and a hub, (7, 7)": (65536, {"cores_per_user": 64}),
        "cores_per_user must be from 1 to 1, ": (64, {"cores_per_user": 2}),
        "alpha=1.0 and beta=1000.0": (64, {"op": SIGMOID, "alpha": 1.0}),
    }
    calls = {said: build(1, 2, vocab, **options) for said, (vocab, options) in given.items()}
    check_refused(mock_mesh((1, 1)), calls)
