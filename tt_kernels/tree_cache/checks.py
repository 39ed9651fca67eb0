# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the two ops refuse, checked on plain values so that no ttnn is needed. Every message names the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tt_kernels.common.attention_checks import CACHE_DTYPES, TILE
from tt_kernels.common.page_table import Paging, users_and_capacity
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, check_words

MAX_NODES = 256
# The addresses of all caches are runtime arguments, of which a kernel takes 341 words.
MAX_CACHES = 256


@dataclass(frozen=True)
class Problem:
    """The shapes of one call: of a cache, of a tree, and the number of caches. capacity: positions of a user. paging:
    None for caches without pages."""

    caches: int
    users: int
    kv_heads: int
    capacity: int
    head_dim: int
    nodes: int
    block_float: bool
    paging: Paging | None = None

    @property
    def head_tiles(self) -> int:
        return self.head_dim // TILE

    @property
    def jobs(self) -> int:
        """Columns of tiles of one head of one user in one cache: what a core moves at a time."""
        return self.caches * self.users * self.kv_heads * self.head_tiles

    @property
    def max_tiles(self) -> int:
        """The most tiles that the rows of a tree can take, wherever they begin."""
        return (self.nodes + TILE - 2) // TILE + 1


def check_caches(
    caches: Mapping[str, TensorFacts],
    nodes: int,
    prefix: TensorFacts,
    page_table: TensorFacts | None = None,
    prefix_name: str = "prefix",
) -> Problem:
    """Check the caches, by name, all of one shape and dtype, and return the Problem. Errors: UnsupportedError."""
    if not 1 <= len(caches) <= MAX_CACHES:
        raise UnsupportedError(f"1 to {MAX_CACHES} caches are moved in one call, there are {len(caches)}")
    first_name, first = next(iter(caches.items()))
    for name, cache in caches.items():
        if not cache.on_device or not cache.interleaved or cache.layout != "TILE":
            raise UnsupportedError(f"{name} must be interleaved on the device in TILE layout, it is {cache}")
        if (cache.shape, cache.dtype) != (first.shape, first.dtype):
            raise UnsupportedError(
                f"the caches must be alike: {first_name} is {first.dtype} {first.shape}, {name} is {cache.dtype} "
                f"{cache.shape}"
            )
    if first.dtype not in CACHE_DTYPES:
        raise UnsupportedError(f"the caches must be one of {', '.join(CACHE_DTYPES)}, they are {first.dtype}")
    if len(first.shape) != 4 or first.shape[2] % TILE or first.shape[3] % TILE or 0 in first.shape:
        raise UnsupportedError(
            "the caches must be [users, kv_heads, capacity, head_dim] with a capacity and head_dim in multiples of "
            f"{TILE}, they are {first.shape}"
        )
    kv_heads, head_dim = first.shape[1], first.shape[3]
    users, capacity, paging = users_and_capacity(first, page_table)
    if type(nodes) is not int or not 1 <= nodes <= MAX_NODES:
        raise UnsupportedError(f"nodes must be an integer from 1 to {MAX_NODES}, got {nodes!r}")
    if nodes > capacity:
        raise UnsupportedError(f"{nodes} nodes do not fit caches of {capacity} positions")
    check_words(prefix_name, prefix, "INT32", (users,))
    block_float = first.dtype == "BFLOAT8_B"
    return Problem(len(caches), users, kv_heads, capacity, head_dim, nodes, block_float, paging)


def check_new(name: str, new: TensorFacts, problem: Problem, cache_dtype: str) -> None:
    """Check new keys or values. Errors: UnsupportedError."""
    wanted = TensorFacts((1, problem.kv_heads, problem.users * problem.nodes, problem.head_dim), cache_dtype)
    if new != wanted:
        raise UnsupportedError(f"{name} must be {wanted} (one row per node), they are {new}")


def check_path(path: TensorFacts, problem: Problem, first_column: int) -> None:
    """Raise UnsupportedError unless columns [first_column, first_column + nodes) exist."""
    if len(path.shape) != 2 or type(first_column) is not int or first_column < 0:
        raise UnsupportedError(
            f"path must be [users, columns] with its nodes from a column on, it is {path.shape} from {first_column!r}"
        )
    check_words("path", path, "INT32", (problem.users, path.shape[1]))
    if first_column + problem.nodes > path.shape[1]:
        raise UnsupportedError(
            f"path has {path.shape[1]} columns, {problem.nodes} from column {first_column} on are read"
        )
