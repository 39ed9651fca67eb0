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
from tt_kernels.common.page_table import users_and_capacity
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, check_chosen, check_tile_masses

# Visiting times are split into two parts of four bits, which every math fidelity multiplies exactly
# (kernels/interval_tiles.hpp).
MAX_NODES = 256


@dataclass(frozen=True)
class Problem(AttentionShape):
    """The shapes of one call. guess: what the guess reads, None without speculation."""

    nodes: int
    guess: GuessRange | None = None

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
    check_attention_tensors(q, k, v, {"prefix": prefix, "intervals": intervals})
    one, rows, query_heads, head_dim = q.shape[0], q.shape[2], q.shape[1], q.shape[3]
    kv_heads, cache_dim = k.shape[1], k.shape[3]
    users, max_tokens, paging = users_and_capacity(k, page_table)
    check_positions("prefix", prefix, users)
    nodes = _nodes_of(intervals, users)
    if one != 1 or rows != users * nodes:
        raise UnsupportedError(
            f"q must be [1, heads, users * nodes, head_dim] with {users} * {nodes} = {users * nodes} rows, its "
            f"shape is {q.shape}"
        )
    if cache_dim != head_dim:
        raise UnsupportedError(f"q has head_dim {head_dim}, the caches have {cache_dim}")
    check_heads(query_heads, kv_heads, head_dim, max_tokens)
    if query_heads < 1:
        raise UnsupportedError(f"q must have query heads, its shape is {q.shape}")
    if nodes > max_tokens:
        raise UnsupportedError(f"a tree of {nodes} nodes exceeds the {max_tokens} tokens the caches hold")
    if chosen is not None:
        check_chosen(chosen, users, kv_heads, max_tokens)
    if tile_masses is not None:
        check_tile_masses(tile_masses, users, kv_heads, max_tokens)
    sizes = (users, query_heads, kv_heads, head_dim, max_tokens)
    return Problem(
        *(*sizes, k.dtype, nodes),
        with_chosen=chosen is not None,
        with_masses=tile_masses is not None,
        paging=paging,
    )


def _nodes_of(intervals: TensorFacts, users: int) -> int:
    """Return the nodes per tree. Errors: UnsupportedError."""
    shape = intervals.shape
    if len(shape) != 3 or shape[:2] != (users, 2) or (intervals.dtype, intervals.layout) != ("INT32", "ROW_MAJOR"):
        raise UnsupportedError(
            f"intervals must be INT32 ROW_MAJOR ({users}, 2, nodes), it is {intervals.dtype} {intervals.layout} {shape}"
        )
    if not 1 <= shape[2] <= MAX_NODES:
        raise UnsupportedError(f"1 to {MAX_NODES} nodes are supported, intervals has {shape[2]}")
    return shape[2]


def check_intervals(enter: Sequence[int], leave: Sequence[int]) -> None:
    """Check what the op relies on and the device does not check: that the visiting times of a tree's N nodes are those
    of a depth-first walk (FlashSpecInfer, section 5.1).

    enter: a permutation of 0 to N - 1. leave: the last time inside the node's subtree, inclusive. Vectors of integers
        (lists or tensors). Errors: ValueError with the first offending node and its values.
    """
    enters, leaves = ([int(time) for time in times] for times in (enter, leave))
    nodes = len(enters)
    if len(leaves) != nodes:
        raise ValueError(f"{nodes} enter times, but {len(leaves)} leave times")
    if not 1 <= nodes <= MAX_NODES:
        raise ValueError(f"a tree has 1 to {MAX_NODES} nodes, this one has {nodes}")
    at: dict[int, int] = {}
    for node, (first, last) in enumerate(zip(enters, leaves, strict=True)):
        if not 0 <= first < nodes:
            raise ValueError(f"node {node} enters at {first}, which is not from 0 to {nodes - 1}")
        if first in at:
            raise ValueError(f"node {node} enters at {first}, as node {at[first]} does: enter times are a permutation")
        at[first] = node
        if not first <= last < nodes:
            raise ValueError(f"node {node} enters at {first} and leaves at {last}, not from {first} to {nodes - 1}")
    open_nodes: list[int] = []  # whose subtrees the walk is in
    for time in range(nodes):
        node = at[time]
        while open_nodes and leaves[open_nodes[-1]] < time:
            open_nodes.pop()
        if open_nodes and leaves[node] > leaves[open_nodes[-1]]:
            other = open_nodes[-1]
            raise ValueError(
                f"node {node} [{enters[node]}, {leaves[node]}] and node {other} [{enters[other]}, "
                f"{leaves[other]}] overlap, and neither holds the other: no depth-first walk does that"
            )
        open_nodes.append(node)


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
