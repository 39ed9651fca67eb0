# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Cases, calls and oracle of the attention tests. Decoding is attention of a tree of one node: `nodes` chooses the op,
speculative_flash_decode for one and tree_attention for more, and everything else is the same.

All tests of both ops share one simulated chip, and with it the compiled kernels, and use parts of its grid.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from loguru import logger

from runtime_patches.simulated_n150.testing.tensors import correlation
from tests.support.run_op import Call, In, Make, priorities, run_ops, words
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, chosen_rows
from tt_kernels.speculative_flash_decode.reference import guess_positions
from tt_kernels.tree_attention.reference import speculative_tree_attention_reference

CHIP = "4x2"
# On each chip's grid of 2x2 of a mesh: the core that decides and the exchange core; workers are on the others.
GRID, OUTPUT, EXCHANGE = "2x2", (0, 1), (1, 1)
HIT = 100.0  # a threshold that accepts all
BOTH = GuessRange.both_ends(32)
SHORT = GuessRange(32, 32)  # leaves keys out from 65 cached tokens on, BOTH from 96 on
PCC = {"bfloat16": 0.999, "bfloat8_b": 0.99}
FLASH, TREES = "tt_kernels.speculative_flash_decode.op", "tt_kernels.tree_attention"
OPS = {
    (False, "exact"): f"{FLASH}:flash_decode",
    (False, "guess"): f"{FLASH}:guess_flash_decode",
    (False, "speculate"): f"{FLASH}:speculative_flash_decode",
    (True, "exact"): f"{TREES}.op:tree_attention",
    (True, "speculate"): f"{TREES}.op:speculative_tree_attention",
}


@dataclass(frozen=True)
class Case:
    """A shape of the ops. grid: the part of the chip it uses. tree: whether the op is that of trees, by default for
    several nodes."""

    nodes: int = 1
    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 64
    max_tokens: int = 128
    users: int = 1
    cache: str = "bfloat16"
    workers: int | None = 1
    grid: tuple[int, int] = (2, 1)
    key_chunk: int | None = None
    query_tiles: int | None = None
    fidelity: str = "HiFi3"
    tree: bool | None = None

    @property
    def trees(self) -> bool:
        return self.nodes > 1 if self.tree is None else self.tree

    def random(self, seed: int = 0) -> list[torch.Tensor]:
        """Return q [1, heads, users * nodes, head_dim] and the caches k, v, bfloat16 with rare outliers."""
        generator = torch.Generator().manual_seed(seed)
        cache = (self.users, self.kv_heads, self.max_tokens, self.head_dim)
        found = []
        for shape in ((1, self.heads, self.users * self.nodes, self.head_dim), cache, cache):
            values = torch.randn(shape, generator=generator)
            outliers = torch.rand(shape, generator=generator) < 0.002
            found.append(torch.where(outliers, 5 * values, values).bfloat16())
        return found

    def inputs(self, q, k, v, split: bool = False, memory: str = "DRAM") -> list[In]:
        """Return q, k and v as the op takes them. split: heads over the columns of a mesh. memory: of q."""
        heads = (None, 1) if split else (None, None)
        if self.trees:
            query = In(q, memory=memory, split=heads)
        else:
            query = In(q.transpose(1, 2), memory=memory, split=(None, 2) if split else heads)
        return [query, *(In(part, self.cache, split=heads) for part in (k, v))]

    def config(self, **changes) -> Make:
        options = {"grid": self.grid, "workers_per_head": self.workers, "key_chunk": self.key_chunk}
        options |= (
            {"math_fidelity": self.fidelity} | ({"query_tiles": self.query_tiles} if self.trees else {}) | changes
        )
        return Make(f"{TREES}.op:ProgramConfig" if self.trees else f"{FLASH}:ProgramConfig", **options)

    def parents(self) -> list[list[int]]:
        """Return a tree of another form for each user."""
        forms = [chain(self.nodes), star(self.nodes), binary(self.nodes), random_tree(self.nodes, 1, 0.0)]
        forms.append(padded(star(max(1, self.nodes - 1)), self.nodes))
        return [forms[user % len(forms)] for user in range(self.users)]

    def call(self, mode: str, inputs: Sequence[In], at: Sequence[int], parents=None, **options) -> Call:
        """Return a call of one of the modes exact, guess, speculate.

        at: of each user the cached tokens before the root, -1 to skip it; a root is the token at that position.
        parents: of each user's nodes, by default those of parents(). options: the op's; chunk_size is 32 unless given.
        """
        where = [words(at)]
        if self.trees:
            where.append(words([intervals_of(tree) for tree in parents or self.parents()]))
        options = {"chunk_size": 32} | options
        if self.trees and mode == "exact":
            del options["chunk_size"]
        options = {"program_config": self.config()} | options
        padding = ("out", "exact", "guess") if self.trees else ()
        return Call(OPS[self.trees, mode], *inputs, *where, padded=padding, **options)

    def rows(self, found: torch.Tensor) -> torch.Tensor:
        """Return a result as [heads, users * nodes, head_dim]; the rows behind them must be zeros."""
        if not self.trees:
            return found[0].transpose(0, 1)
        count = self.users * self.nodes
        assert found.shape[2] % 32 == 0 and not found[:, :, count:].any()
        return found[0, :, :count]


