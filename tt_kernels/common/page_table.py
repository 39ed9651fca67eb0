# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Caches in blocks, whose places a page table names; `kernels/head_rows.hpp` is the other side.

A paged cache is [blocks, kv_heads, block, head_dim] with blocks of 32, 64 or 128 tokens. A page table is int32 [users,
width], ROW_MAJOR: entry c of a user's row is the block with positions from block * c on. Blocks may be in any order
and in several rows. Entries after a user's last position are not read.
"""

from __future__ import annotations

from typing import NamedTuple

from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, check_words

BLOCKS = (32, 64, 128)
_LINE = 64


class Paging(NamedTuple):
    """block: tokens of a block. width: entries of a user's row of the page table."""

    block: int
    width: int

    @property
    def shift(self) -> int:
        """A block has 1 << shift rows of tiles."""
        return (self.block // TILE).bit_length() - 1

    @property
    def capacity(self) -> int:
        """The tokens that a user can have."""
        return self.block * self.width

    @property
    def row_bytes(self) -> int:
        """Bytes of L1 that hold a row of the table, whole lines."""
        return -(-4 * self.width // _LINE) * _LINE


def check_page_table(table: TensorFacts, users: int, cache: TensorFacts) -> Paging:
    """Check a page table for caches of `cache`'s shape, and return their Paging. Errors: UnsupportedError."""
    shape = table.shape
    if len(shape) != 2 or shape[0] != users or shape[1] < 1:
        raise UnsupportedError(f"page_table must be ({users}, blocks of a user), its shape is {shape}")
    check_words("page_table", table, "INT32", shape)
    if cache.shape[2] not in BLOCKS:
        sizes = ", ".join(map(str, BLOCKS))
        raise UnsupportedError(f"a paged cache has blocks of {sizes} tokens, this one of {cache.shape[2]}")
    return Paging(cache.shape[2], shape[1])


def users_and_capacity(cache: TensorFacts, table: TensorFacts | None) -> tuple[int, int, Paging | None]:
    """Return the users of a cache of 4 dimensions, the tokens that each can have, and its Paging, None without a page
    table. Errors: UnsupportedError."""
    if table is None:
        return cache.shape[0], cache.shape[2], None
    users = table.shape[0] if table.shape else 0
    paging = check_page_table(table, users, cache)
    return users, paging.capacity, paging


def paging_values(paging: Paging | None) -> tuple[dict[str, int], dict[str, int]]:
    """Return the compile-time constants and the common runtime arguments that kernels take a cache's shape by."""
    return {"paged": int(paging is not None)}, {"block_shift": 0 if paging is None else paging.shift}
