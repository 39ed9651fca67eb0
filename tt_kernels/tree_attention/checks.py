# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the op refuses, checked on plain values so that no ttnn is needed. Every message names the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tt_kernels.common.attention_checks import (
    TILE,
    AttentionShape,
    check_attention_tensors,
    check_heads,
    check_positions,
)
from tt_kernels.common.page_table import check_page_table, users_and_capacity
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, check_words
from tt_kernels.speculative_flash_decode.checks import checked_shape
from tt_kernels.speculative_flash_decode.guess_range import GuessRange

# Visiting times are split into two parts of four bits, which every math fidelity multiplies exactly
# (kernels/interval_tiles.hpp).
MAX_NODES = 256
# Query rows of a piece of a prefill chunk, at most: so many pay for reading the keys.
PIECE_ROWS = 256


@dataclass(frozen=True)
class Problem(AttentionShape):
    """The shapes of one call. guess: what the guess reads, None without speculation. block_heads: key/value heads of a
    cache's blocks, for the pieces of a prefill chunk, which count as users; 0 for token trees."""

    nodes: int
    guess: GuessRange | None = None
    block_heads: int = 0

    @property
    def query_tiles(self) -> int:
        """Tiles that the queries of a key/value head of one user take: one row per node and query head."""
        return -(-self.group_heads * self.nodes // TILE)

    @property
    def tree_tiles(self) -> int:
        """The most key tiles that can hold nodes, wherever the prefix ends."""
        return min(-(-(self.nodes + TILE - 1) // TILE), self.max_tokens // TILE)


def check_problem(
    q: TensorFacts,
    k: TensorFacts,
    v: TensorFacts,
    prefix: TensorFacts,
    intervals: TensorFacts,
    page_table: TensorFacts | None = None,
    chosen: TensorFacts | None = None,
    tile_masses: TensorFacts | None = None,
) -> Problem:
    """Check the inputs and return their Problem. Errors: UnsupportedError."""
    check_attention_tensors(q, k, v)
    one, query_heads, rows, head_dim = q.shape
    users, max_tokens, paging = users_and_capacity(k, page_table)
    check_positions("prefix", prefix, users)
    nodes = intervals.shape[2] if len(intervals.shape) == 3 else 0
    if not 1 <= nodes <= MAX_NODES:
        raise UnsupportedError(
            f"intervals must be of 1 to {MAX_NODES} nodes, ({users}, 2, nodes), they are {intervals.shape}"
        )
    check_words("intervals", intervals, "INT32", (users, 2, nodes))
    if one != 1 or rows != users * nodes:
        raise UnsupportedError(
            f"q must be [1, heads, users * nodes, head_dim] with {users} * {nodes} = {users * nodes} rows, its "
            f"shape is {q.shape}"
        )
    if query_heads < 1:
        raise UnsupportedError(f"q must have query heads, its shape is {q.shape}")
    shape = checked_shape(users, query_heads, head_dim, k, max_tokens, paging, chosen, tile_masses)
    if nodes > max_tokens:
        raise UnsupportedError(f"a tree of {nodes} nodes exceeds the {max_tokens} tokens the caches hold")
    return Problem(**shape, nodes=nodes)


def check_prefill(
    q: TensorFacts, k: TensorFacts, v: TensorFacts, start: TensorFacts, page_table: TensorFacts, cores: int
) -> Problem:
    """Check the inputs of `prefill_attention` after `check_attention_tensors`; return their Problem on so many cores.
    Errors: UnsupportedError."""
    one, query_heads, tokens, head_dim = q.shape
    groups, block_heads = page_table.shape[0] if page_table.shape else 0, k.shape[1]
    paging, kv_heads = check_page_table(page_table, groups, k), groups * block_heads
    check_words("start", start, "INT32", (1,))
    if one != 1 or query_heads < 1 or tokens < TILE or tokens % TILE or tokens > paging.capacity:
        raise UnsupportedError(
            f"q must be [1, heads, tokens, head_dim] with a multiple of {TILE} tokens up to the {paging.capacity} of "
            f"the page table, its shape is {q.shape}"
        )
    check_heads(query_heads, kv_heads, head_dim, paging.capacity)
    if head_dim != k.shape[3]:
        raise UnsupportedError(f"q has head_dim {head_dim}, the caches have {k.shape[3]}")
    nodes = piece_tokens(tokens, query_heads // kv_heads, kv_heads, cores)
    shape = (tokens // nodes, query_heads, kv_heads, head_dim, paging.capacity, k.dtype)
    return Problem(*shape, paging=paging, nodes=nodes, block_heads=block_heads)


def piece_tokens(tokens: int, group_heads: int, kv_heads: int, cores: int) -> int:
    """Return the tokens of a piece of a prefill chunk, all of whose queries of a key/value head a core takes at once:
    a multiple of 32 that divides the chunk, of PIECE_ROWS rows, or fewer where cores would be without a piece."""
    most = min(MAX_NODES, PIECE_ROWS // group_heads)
    sizes = [size for size in range(TILE, most + 1, TILE) if tokens % size == 0]
    return max((size for size in sizes if tokens // size * kv_heads >= cores), default=TILE)


def pass_tiles(problem: Problem, cores: int) -> int:
    """Return the query tiles that a core takes through the cache at once: all of a piece's, or those of fewer query
    heads where less than half of the cores would have any. More of them would wait for the DRAM."""
    tiles = problem.query_tiles
    sizes = [size for size in range(1, tiles + 1) if tiles % size == 0]
    return max((size for size in sizes if 2 * problem.items * tiles // size >= cores), default=1)


def check_intervals(enter: Sequence[int], leave: Sequence[int]) -> list[int]:
    """Check what the op relies on and the device does not check: that the visiting times of a tree's N nodes are those
    of a depth-first walk (FlashSpecInfer, section 5.1). Return how many ancestors each node has.

    enter: a permutation of 0 to N - 1. leave: the last time inside the node's subtree, inclusive. Vectors of integers
        (lists or tensors). Errors: ValueError with the first offending node and its values.
    """
    enters, leaves = ([int(time) for time in times] for times in (enter, leave))
    nodes = len(enters)
    if not 1 <= nodes <= MAX_NODES or len(leaves) != nodes:
        raise ValueError(f"a tree has 1 to {MAX_NODES} nodes, this one {nodes} enter and {len(leaves)} leave times")
    if sorted(enters) != list(range(nodes)):
        raise ValueError(f"enter times must be a permutation of 0 to {nodes - 1}, they are {enters}")
    ancestors = [0] * nodes
    open_until: list[int] = []  # of the nodes whose subtrees the walk is in
    for node in sorted(range(nodes), key=enters.__getitem__):
        first, last = enters[node], leaves[node]
        while open_until and open_until[-1] < first:
            open_until.pop()
        most = open_until[-1] if open_until else nodes - 1
        if not first <= last <= most:
            raise ValueError(
                f"node {node} enters at {first} and leaves at {last}, not from {first} to {most}: no depth-first walk "
                "does that"
            )
        ancestors[node] = len(open_until)
        open_until.append(last)
    return ancestors


def check_room(prefixes: Sequence[int], nodes: int, capacity: int) -> None:
    """Check what the device does not check either: that each user's tree fits after its prefix.

    prefixes: cached tokens per user, -1 for a user that is skipped. capacity: tokens the cache holds per user. Errors:
        ValueError with the first user and its values.
    """
    for user, prefix in enumerate(int(tokens) for tokens in prefixes):
        if prefix < -1:
            raise ValueError(f"user {user} has a prefix of {prefix}: it must be -1 (skipped), 0 or more")
        if prefix >= 0 and prefix + nodes > capacity:
            raise ValueError(
                f"user {user} has {prefix} cached tokens and a tree of {nodes} nodes: {prefix + nodes} are more than "
                f"the {capacity} the cache holds"
            )
