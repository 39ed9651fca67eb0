# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Split the fused product of a decode step into queries, keys and values, rotate queries and keys on the way, and write
keys and values into the cache: each head on the core that holds its columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, aligned, circular_buffer, word_buffer
from tt_kernels.common.cores import Core, check_on_device, core_list, core_set
from tt_kernels.common.kernel import kernel_descriptor, program_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.page_table import paging_values
from tt_kernels.common.tensor_facts import (
    UnsupportedError,
    check_user_rows,
    check_words,
    facts,
    width_shards,
)
from tt_kernels.tree_cache.op import Problem, check_caches

KERNELS = Path(__file__).parent / "kernels"
MAX_HEADS = TILE = 32
HEAD_DIMS = (64, 128)
_FUSED, _COS, _SIN, _ROTATED, _STORED, _WORDS = range(6)
_LINE = 32


def cached_heads(
    fused: ttnn.Tensor,
    cos: ttnn.Tensor,
    sin: ttnn.Tensor,
    heads: int,
    kv_heads: int,
    key_cache: ttnn.Tensor,
    value_cache: ttnn.Tensor,
    positions: ttnn.Tensor,
    *,
    page_table: ttnn.Tensor | None = None,
    q_memory: ttnn.MemoryConfig,
) -> ttnn.Tensor:
    """Rotate queries and keys of a fused product, write keys and values into a layer's cache, in place, and return the
    queries: bfloat16 [1, users, heads, head_dim], TILE.

    fused: bfloat16 [1, 1, users, (heads + 2 kv_heads) * head_dim], TILE, width-sharded in L1 with one head per core, of
        1 to 32 users; queries come first, then keys, then values.
    cos, sin: bfloat16 [1, 1, users, head_dim], ROW_MAJOR, interleaved: each angle twice in succession, as the partners
        of a rotation, columns 2 i and 2 i + 1, are side by side.
    heads, kv_heads: of the chip, up to 32. head_dim: 64 or 128.
    key_cache, value_cache: bfloat16 or bfloat8_b [users, kv_heads, capacity, head_dim], TILE, interleaved. Only the
        position's row of a tile is written.
    positions: int32 [users], ROW_MAJOR: where each user's row goes; -1, or one at or past the capacity, writes nothing.
    page_table: int32 [users, blocks of a user], ROW_MAJOR: the caches are then [blocks, kv_heads, 32, 64 or 128,
        head_dim] (common/page_table.py). No two users may write into one block.
    q_memory: of the result, interleaved or sharded.

    Rotated numbers are rounded once. Padding rows of the result are undefined. In a region of the compute gate the op
    is skipped. Errors: UnsupportedError.
    """
    head_dim = _check(fused, cos, sin, heads, kv_heads)
    problem = _check_caches(fused, (kv_heads, head_dim), key_cache, value_cache, positions, page_table)
    shape = [1, fused.shape[2], heads, head_dim]
    queries = ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, fused.device(), q_memory)
    caches, pages = (key_cache, value_cache), positions if page_table is None else page_table
    program = _program(fused, {"cos": cos, "sin": sin}, queries, caches, problem, positions, pages)
    tables = [] if page_table is None else [page_table]
    ttnn.generic_op([fused, cos, sin, positions, *tables, *caches, queries], program)
    return queries


def _check(fused: Any, cos: Any, sin: Any, heads: Any, kv_heads: Any) -> int:
    """Return head_dim."""
    for name, count in (("heads", heads), ("kv_heads", kv_heads)):
        if type(count) is not int or not 1 <= count <= MAX_HEADS:
            raise UnsupportedError(f"{name} must be 1 to {MAX_HEADS}, got {count!r}")
    users = check_user_rows("fused", fused).shape[2]
    for name, tensor in (("cos", cos), ("sin", sin)):
        found = facts(name, tensor)
        check_on_device(name, tensor, fused.device())
        if found.shape[-1] not in HEAD_DIMS:
            raise UnsupportedError(f"{name} must have {HEAD_DIMS[0]} or {HEAD_DIMS[1]} columns, it is {found}")
        check_words(name, found, "BFLOAT16", (1, 1, users, found.shape[-1]))
    head_dim, all_heads = cos.shape[3], heads + 2 * kv_heads
    if sin.shape[3] != head_dim or fused.shape[3] != all_heads * head_dim:
        raise UnsupportedError(
            f"{heads} + 2 x {kv_heads} heads of {head_dim} do not fit fused {tuple(fused.shape)} and sin "
            f"{tuple(sin.shape)}"
        )
    shards = width_shards("fused", fused.memory_config())
    if list(shards.shape) != [TILE, head_dim] or shards.orientation.name != "ROW_MAJOR":
        raise UnsupportedError(f"shards of fused must be [{TILE}, {head_dim}] row by row, got {list(shards.shape)}")
    return int(head_dim)


