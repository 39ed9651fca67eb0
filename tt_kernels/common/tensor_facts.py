# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the ops' checks look at, as plain values, so that they can be tested without ttnn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tt_kernels.common.lazy_ttnn import ttnn


class UnsupportedError(ValueError):
    """An op does not support this combination of inputs; raised before any launch."""


@dataclass(frozen=True)
class TensorFacts:
    """shape; dtype, layout: names of ttnn values; on_device; interleaved. As a string: what an error says of it."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "TILE"
    on_device: bool = True
    interleaved: bool = True

    def __str__(self) -> str:
        form = "interleaved" if self.interleaved else "sharded"
        place = "on the device" if self.on_device else "in host memory"
        return f"{self.dtype} {self.layout} {self.shape}, {form} {place}"


def facts(name: str, tensor: ttnn.Tensor) -> TensorFacts:
    """Return what the checks need to know about the ttnn tensor `name`. Errors: UnsupportedError for anything else."""
    if not isinstance(tensor, ttnn.Tensor):
        raise UnsupportedError(f"{name} must be a ttnn.Tensor, it is a {type(tensor).__qualname__}")
    if not tensor.is_allocated():
        raise UnsupportedError(f"{name} has been deallocated")
    return TensorFacts(
        tuple(tensor.shape),
        tensor.dtype.name,
        tensor.layout.name,
        tensor.storage_type() == ttnn.StorageType.DEVICE,
        not tensor.is_sharded(),
    )


def facts_or_none(name: str, tensor: ttnn.Tensor | None) -> TensorFacts | None:
    """Return the `facts` of a tensor that may be absent. Errors: UnsupportedError."""
    return None if tensor is None else facts(name, tensor)


def check_words(name: str, found: TensorFacts, dtype: str, shape: Sequence[int]) -> None:
    """Raise UnsupportedError unless a tensor is `dtype` of this shape, ROW_MAJOR and interleaved on the device."""
    wanted = TensorFacts(tuple(shape), dtype, "ROW_MAJOR")
    if found != wanted:
        raise UnsupportedError(f"{name} must be {wanted}, it is {found}")


MAX_USERS = 32  # a row each, one tile high


def check_tiles(name: str, tensor: ttnn.Tensor, dtypes: Collection[str] = ("BFLOAT16",)) -> TensorFacts:
    """Return the facts of a tensor in TILE layout on the device. Errors: UnsupportedError for any other."""
    found = facts(name, tensor)
    if not found.on_device or found.dtype not in dtypes or found.layout != "TILE":
        where = "device" if found.on_device else "host"
        raise UnsupportedError(
            f"{name} must be {' or '.join(dtypes).lower()} TILE on the device, it is {found.dtype} {found.layout} on "
            f"the {where}"
        )
    return found


def check_rows(name: str, tensor: ttnn.Tensor, dtypes: Collection[str] = ("BFLOAT16",)) -> TensorFacts:
    """Return the facts of a matrix, [1, 1, rows, columns], TILE, on the device. Errors: UnsupportedError for any
    other."""
    found = check_tiles(name, tensor, dtypes)
    if len(found.shape) != 4 or found.shape[:2] != (1, 1):
        raise UnsupportedError(f"{name} must be [1, 1, rows, columns], got {found.shape}")
    return found


def check_user_rows(name: str, tensor: ttnn.Tensor) -> TensorFacts:
    """Return the facts of rows of 1 to 32 users, bfloat16 [1, 1, users, columns], TILE, on the device.

    Errors: UnsupportedError for any other tensor.
    """
    found = check_rows(name, tensor)
    if not 1 <= found.shape[2] <= MAX_USERS:
        raise UnsupportedError(f"{name} must have 1 to {MAX_USERS} users, got {found.shape}")
    return found


def check_user_heads(name: str, tensor: ttnn.Tensor) -> TensorFacts:
    """Return the facts of users' heads, bfloat16 [1, users, heads, head_dim], TILE, on the device, of whole tiles of
    columns. Errors: UnsupportedError for any other tensor."""
    found = check_tiles(name, tensor)
    if len(found.shape) != 4 or found.shape[0] != 1 or found.shape[3] % 32:
        raise UnsupportedError(f"{name} must be [1, users, heads, head_dim] of whole tiles, got {found.shape}")
    return found


def width_shards(name: str, memory: ttnn.MemoryConfig, buffer: str = "L1") -> Any:
    """Return the ttnn.ShardSpec of memory that is width-sharded in `buffer`. Errors: UnsupportedError for any other."""
    kind = (memory.memory_layout.name, memory.buffer_type.name)
    if kind != ("WIDTH_SHARDED", buffer) or memory.shard_spec is None:
        raise UnsupportedError(f"{name} must be width-sharded in {buffer}, it is {kind[0]} in {kind[1]}")
    return memory.shard_spec


def check_banked(x: TensorFacts, weight: ttnn.Tensor, dtypes: Collection[str]) -> TensorFacts:
    """Return the facts of a product's weight, whose columns are split over the DRAM banks, and which shares whole tiles
    of inputs with the rows. Errors: UnsupportedError for any other."""
    found = check_rows("weight", weight, dtypes)
    width_shards("weight", weight.memory_config(), "DRAM")
    if x.shape[3] != found.shape[2] or x.shape[3] % 32:
        raise UnsupportedError(f"x {x.shape} and weight {found.shape} must share whole tiles of inputs")
    return found


def result_memory(memory_config: Any) -> Any:
    """Return the ttnn.MemoryConfig of a result: interleaved DRAM for None, else one that is interleaved in DRAM or L1.
    Errors: UnsupportedError."""
    if memory_config is None:
        return ttnn.DRAM_MEMORY_CONFIG
    if not isinstance(memory_config, ttnn.MemoryConfig):
        raise UnsupportedError(f"memory_config must be a ttnn.MemoryConfig, it is a {type(memory_config).__qualname__}")
    layout, buffer = memory_config.memory_layout.name, memory_config.buffer_type.name
    if layout != "INTERLEAVED":
        raise UnsupportedError(f"memory_config must be interleaved, it is {layout}")
    if buffer not in ("DRAM", "L1"):
        raise UnsupportedError(f"memory_config must be in DRAM or L1, it is in {buffer}")
    return memory_config
