# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The shapes that attention ops have and what all of them refuse, checked on plain values. Every message names the
values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, check_words

if TYPE_CHECKING:
    from tt_kernels.common.page_table import Paging

TILE = 32
MAX_USERS = 8  # of a call; each has a semaphore on the core that writes its output
HEAD_DIMS = (64, 128)
CACHE_DTYPES = ("BFLOAT16", "BFLOAT8_B")
FIDELITIES = ("HiFi2", "HiFi3")  # LoFi leaves out bits of the values: norms come out 8% low
# At scaled scores of up to 1e4 a row maximum is off by its bfloat16 rounding, at most 2^-8 of it, whose exponential is
# far from the ends of float32; and the least scale still hides masked keys (common/kernels/tile_masks.hpp).
MIN_SCALE, MAX_SCALE = 1e-4, 100.0
# Beyond any use, and its square times the norm of attention outputs is still far from the largest float32.
MAX_THRESHOLD = 1e6


@dataclass(frozen=True)
class AttentionShape:
    """The shapes that every attention op has. max_tokens: that a user can have. paging: None for a cache without
    pages. with_chosen: bitmaps choose tiles that the guess reads besides. with_masses: those of key tiles are handed
    out."""

    users: int
    query_heads: int
    kv_heads: int
    head_dim: int
    max_tokens: int
    cache_dtype: str
    paging: Paging | None = field(default=None, kw_only=True)
    with_chosen: bool = field(default=False, kw_only=True)
    with_masses: bool = field(default=False, kw_only=True)

    @property
    def items(self) -> int:
        """The key/value heads of all users, which groups of workers take in turn."""
        return self.users * self.kv_heads

    @property
    def head_tiles(self) -> int:
        return self.head_dim // TILE

    @property
    def cache_tiles(self) -> int:
        return self.max_tokens // TILE

    @property
    def group_heads(self) -> int:
        """Query heads per key/value head."""
        return self.query_heads // self.kv_heads


def check_attention_tensors(q: TensorFacts, k: TensorFacts, v: TensorFacts) -> None:
    """Raise UnsupportedError unless q is bfloat16, k and v have the same shape and one cache dtype, and all three are
    TILE with 4 dimensions, interleaved on the device."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not tensor.on_device:
            raise UnsupportedError(f"{name} must be on device, it is in host memory")
        if not tensor.interleaved:
            raise UnsupportedError(f"{name} must be interleaved, it is sharded")
        if tensor.layout != "TILE":
            raise UnsupportedError(f"{name} must have layout TILE, it has {tensor.layout}")
        if len(tensor.shape) != 4:
            raise UnsupportedError(f"{name} must have 4 dimensions, its shape is {tensor.shape}")
    if q.dtype != "BFLOAT16":
        raise UnsupportedError(f"q must be BFLOAT16, it is {q.dtype}")
    if k.shape != v.shape or k.dtype != v.dtype:
        raise UnsupportedError(f"k is {k.dtype} {k.shape}, v is {v.dtype} {v.shape}: they must be alike")
    if k.dtype not in CACHE_DTYPES:
        raise UnsupportedError(f"the caches must be one of {', '.join(CACHE_DTYPES)}, they are {k.dtype}")


def check_positions(name: str, positions: TensorFacts, users: int) -> None:
    """Raise UnsupportedError unless the tensor is int32 [users], row-major, interleaved on the device, and there are 1
    to MAX_USERS users."""
    if not 1 <= users <= MAX_USERS:
        raise UnsupportedError(f"1 to {MAX_USERS} users are supported, there are {users}")
    check_words(name, positions, "INT32", (users,))


def check_heads(query_heads: int, kv_heads: int, head_dim: int, max_tokens: int) -> None:
    """Raise UnsupportedError for heads, or a cache of `max_tokens`, that are not supported."""
    if head_dim not in HEAD_DIMS:
        raise UnsupportedError(f"head_dim must be one of {HEAD_DIMS}, it is {head_dim}")
    if kv_heads < 1 or query_heads % kv_heads:
        raise UnsupportedError(f"{query_heads} query heads cannot be shared evenly by {kv_heads} key/value heads")
    if max_tokens < TILE or max_tokens % TILE:
        raise UnsupportedError(f"the caches must hold a multiple of {TILE} tokens, they hold {max_tokens}")


def check_numbers(threshold: float, scale: float | None, head_dim: int) -> tuple[float, float]:
    """Return (threshold, scale) as floats, the default scale filled in. Errors: UnsupportedError."""
    if not (is_number(threshold) and 0 <= threshold <= MAX_THRESHOLD):
        raise UnsupportedError(f"threshold must be from 0 to {MAX_THRESHOLD:g}, got {threshold!r}")
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    if not (is_number(scale) and MIN_SCALE <= scale <= MAX_SCALE):
        raise UnsupportedError(f"scale must be from {MIN_SCALE:g} to {MAX_SCALE:g}, got {scale!r}")
    return float(threshold), float(scale)


def is_number(value: Any) -> bool:
    """Return whether a value is a real number and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_fidelity(name: str) -> str:
    """Return `name` if it names a supported ttnn.MathFidelity. Errors: UnsupportedError."""
    if name == "HiFi4":
        raise UnsupportedError(
            "math_fidelity HiFi4 gives single wrong outputs on Wormhole with the op's float32 accumulation (tt-metal "
            "issue 38306): take HiFi3, the default, which is as exact"
        )
    if name not in FIDELITIES:
        raise UnsupportedError(f"math_fidelity must be one of {', '.join(FIDELITIES)}, got {name!r}")
    return name