def chain(nodes: int) -> list[int]:
    return list(range(-1, nodes - 1))


def star(nodes: int) -> list[int]:
    return [-1] + (nodes - 1) * [0]


def binary(nodes: int) -> list[int]:
    return [-1] + [(node - 1) // 2 for node in range(1, nodes)]


def random_tree(nodes: int, seed: int, roots: float = 0.1) -> list[int]:
    """Return parents in any valid order; a node is one more root with probability `roots`."""
    draw = random.Random(seed)
    return [-1 if node == 0 or draw.random() < roots else draw.randrange(node) for node in range(nodes)]


def padded(parents: Sequence[int], nodes: int) -> list[int]:
    """Add nodes that see only themselves, as of a narrower tree of a batch."""
    return [*parents, *(nodes - len(parents)) * [-1]]


def intervals_of(parents: Sequence[int]) -> list[list[int]]:
    """Return [enter times, leave times] of a recursive walk, children in order."""
    enter, leave, clock = [0] * len(parents), [0] * len(parents), 0

    def walk(node: int) -> None:
        nonlocal clock
        enter[node] = clock
        clock += 1
        for child in (index for index, parent in enumerate(parents) if parent == node):
            walk(child)
        leave[node] = clock - 1

    for root in (index for index, parent in enumerate(parents) if parent < 0):
        walk(root)
    return [enter, leave]


# ------------------------------------------------------------------------------ the oracle


class Wanted(NamedTuple):
    """exact, guess: float64 [heads, users * nodes, head_dim]. distance_sq, norm_sq: float64 [users]. priorities: the
    sender's."""

    exact: torch.Tensor
    guess: torch.Tensor
    distance_sq: torch.Tensor
    norm_sq: torch.Tensor
    priorities: list[int]


def wanted(
    case: Case, q, k, v, at, parents=None, guess_range: GuessRange = BOTH, threshold=0.1, scale=None, chosen=None
) -> Wanted:
    """Return what the reference says, of one token as of a tree's root; chosen: tiles that the guess reads besides."""
    trees = parents or case.parents()
    tree = speculative_tree_attention_reference(q, k, v, at, trees, guess_range, threshold, scale=scale, chosen=chosen)
    held = [
        YIELDED if accepted or prefix < 0 else HOLDS_EXACT_UNVERIFIED if bypassed else HOLDS_EXACT
        for prefix, accepted, bypassed in zip(at, tree.accepted, tree.bypassed, strict=True)
    ]
    return Wanted(tree.exact[0], tree.guess[0], tree.distance_sq, tree.norm_sq, held)


def check_rows(name: str, found: torch.Tensor, expected: torch.Tensor, least: float, at: Sequence[int] = ()) -> None:
    """Assert the correlation of all elements and of each row [heads, head_dim], so that one wrong node does not pass;
    rows of skipped users are zeros."""
    nodes = found.shape[1] // len(at) if at else found.shape[1]
    skipped = [row for row in range(found.shape[1]) if at and at[row // nodes] < 0]
    kept = [row for row in range(found.shape[1]) if row not in skipped]
    assert not found[:, skipped].any(), name
    error = (found.double() - expected).abs()
    by_row = [correlation(found[:, row], expected[:, row]) for row in kept]
    logger.info("{}: PCC of a row {:.6f}, largest error {:.1e}", name, min(by_row, default=1.0), error.max().item())
    assert found.isfinite().all() and min(by_row, default=1.0) >= least, name


def check_numbers(case: Case, found: dict[str, Any], expected: Wanted) -> None:
    """Assert norms within 1 %, distances within 1 %, of trees 2 %, and what bfloat16 results leave of one near 0."""
    norm_sq, distance_sq = found["norm_sq"].flatten().double(), found["distance_sq"].flatten().double()
    logger.info("distance {} of {}", distance_sq.tolist(), expected.distance_sq.tolist())
    torch.testing.assert_close(norm_sq, expected.norm_sq, rtol=0.01, atol=0)
    allowed = (0.02 if case.trees else 0.01) * expected.distance_sq + 2e-5 * expected.norm_sq
    assert ((distance_sq - expected.distance_sq).abs() <= allowed).all()


def check(case: Case, found: dict[str, Any], expected: Wanted, at: Sequence[int], threshold: float = 0.1) -> None:
    """Assert what a call speculates: both results, the numbers and, if it was given priorities, the decisions, but for
    users whose distance is within 3 % of the bound."""
    for name in ("exact", "guess"):
        rows = case.rows(found[name])
        check_rows(f"{name} {case} {at}", rows, getattr(expected, name), PCC[case.cache], at)
    check_numbers(case, found, expected)
    if "priority" in found:
        held, bound = found["priority"].flatten().tolist(), threshold**2 * expected.norm_sq
        assert not any(held[case.users :])
        for user, (mine, right) in enumerate(zip(held, expected.priorities, strict=False)):
            near = bool((expected.distance_sq[user] - bound[user]).abs() < 0.03 * bound[user])
            assert mine == right or near, f"user {user} of {case} at {at}"


def check_near(case: Case, found, right: Wanted, place=None, heads: slice = slice(None)) -> None:
    """Assert both results, of a chip with some of the oracle's heads at a place of a mesh, element by element."""
    for name in ("exact", "guess"):
        rows = case.rows(found[name] if place is None else found[name][place]).double()
        torch.testing.assert_close(rows, getattr(right, name)[heads], atol=0.03, rtol=0.02)


def run_speculating(worker, case: Case, calls: Sequence[dict[str, Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Run calls (at, and options of Case.call) in the modes speculate and exact, hold them to the oracle, and return
    the results of the former."""
    q, k, v = case.random(seed)
    inputs = case.inputs(q, k, v)
    if case.cache != "bfloat16":
        inputs[1].read, inputs[2].read = "k", "v"
    both = []
    for call in calls:
        options = {"guess_range": BOTH, "priority": priorities(HOLDS_GUESS)} | call
        alone = {name: call[name] for name in ("parents", "scale", "chunk_size") if name in call}
        both.append(case.call("speculate", inputs, **options))
        both.append(case.call("exact", inputs, call["at"], **alone))
    results = run_ops(worker, both)
    for call, found, exact in zip(calls, results[::2], results[1::2], strict=True):
        caches = (found["k"], found["v"]) if "k" in found else (k, v)
        given = {name: call[name] for name in ("parents", "guess_range", "threshold", "scale") if name in call}
        expected = wanted(case, q, *caches, call["at"], **given)
        check(case, found, expected, call["at"], call.get("threshold", 0.1))
        check_rows(f"exact alone {case}", case.rows(exact["out"]), expected.exact, PCC[case.cache], call["at"])
    return results[::2]


def garbage_behind(case: Case, part: torch.Tensor, at: Sequence[int], clean: bool) -> torch.Tensor:
    """Return a cache with zeros, or with finite garbage, infinities and NaN, behind each user's nodes."""
    part = part.clone()
    kinds = torch.tensor([1e8, -1e38, float("inf"), float("-inf"), float("nan")]).bfloat16()
    kinds = kinds[:2] if case.cache == "bfloat8_b" else kinds  # it has no others
    for user, position in enumerate(at):
        behind = part[user, :, position + case.nodes :]
        behind[...] = 0 if clean else kinds[torch.arange(behind.numel()) % len(kinds)].view(behind.shape)
    return part


def unread_is_nan(part: torch.Tensor, at: Sequence[int], guess_range: GuessRange, tiles=None) -> torch.Tensor:
    """Return a cache with NaN in all tokens that no guess may read. tiles: that it reads besides, by user and head."""
    part = part.clone()
    for user, position in enumerate(at):
        for head in range(part.shape[1]):
            chosen = tiles[user][head] if tiles else ()
            seen = guess_positions(position, guess_range, chosen)
            part[user, head, : position + 1][~seen] = math.nan
    return part


def in_blocks(cache: torch.Tensor, table: torch.Tensor, blocks: int) -> torch.Tensor:
    """Lay a cache [users, kv_heads, capacity, head_dim] out as [blocks, kv_heads, block, head_dim] by a page table
    [users, blocks of a user]; free blocks hold NaN."""
    parts = cache.unflatten(2, (table.shape[1], -1)).transpose(1, 2).flatten(0, 1)
    laid = torch.full((blocks, *parts.shape[1:]), math.nan, dtype=cache.dtype)
    laid[table.flatten().long()] = parts
    return laid


# ------------------------------------------------------------------------------ chosen tiles, and masses

UNTOUCHED = 12345
CHOOSING = Case(1, 8, 2, 64, 320, users=5, grid=(4, 1))
CHOOSING_AT = [319, 290, -1, 100, 250]
# Two heads of each user: apart and beside each other; at either end of the middle, and none; of a skipped user; the
# whole middle, and with what counts for nothing: the ends and tiles past the position.
CHOSEN = [[[2, 5, 7], [4, 5, 6]], [[1, 7], []], [[1], [2]], [[1], [1]], [[0, 7, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8]]]


def chosen_tiles(case: Case = CHOOSING, tiles=CHOSEN) -> In:
    return words(chosen_rows(tiles, case.max_tokens), "uint32")


def blank_masses(case: Case):
    return words(torch.full((case.users, case.kv_heads, case.max_tokens // 32), UNTOUCHED), "uint32", read="masses")
