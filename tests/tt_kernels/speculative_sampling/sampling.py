# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Cases of the speculative sampling tests, their calls, and what to hold a chip's decisions to: the reference's
verifiers."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference.spec_decode.draft_verification import (
    SigmoidApproximation,
    verify_exact,
    verify_greedy,
    verify_sigmoid,
)
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.support import run_op
from tests.support.run_op import In, set_bits, words

EXACT, SIGMOID = "speculative_sampling", "lossy_sigmoid_sampling"
FINE_STATUS, BAD_TREE, BAD_TARGET, BAD_DRAFT, GROUP_BROKEN = range(5)


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

    def given(self, split: bool = False, **more) -> run_op.Call:
        """Return the call for a device. split: the vocabulary over the chips of a mesh of one row."""
        ids = (None, 2) if split else (None, None)
        logits = [
            None if part is None else In(part, layout=self.layout, split=ids)
            for part in (self.batch.target, self.batch.draft)
        ]
        tokens, uniforms = (words(each, "uint32") for each in (self.batch.tokens, self.batch.words))
        given = tokens, words(self.batch.parents), *logits, uniforms
        return run_op.Call(f"{__name__}:verified", self.op, *given, **self.options, **more)


class Verified(NamedTuple):
    result: torch.Tensor
    told: str | None


def verified(op: str, *given, **options) -> Verified:
    """Call an op in the worker; return its rows of results and the error of check()."""
    from tt_kernels.speculative_sampling import op as module

    found = getattr(module, op)(*given, **options)
    try:
        found.check()
    except RuntimeError as error:
        return Verified(found.result, str(error))
    return Verified(found.result, None)


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
    takes a second for 64 ids and ten for 4096; one node, a few, and chains of depth 8; all KINDS; siblings with and
    without replacement; every seventh launch the sigmoid approximation."""
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
            op, options = EXACT, {"draft_temperature": temperature * (1.0, 1.25)[pick(0, 1)]}
            options["with_replacement"] = repeat and kind != "points"
        layout = ("TILE", "ROW_MAJOR")[pick(0, 1)]
        calls.append(Call(batch, options | {"temperature": temperature}, op, layout))
        cases -= users
    return calls


PARTS = 20


def part_of_two_thousand(part: int) -> list[Call]:
    """Return one of PARTS parts of 2,000 cases."""
    return random_calls(1000 + part, 2000 // PARTS)


# ------------------------------------------------------------------------------ the oracle


def trees_of(parents: torch.Tensor) -> TokenTreeBatch:
    """Return trees with the op's padding: nodes without a parent other than the root are reached by nobody."""
    return TokenTreeBatch.stack([TokenTree.from_parents(row) for row in parents.tolist()])


def reference_decisions(call: Call) -> list[tuple[list[int], int]]:
    """Return accepted nodes and bonus of each user, by the reference's verifiers."""
    batch, _, op, _ = call
    temperature, trees = call.options.get("temperature", 1.0), trees_of(batch.parents)
    if op == SIGMOID:
        scaling = SigmoidApproximation(call.options.get("alpha", -1e3), call.options.get("beta", 1e3))
        logits, params = (batch.target.float(), batch.draft.float()), SamplingParams(temperature=temperature)
        found = verify_sigmoid(trees, batch.tokens, *logits, batch.uniforms, params, scaling)
    else:
        heat = call.options.get("draft_temperature", temperature)
        target = torch.softmax(batch.target.double() / temperature, -1)
        draft = None if batch.draft is None else torch.softmax(batch.draft.double() / heat, -1)
        repeat = call.options.get("with_replacement", False)
        found = verify_exact(trees, batch.tokens, target, draft, batch.uniforms, with_replacement=repeat)
    return [(found.nodes(user), int(found.bonus[user])) for user in range(len(batch.tokens))]


def as_row(path: list[int], bonus: int, tokens: torch.Tensor) -> list[int]:
    """Return the row that the op writes of a user. tokens: [nodes]."""
    new = [*tokens[path].tolist(), bonus]
    left = [-1] * (len(tokens) - len(path))
    return [FINE_STATUS, len(path), bonus, len(new), *path, *left, *new, *left[1:]]


def rows_of(call: Call) -> list[list[int]]:
    """Return the rows of results by the reference."""
    decisions = zip(reference_decisions(call), call.batch.tokens, strict=True)
    return [as_row(*decision, tokens) for decision, tokens in decisions]


def greedy_rows(tokens: torch.Tensor, parents: torch.Tensor, choices: torch.Tensor) -> list[list[int]]:
    """Return the rows of greedy verification by the reference."""
    found = verify_greedy(trees_of(parents), tokens, choices)
    return [as_row(found.nodes(user), int(found.bonus[user]), row) for user, row in enumerate(tokens)]


def row_of_last_user(call: Call) -> list[int]:
    """Return the last user's row, whatever the rows of logits of the others hold."""
    batch = call.batch
    parts = (part[-1:] for part in (batch.tokens, batch.parents, batch.target, batch.draft, batch.words))
    return rows_of(call._replace(batch=Batch(*parts)))[0]


def check_rows(calls: list[Call], found: list[list[list[int]]], apart: int = 2) -> None:
    """Assert that rows are the reference's, but for at most `apart` users: a uniform number may lie so near to a border
    of two decisions that rounding tells them apart otherwise."""
    accepted, others = 0, []
    for call, rows in zip(calls, found, strict=True):
        for row, expected in zip(rows, rows_of(call), strict=True):
            accepted += row[1]
            others += [(row, expected)] * (row != expected)
    logger.info(f"{accepted} tokens accepted; not the reference's: {others}")
    assert len(others) <= apart and all(row[0] == FINE_STATUS for row, _ in others)
