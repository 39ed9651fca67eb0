# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Split the fused product of a decode step into queries, keys and values, rotate queries and keys on the way, and write
keys and values into the cache: each head on the core that holds its columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, circular_buffer, word_buffer
from tt_kernels.common.cores import Core, check_on_device, core_list, core_set
from tt_kernels.common.kernel import kernel_descriptor
from tt_kernels.common.page_table import paging_values
from tt_kernels.common.tensor_facts import (
    UnsupportedError,
    check_user_rows,
    check_words,
    facts,
    facts_or_none,
    width_shards,
)
from tt_kernels.tree_cache.checks import Problem, check_caches

if TYPE_CHECKING:
    import ttnn

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
    import ttnn

    head_dim = _check(fused, cos, sin, heads, kv_heads)
    problem = _check_caches(fused, (kv_heads, head_dim), key_cache, value_cache, positions, page_table)
    program = _Program(fused, cos, sin)
    shape = [1, fused.shape[2], heads, head_dim]
    queries = ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, fused.device(), q_memory)
    program.add_queries(queries, heads)
    for cache in (key_cache, value_cache):
        program.add_cache(cache, problem, positions, page_table, rotated=cache is key_cache)
    tables = [] if page_table is None else [page_table]
    ttnn.generic_op([fused, cos, sin, positions, *tables, key_cache, value_cache, queries], program.descriptor())
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
    tensors = {"key_cache": key_cache, "value_cache": value_cache, "positions": positions, "page_table": page_table}
    found = {name: facts_or_none(name, tensor) for name, tensor in tensors.items()}
    caches = {name: facts(name, tensors[name]) for name in ("key_cache", "value_cache")}
    problem = check_caches(caches, 1, facts("positions", positions), found["page_table"], "positions")
    for name, tensor in tensors.items():
        if tensor is not None:
            check_on_device(name, tensor, fused.device())
    shape = (problem.users, problem.kv_heads, problem.head_dim)
    if shape != (fused.shape[2], *heads):
        raise UnsupportedError(
            f"caches of {shape[0]} users and {shape[1]} heads of {shape[2]} do not take keys of {fused.shape[2]} users "
            f"and {heads[0]} heads of {heads[1]}"
        )
    return problem


class _Program:
    """The program, part by part, in the order of the product's heads."""

    def __init__(self, fused: Any, cos: Any, sin: Any) -> None:
        self.fused, self.angles = fused, {"cos": cos, "sin": sin}
        self.cores = core_list(fused.memory_config().shard_spec.grid)
        self.constants = {"users": fused.shape[2], "tiles": cos.shape[3] // TILE}
        self.taken = 0
        self.rotating: list[Core] = []
        self.packing: dict[int, list[Core]] = {}  # by buffer
        self.kernels: list[Any] = []
        self.stored = "", 0  # dtype of the cache, bytes of positions, lines and exponents

    def add_queries(self, result: Any, heads: int) -> None:
        """Write so many heads to `result`."""
        own = self._cores_of(heads, rotated=True)
        self._add_compute(own, _ROTATED, rotated=True)
        self._add_writer("write_head.cpp", own, {"cb_packed": _ROTATED}, {"result": result}, {})

    def add_cache(self, cache: Any, problem: Problem, positions: Any, page_table: Any, rotated: bool) -> None:
        """Write the heads of a cache into it."""
        own = self._cores_of(problem.kv_heads, rotated)
        self._add_compute(own, _STORED, rotated)
        chosen, shape = paging_values(problem.paging)
        positions_bytes = -(-positions.buffer_aligned_page_size() // _LINE) * _LINE
        tables = positions if page_table is None else page_table
        constants = {"cb_packed": _STORED, "cb_words": _WORDS, "positions_bytes": positions_bytes}
        self._add_writer(
            "write_cache.cpp",
            own,
            constants | {"block_float": int(problem.block_float)} | chosen,
            {"cache": cache, "positions": positions, "pages": tables},
            shape | {"kv_heads": problem.kv_heads, "cache_tiles": problem.capacity // TILE},
        )
        lines = problem.users * (1 + self.constants["tiles"])
        self.stored = cache.dtype.name, positions_bytes + lines * _LINE

    def descriptor(self) -> Any:
        """Return the ttnn.ProgramDescriptor."""
        import ttnn

        reader = kernel_descriptor(
            KERNELS / "read_angles.cpp",
            ttnn.ReaderConfigDescriptor(),
            cores=core_set(*self.rotating),
            constants=self.constants | {"cb_cos": _COS, "cb_sin": _SIN},
            accessors=self.angles,
            common={name: tensor.buffer_address() for name, tensor in self.angles.items()},
        )
        formats = {_COS: "BFLOAT16", _SIN: "BFLOAT16", _ROTATED: "BFLOAT16"}
        on = {_COS: self.rotating, _SIN: self.rotating, **self.packing}
        formats[_STORED], words = self.stored
        buffers = [ttnn.cb_descriptor_from_sharded_tensor(_FUSED, self.fused)]
        buffers.append(word_buffer(_WORDS, words, core_set(*on[_STORED])))
        buffers += [
            circular_buffer(
                Buffer(index, formats[index], TILE_BYTES[formats[index]], self.constants["tiles"], frozenset({"on"})),
                {"on": cores},
            )
            for index, cores in on.items()
        ]
        return ttnn.ProgramDescriptor(kernels=[reader, *self.kernels], semaphores=[], cbs=buffers)

    def _cores_of(self, heads: int, rotated: bool) -> list[Core]:
        own = self.cores[self.taken : self.taken + heads]
        self.taken += heads
        if rotated:
            self.rotating += own
        return own

    def _add_compute(self, own: list[Core], packed: int, rotated: bool) -> None:
        import ttnn

        self.packing.setdefault(packed, []).extend(own)
        buffers = {"cb_fused": _FUSED, "cb_cos": _COS, "cb_sin": _SIN, "cb_packed": packed}
        self.kernels.append(
            kernel_descriptor(
                KERNELS / "rotate.cpp",
                ttnn.ComputeConfigDescriptor(),
                cores=core_set(*own),
                constants=self.constants | buffers | {"turned": int(rotated)},
            )
        )

    def _add_writer(
        self, source: str, own: list[Core], constants: dict[str, int], tensors: dict[str, Any], common: dict[str, int]
    ) -> None:
        import ttnn

        self.kernels.append(
            kernel_descriptor(
                KERNELS / source,
                ttnn.WriterConfigDescriptor(),
                constants=self.constants | constants,
                accessors=tensors,
                common=common | {name: tensor.buffer_address() for name, tensor in tensors.items()},
                per_core={core: {"head": head} for head, core in enumerate(own)},
            )
        )
