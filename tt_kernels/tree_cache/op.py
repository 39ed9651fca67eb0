# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Keys and values of token trees in the KV cache.

A tree's nodes are written after their user's prefix, node n at position prefix + n, which is where `tree_attention`
reads them. After verification the accepted path moves to consecutive positions; rejected nodes stay after it and are
overwritten by later tokens before anything reads them. Rows are moved as they are stored: bfloat8_b rows keep their
exponents and are not rounded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tt_kernels.common.attention_checks import CACHE_DTYPES, TILE
from tt_kernels.common.circular_buffers import TILE_BYTES, aligned, word_buffer
from tt_kernels.common.cores import check_on_device, grid_cores
from tt_kernels.common.kernel import kernel_descriptor, program_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.page_table import Paging, paging_values, users_and_capacity
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, check_words, facts, facts_or_none

KERNEL = Path(__file__).parent / "kernels" / "move_rows.cpp"
_SOURCE_CB, _TARGET_CB, _WORDS_CB = range(3)
_LINE = 64
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


def write_nodes(
    key_cache: ttnn.Tensor,
    value_cache: ttnn.Tensor,
    keys: ttnn.Tensor,
    values: ttnn.Tensor,
    prefix: ttnn.Tensor,
    nodes: int,
    *,
    page_table: Any = None,
) -> None:
    """Write the keys and values of all users' nodes into a layer's cache, in place.

    key_cache, value_cache: bfloat16 or bfloat8_b [users, kv_heads, capacity, head_dim], TILE, interleaved.
    keys, values: of the caches' dtype, [1, kv_heads, users * nodes, head_dim], TILE, interleaved: row u * nodes + n is
        node n of user u.
    prefix: int32 [users], ROW_MAJOR: cached tokens of each user; -1 leaves the user out. Node n goes to position prefix
        + n; a node at or past the capacity is not written.
    page_table: int32 [users, blocks of a user], ROW_MAJOR: the caches are then [blocks, kv_heads, 32, 64 or 128,
        head_dim] (common/page_table.py). No two users may have a block in common that their nodes are written to.

    Errors: UnsupportedError (a ValueError) before the launch.
    """
    caches = {"key_cache": facts("key_cache", key_cache), "value_cache": facts("value_cache", value_cache)}
    problem = check_caches(caches, nodes, facts("prefix", prefix), facts_or_none("page_table", page_table))
    for name, new in (("keys", keys), ("values", values)):
        check_new(name, facts(name, new), problem, caches["key_cache"].dtype)
    _launch(problem, [key_cache, value_cache], [keys, values], prefix, None, 0, page_table)


def commit_path(
    caches: Sequence[Any], prefix: ttnn.Tensor, path: Any, nodes: int, *, first_column: int = 0, page_table: Any = None
) -> None:
    """Move the accepted nodes' keys and values to the positions after the root, in place, in all caches at once.

    caches: keys and values of all layers in any order, as for `write_nodes`, at most 256.
    prefix: as for `write_nodes`: the tree's root is at position prefix and stays there.
    path: int32 [users, columns], ROW_MAJOR: from `first_column` on the accepted nodes after the root in order, with -1
        (or anything that is no node) after the last. `Verified.result` of speculative_sampling is one, from column
        RESULT_HEAD on. Element j goes from position prefix + path[j] to prefix + 1 + j; all are read before any is
        written, so the nodes may be numbered in any order.
    page_table: as for `write_nodes`.

    Errors: UnsupportedError (a ValueError) before the launch.
    """
    named = {f"caches[{index}]": facts(f"caches[{index}]", cache) for index, cache in enumerate(caches)}
    problem = check_caches(named, nodes, facts("prefix", prefix), facts_or_none("page_table", page_table))
    check_path(facts("path", path), problem, first_column)
    _launch(problem, list(caches), list(caches), prefix, path, first_column, page_table)


def _launch(
    problem: Problem,
    caches: list[Any],
    sources: list[Any],
    prefix: ttnn.Tensor,
    path: Any,
    first_column: int,
    page_table: Any,
) -> None:
    device = caches[0].device()
    others = [prefix, *sources, *(tensor for tensor in (path, page_table) if tensor is not None)]
    for tensor in (*caches, *others):
        check_on_device("a tensor of the call", tensor, device)
    committing = path is not None
    cores = grid_cores(device)[: problem.jobs]
    tile_bytes = TILE_BYTES[caches[0].dtype.name]
    prefix_bytes = aligned(prefix.buffer_aligned_page_size(), _LINE)
    path_bytes = aligned(path.buffer_aligned_page_size(), _LINE) if committing else 0
    words_bytes = prefix_bytes + path_bytes + (0 if problem.paging is None else problem.paging.row_bytes)
    pages = prefix if page_table is None else page_table
    accessors = {"cache": caches[0], "source": sources[0], "prefix": prefix, "pages": pages}
    chosen, shape = paging_values(problem.paging)
    common = {
        "users": problem.users,
        "kv_heads": problem.kv_heads,
        "capacity": problem.capacity,
        "nodes": problem.nodes,
        "jobs": problem.jobs,
        "cores": len(cores),
        "source_tiles": sources[0].padded_shape[2] // TILE,
        **shape,
        "prefix": prefix.buffer_address(),
        "pages": pages.buffer_address(),
        "path": path.buffer_address() if committing else 0,
        "first_column": first_column,
        "caches": [cache.buffer_address() for cache in caches],
        "sources": [] if committing else [source.buffer_address() for source in sources],
    }
    kernel = kernel_descriptor(
        KERNEL,
        "DataMovement",
        constants={
            "committing": int(committing),
            "block_float": int(problem.block_float),
            "source_cb": _SOURCE_CB,
            "target_cb": _TARGET_CB,
            "words_cb": _WORDS_CB,
            "prefix_bytes": prefix_bytes,
            "path_bytes": path_bytes,
            "head_tiles": problem.head_tiles,
            **chosen,
        },
        accessors=accessors | {"path": path if committing else prefix},
        common=common,
        per_core={core: {"core": index} for index, core in enumerate(cores)},
    )
    ranges = kernel.core_ranges
    sizes = {
        _SOURCE_CB: (tile_bytes, problem.max_tiles),
        _TARGET_CB: (tile_bytes, problem.max_tiles),
        _WORDS_CB: (words_bytes, 1),
    }
    buffers = [word_buffer(index, page, ranges, count) for index, (page, count) in sizes.items()]
    ttnn.generic_op([*others, *caches], program_of([kernel], buffers))
