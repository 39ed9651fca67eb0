# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The geometry of one forward: which cache slots each query sees, worked out once for all layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ...config import BUDGET, LARGEST_CHUNK, check_budget
from ...spec_decode.tree import TokenTree, TokenTreeBatch, interval_mask

# Masks are built for this many queries at a time, so a mask is never larger than QUERY_BLOCK x cached tokens.
QUERY_BLOCK = 256


class UserGroup(NamedTuple):
    """Neighbouring users with equally many committed tokens: batch rows [start, end), whose cache rows follow
    one another from `storage`."""

    start: int
    end: int
    storage: int
    length: int


def check_positive(label: str, value: object) -> None:
    """Raise ValueError for what is not a positive integer, or above LARGEST_CHUNK."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{label} must be a positive integer, got {value!r}")
    if value > LARGEST_CHUNK:
        raise ValueError(f"{label} must be at most {LARGEST_CHUNK}, got {value}")


@dataclass(frozen=True)
class GuessRange:
    """Which keys the guess of a query reads: the first `first` and the last ones up to its own. The nodes of a token
    tree read the cached keys that its root reads, and all of the tree's keys that they see.

    The tail ends at the next multiple of `alignment` after the query (32: the tile boundary, as the device kernel
    reads; 1: the paper's definition), so it has last - alignment + 1 to `last` keys. whole_tail: the tail begins one
    such unit earlier where the query does not end one, so that it has at least `last` keys. budget: between them each
    key/value head reads tiles of 32 keys until this part of the known attention weight is read (../alspec/budget.py).
    Queries with fewer cached tokens than both ends read, with a budget than twice `last`, are bypassed. Raises
    ValueError for sizes that are not positive multiples of the alignment, and for a budget that is not between 0 and 1
    or beside another alignment than 32.
    """

    first: int
    last: int
    alignment: int = 32
    whole_tail: bool = False
    budget: float | None = None

    def __post_init__(self) -> None:
        for label in ("alignment", "first", "last"):
            value = getattr(self, label)
            check_positive(label, value)
            if value % self.alignment:
                raise ValueError(f"{label} {value} is not a multiple of the tail's alignment {self.alignment}")
        if self.budget is not None:
            check_budget(self.budget)
        if self.budget is not None and self.alignment != 32:
            raise ValueError(f"a budget of tiles of 32 keys beside a tail's alignment of {self.alignment}")

    @classmethod
    def of(cls, chunk_size: int | GuessRange) -> GuessRange:
        """Return a range as it is, and that of both ends for a size."""
        return chunk_size if isinstance(chunk_size, GuessRange) else cls.both_ends(chunk_size)

    @classmethod
    def both_ends(cls, chunk_size: int, tail_alignment: int = 32) -> GuessRange:
        """Return the default, the paper's but for whole tiles: at least `chunk_size` keys at either end. Raises
        ValueError when it is not a positive multiple of the alignment."""
        check_positive("chunk_size", chunk_size)
        check_positive("tail_alignment", tail_alignment)
        if chunk_size % tail_alignment:
            raise ValueError(f"chunk_size {chunk_size} is not a multiple of tail_alignment {tail_alignment}")
        return cls(chunk_size, chunk_size, tail_alignment, whole_tail=True)

    @classmethod
    def by_budget(cls, chunk_size: int, budget: float = BUDGET) -> GuessRange:
        """Return a guess of one tile of first keys, `chunk_size` last ones, and between them what the budget asks for.
        Raises ValueError when `chunk_size` is not a positive multiple of 32, and for a budget out of range."""
        return cls(32, chunk_size, 32, whole_tail=True, budget=budget)

    @property
    def bypass_below(self) -> int:
        """Cached tokens: what both ends read, with a budget twice the last ones."""
        return self.first + self.last if self.budget is None else 2 * self.last

    def tail_start(self, cached: Any) -> Any:
        """Return the first key of the tail of a query with `cached` tokens, itself included (an int, or an integer
        tensor for as many queries)."""
        ahead = 0 if self.whole_tail else self.alignment - 1
        return (cached + ahead) // self.alignment * self.alignment - self.last

    def cut(self, cached: int) -> tuple[int, int] | None:
        """Return (end of the first, start of the last) keys of the guess of a query with `cached` tokens, None when it
        is bypassed."""
        return None if cached < self.bypass_below else (self.first, self.tail_start(cached))

    def reads(self, key: Any, cached: Any) -> Any:
        """Return whether the guess of a query with `cached` tokens reads the key at a position, if the query sees it:
        the one statement of the rule, for policies, whole texts and transformers. Integers or integer tensors, whose
        shapes broadcast. Tiles are chosen besides (../alspec/budget.py)."""
        return (key < self.first) | (key >= self.tail_start(cached))


class DecodeStep:
    """T new tokens for each user of a cache: positions, groups of equal length, and masks.

    cached: int64 [batch, T], tokens that each query attends to along its own path, itself included: its logical
    position + 1. eligible: bool [batch, T], those that do not bypass speculation; a tree's nodes all as its root.
    earlier: nodes of the tree that earlier steps wrote.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        users: Sequence[int],
        tokens: int,
        tree: TokenTree | TokenTreeBatch | None = None,
        guess_range: GuessRange = GuessRange(128, 128),
    ) -> None:
        """Work out positions and groups. Raises ValueError when the tree's tensors do not fit [batch, T]."""
        self.lengths, self.users, self.tokens = list(lengths), list(users), tokens
        self.guess_range = guess_range
        self.tree = None if tree is None else _tree_tensors(tree, len(users), tokens)
        self.earlier = 0 if self.tree is None else self.tree[0].shape[1] - tokens
        start = torch.tensor(self.lengths)[:, None]
        self.positions = start + (
            torch.arange(tokens)[None, :] if self.tree is None else self.tree[2][:, self.earlier :]
        )
        self.cached = self.positions + 1
        deciding = self.cached if self.tree is None else (start + 1).expand(-1, tokens)
        self.eligible = deciding >= guess_range.bypass_below
        self.groups = self._group()
        self._masks: dict[tuple[str, int, int, int], torch.Tensor] = {}

    def blocks(self) -> Iterator[slice]:
        """Yield query blocks of at most QUERY_BLOCK tokens."""
        for start in range(0, self.tokens, QUERY_BLOCK):
            yield slice(start, min(start + QUERY_BLOCK, self.tokens))

    def masks(self, row: int, block: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (visible, ends), bool [t, n]: the slots that each query of the block sees, and the slots that its
        guess reads. n is the last slot that any of them sees, plus one."""
        return self.visible(row, block), self._kept(self._ends, row, block)

    def nodes(self, row: int) -> torch.Tensor:
        """Return bool [T]: which of the step's tokens belong to the tree of node 0; padding does not. Raises ValueError
        for a step without a tree."""
        if self.tree is None:
            raise ValueError("a step without a tree has no nodes")
        enter, leave, _ = (values[row] for values in self.tree)
        return ((enter >= enter[0]) & (leave <= leave[0]))[self.earlier :]

    def slots(self, row: int, block: slice) -> int:
        """Return how many cache slots the block's queries can see: in a chain none after it, in a tree all."""
        return self.lengths[row] + (block.stop if self.tree is None else self.earlier + self.tokens)

    def visible(self, row: int, block: slice) -> torch.Tensor:
        """Return bool [t, n]: which cache slots each query of the block sees."""
        return self._kept(self._visible, row, block)

    def _kept(self, make: Callable[[int, slice], torch.Tensor], row: int, block: slice) -> torch.Tensor:
        """Return a mask, made once for all layers of a step of one block."""
        if self.tokens > QUERY_BLOCK:
            return make(row, block)
        key = make.__name__, row, block.start, block.stop
        if key not in self._masks:
            self._masks[key] = make(row, block)
        return self._masks[key]

    def _visible(self, row: int, block: slice) -> torch.Tensor:
        length, slots = self.lengths[row], self.slots(row, block)
        visible = torch.ones((block.stop - block.start, slots), dtype=torch.bool)
        if self.tree is None:
            queries = torch.arange(block.start, block.stop)[:, None]
            torch.le(torch.arange(slots - length)[None, :], queries, out=visible[:, length:])
        else:
            enter, leave, _ = (values[row] for values in self.tree)
            own = slice(self.earlier + block.start, self.earlier + block.stop)
            visible[:, length:] = interval_mask(enter, leave, own.start, own.stop)
        return visible

    def _ends(self, row: int, block: slice) -> torch.Tensor:
        keys = torch.arange(self.slots(row, block))
        # The tail of a root begins at or before its own slot, the first of the tree's.
        cached = self.cached[row, block, None] if self.tree is None else torch.tensor([[self.lengths[row] + 1]])
        return self.guess_range.reads(keys, cached).expand(block.stop - block.start, -1)

    def _group(self) -> list[UserGroup]:
        groups: list[UserGroup] = []
        for row, (user, length) in enumerate(zip(self.users, self.lengths)):
            last = groups[-1] if groups else None
            if last and length == last.length and user == last.storage + row - last.start:
                groups[-1] = last._replace(end=row + 1)
            else:
                groups.append(UserGroup(row, row + 1, user, length))
        return groups


def _tree_tensors(tree: TokenTree | TokenTreeBatch, batch: int, tokens: int) -> tuple[torch.Tensor, ...]:
    tensors: list[torch.Tensor] = []
    for name in ("enter", "leave", "depth"):
        values = torch.as_tensor(getattr(tree, name)).to(torch.int64)
        nodes = values.shape[-1] if values.ndim else 0
        if nodes < tokens or tuple(values.shape) not in ((nodes,), (batch, nodes)):
            raise ValueError(
                f"tree.{name} has shape {list(values.shape)}; expected [{tokens}] or [{batch}, {tokens}] as "
                "the tokens, or more nodes when earlier ones are in the cache"
            )
        if tensors and nodes != tensors[0].shape[1]:
            raise ValueError(f"tree.{name} has {nodes} nodes and tree.enter {tensors[0].shape[1]}")
        tensors.append(values.expand(batch, nodes))
    return tuple(tensors)
