# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Keys and values of token trees in the KV cache.

A tree's nodes are written after their user's prefix, node n at position prefix + n, which is where `tree_attention`
reads them. After verification the accepted path moves to consecutive positions; rejected nodes stay after it and are
overwritten by later tokens before anything reads them. Rows are moved as they are stored: bfloat8_b rows keep their
exponents and are not rounded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tt_kernels.common.cores import check_on_device
from tt_kernels.common.kernel import kernel_descriptor
from tt_kernels.common.tensor_facts import facts
from tt_kernels.tree_cache.checks import Problem, check_caches, check_new, check_path

KERNEL = Path(__file__).parent / "kernels" / "move_rows.cpp"
_SOURCE_CB, _TARGET_CB, _WORDS_CB = range(3)
_TILE_BYTES = {False: 2048, True: 1088}
_WORD_ALIGNMENT = 64


def write_nodes(key_cache, value_cache, keys, values, prefix, nodes: int) -> None:
    """Write the keys and values of all users' nodes into a layer's cache, in place.

    key_cache, value_cache: bfloat16 or bfloat8_b [users, kv_heads, capacity, head_dim], TILE, interleaved.
    keys, values: of the caches' dtype, [1, kv_heads, users * nodes, head_dim], TILE, interleaved: row u * nodes + n is
        node n of user u.
    prefix: int32 [users], ROW_MAJOR: cached tokens of each user; -1 leaves the user out. Node n goes to position prefix
        + n; a node at or past the capacity is not written.

    Errors: UnsupportedError (a ValueError) before the launch.
    """
    caches = {"key_cache": facts("key_cache", key_cache), "value_cache": facts("value_cache", value_cache)}
    problem = check_caches(caches, nodes, facts("prefix", prefix))
    for name, new in (("keys", keys), ("values", values)):
        check_new(name, facts(name, new), problem, caches["key_cache"].dtype)
    _launch(problem, [key_cache, value_cache], [keys, values], prefix, None, 0)


def commit_path(caches: Sequence, prefix, path, nodes: int, *, first_column: int = 0) -> None:
    """Move the accepted nodes' keys and values to the positions after the root, in place, in all caches at once.

    caches: keys and values of all layers in any order, as for `write_nodes`, at most 256.
    prefix: as for `write_nodes`: the tree's root is at position prefix and stays there.
    path: int32 [users, columns], ROW_MAJOR: from `first_column` on the accepted nodes after the root in order, with -1
        (or anything that is no node) after the last. `Verified.result` of speculative_sampling is one, from column
        RESULT_HEAD on. Element j goes from position prefix + path[j] to prefix + 1 + j; all are read before any is
        written, so the nodes may be numbered in any order.

    Errors: UnsupportedError (a ValueError) before the launch.
    """
    named = {f"caches[{index}]": facts(f"caches[{index}]", cache) for index, cache in enumerate(caches)}
    problem = check_caches(named, nodes, facts("prefix", prefix))
    check_path(facts("path", path), problem, first_column)
    _launch(problem, list(caches), list(caches), prefix, path, first_column)


def _launch(problem: Problem, caches: list, sources: list, prefix, path, first_column: int) -> None:
    import ttnn

    device = caches[0].device()
    others = [prefix, *sources, *([] if path is None else [path])]
    for tensor in (*caches, *others):
        check_on_device("a tensor of the call", tensor, device)
    committing = path is not None
    grid = device.compute_with_storage_grid_size()
    cores = [(x, y) for y in range(grid.y) for x in range(grid.x)][: problem.jobs]
    tile_bytes = _TILE_BYTES[problem.block_float]
    words_bytes = sum(_aligned(t.buffer_aligned_page_size()) for t in ([prefix, path] if committing else [prefix]))
    accessors = {"cache": caches[0], "source": sources[0], "prefix": prefix}
    common = {
        "users": problem.users,
        "kv_heads": problem.kv_heads,
        "capacity": problem.capacity,
        "head_tiles": problem.head_tiles,
        "nodes": problem.nodes,
        "jobs": problem.jobs,
        "cores": len(cores),
        "source_tiles": sources[0].padded_shape[2] // 32,
        "prefix": prefix.buffer_address(),
        "path": path.buffer_address() if committing else 0,
        "first_column": first_column,
        "caches": [cache.buffer_address() for cache in caches],
        "sources": [] if committing else [source.buffer_address() for source in sources],
    }
    kernel = kernel_descriptor(
        KERNEL,
        ttnn.DataMovementConfigDescriptor(),
        constants={
            "committing": int(committing),
            "block_float": int(problem.block_float),
            "source_cb": _SOURCE_CB,
            "target_cb": _TARGET_CB,
            "words_cb": _WORDS_CB,
            "prefix_bytes": _aligned(prefix.buffer_aligned_page_size()),
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
    buffers = [
        ttnn.CBDescriptor(
            total_size=page * count,
            core_ranges=ranges,
            format_descriptors=[ttnn.CBFormatDescriptor(buffer_index=index, data_format=ttnn.uint32, page_size=page)],
        )
        for index, (page, count) in sizes.items()
    ]
    program = ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=buffers)
    ttnn.generic_op([*others, *caches], program)


def _aligned(size: int) -> int:
    return -(-size // _WORD_ALIGNMENT) * _WORD_ALIGNMENT
