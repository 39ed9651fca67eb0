# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes of a prefill: how many tokens go through the layers at once, and how their products are cut.

Nothing here imports ttnn.
"""

from __future__ import annotations

from dataclasses import dataclass

from tt_kernels.banked_product.op import REGISTERS, widest_piece

from .mesh import TILE
from .precision import float32_sums

PREFILL_CHUNK = 2048  # tokens: an 8B model's rows then take 0.27 GB of a chip, of the 0.5 GB that budgets reserve
ROW_STEP = 128
BLOCK_TILES = 8  # of a side of a block: a core's blocks take 0.5 MB of its L1
# Of a block's inner dimension. Twice as many tiles take 13 % fewer cycles of a bfloat4_b weight, and 11 % more of a
# bfloat8_b one (perf.ops prefill_product). They add more to a bfloat16 sum: 1.3 % off in place of 0.9 %, where rounding
# the weight costs 12 %.
INNER_TILES, INNER_TILES_BFLOAT4 = 8, 16
# Rows up to which all cores read a weight from its banks (`banked_product`). It takes 0.35 of the cycles of stock
# `minimal_matmul` with 128 rows, and 0.85 with 512 over 1,024 inputs (perf.ops prefill_product). More was not tried.
BANKED_PRODUCT_ROWS = 512


def check_chunk(size: int) -> None:
    """Raises ValueError for a chunk size that is not a power of two of at least 32."""
    if size < TILE or size & (size - 1):
        raise ValueError(f"prefill_chunk must be a power of two of at least {TILE}, got {size}")


def padded_rows(count: int) -> int:
    """Round up to 32, 64, or a multiple of ROW_STEP, so that prompts of any length need few programs."""
    return next((size for size in (TILE, 2 * TILE) if count <= size), -(-count // ROW_STEP) * ROW_STEP)


def all_cores_read(rows: int, dtype: str) -> bool:
    """Say whether `banked_product` multiplies this many rows by a weight in its banks, else `minimal_matmul`."""
    return rows <= BANKED_PRODUCT_ROWS and dtype != "bfloat16"


def row_format(rows: int, long_rows: str) -> str:
    """Return the format of so many rows of a prefill where they may be coarse. Few are not: a norm before its gather
    takes a collective more, and `banked_product` takes and makes bfloat16."""
    return long_rows if rows > BANKED_PRODUCT_ROWS else "bfloat16"


@dataclass(frozen=True)
class RowBlocks:
    """How `minimal_matmul` cuts a product on a grid of cores, in tiles: each core computes `rows` x
    `columns` of the result at a time, over `inner` of the inner dimension, in pieces of `piece` for the destination
    registers."""

    rows: int
    columns: int
    inner: int
    piece: tuple[int, int]


def row_blocks(rows: int, inputs: int, outputs: int, grid: tuple[int, int], dtype: str) -> RowBlocks:
    """Cut a product [rows, inputs] @ [inputs, outputs].

    Args:
        rows, inputs, outputs: multiples of 32.
        grid: columns and rows of cores; columns of the result are split over the former.
        dtype: the weight's format.
    """
    high, wide = (_even_part(-(-tiles // TILE // cores)) for tiles, cores in ((rows, grid[1]), (outputs, grid[0])))
    inner = INNER_TILES_BFLOAT4 if dtype == "bfloat4_b" else INNER_TILES
    piece = widest_piece(high, wide, REGISTERS // 2 if float32_sums(dtype) else REGISTERS)
    return RowBlocks(high, wide, min(inner, inputs // TILE), piece)


def _even_part(tiles: int) -> int:
    """Return the tiles of a part where `tiles` are cut into the fewest parts of at most BLOCK_TILES, nearly equal."""
    return -(-tiles // -(-tiles // BLOCK_TILES))