def _check_caches(
    fused: Any, heads: tuple[int, int], key_cache: Any, value_cache: Any, positions: Any, page_table: Any
) -> Problem:
    """Return the caches' shape. heads: key/value heads and head_dim."""
    tensors = {"key_cache": key_cache, "value_cache": value_cache, "positions": positions}
    tensors |= {} if page_table is None else {"page_table": page_table}
    found = {name: facts(name, tensor) for name, tensor in tensors.items()}
    caches = {name: found[name] for name in ("key_cache", "value_cache")}
    problem = check_caches(caches, 1, found["positions"], found.get("page_table"), "positions")
    for name, tensor in tensors.items():
        check_on_device(name, tensor, fused.device())
    shape = (problem.users, problem.kv_heads, problem.head_dim)
    if shape != (fused.shape[2], *heads):
        raise UnsupportedError(
            f"caches of {shape[0]} users and {shape[1]} heads of {shape[2]} do not take keys of {fused.shape[2]} users "
            f"and {heads[0]} heads of {heads[1]}"
        )
    return problem


def _program(
    fused: Any,
    angles: dict[str, Any],
    queries: Any,
    caches: Sequence[Any],
    problem: Problem,
    positions: Any,
    pages: Any,
) -> Any:
    """Return the ttnn.ProgramDescriptor: each head on its core, in the order of the product's heads. caches: of keys
    and of values; pages: the page table, or positions in its place."""
    cores, heads, kv_heads = core_list(fused.memory_config().shard_spec.grid), queries.shape[2], problem.kv_heads
    ends = (0, heads, heads + kv_heads, heads + 2 * kv_heads)
    of_queries, *of_caches = (cores[begin:end] for begin, end in zip(ends, ends[1:]))
    rotating, storing = of_queries + of_caches[0], of_caches[0] + of_caches[1]
    constants = {"users": fused.shape[2], "tiles": problem.head_tiles}

    def compute(own: list[Core], packed: int, rotated: bool) -> Any:
        buffers = {"cb_fused": _FUSED, "cb_cos": _COS, "cb_sin": _SIN, "cb_packed": packed}
        turned = constants | buffers | {"turned": int(rotated)}
        return kernel_descriptor(KERNELS / "rotate.cpp", "Compute", cores=core_set(*own), constants=turned)

    def writer(
        source: str, own: list[Core], more: dict[str, int], tensors: dict[str, Any], common: dict[str, int]
    ) -> Any:
        return kernel_descriptor(
            KERNELS / source,
            "Writer",
            constants=constants | more,
            accessors=tensors,
            common=common | {name: tensor.buffer_address() for name, tensor in tensors.items()},
            per_core={core: {"head": head} for head, core in enumerate(own)},
        )

    reader = kernel_descriptor(
        KERNELS / "read_angles.cpp",
        "Reader",
        cores=core_set(*rotating),
        constants=constants | {"cb_cos": _COS, "cb_sin": _SIN},
        accessors=angles,
        common={name: tensor.buffer_address() for name, tensor in angles.items()},
    )
    kernels = [reader, compute(of_queries, _ROTATED, rotated=True)]
    kernels.append(writer("write_head.cpp", of_queries, {"cb_packed": _ROTATED}, {"result": queries}, {}))
    chosen, shape = paging_values(problem.paging)
    positions_bytes = aligned(positions.buffer_aligned_page_size(), _LINE)
    stored = {"cb_packed": _STORED, "cb_words": _WORDS, "positions_bytes": positions_bytes}
    stored |= {"block_float": int(problem.block_float)} | chosen
    shape |= {"kv_heads": kv_heads, "cache_tiles": problem.capacity // TILE}
    for own, cache, rotated in zip(of_caches, caches, (True, False), strict=True):
        tensors = {"cache": cache, "positions": positions, "pages": pages}
        kernels += [compute(own, _STORED, rotated), writer("write_cache.cpp", own, stored, tensors, shape)]
    # Positions, and lines and exponents of each user.
    words = positions_bytes + problem.users * (1 + problem.head_tiles) * _LINE
    buffers = [ttnn.cb_descriptor_from_sharded_tensor(_FUSED, fused)]
    buffers.append(word_buffer(_WORDS, words, core_set(*storing)))
    on = {_COS: rotating, _SIN: rotating, _ROTATED: of_queries, _STORED: storing}
    for index, held in on.items():
        dtype = caches[0].dtype.name if index == _STORED else "BFLOAT16"
        buffer = Buffer(index, dtype, TILE_BYTES[dtype], problem.head_tiles, frozenset({"on"}))
        buffers.append(circular_buffer(buffer, {"on": held}))
    return program_of(kernels, buffers)
