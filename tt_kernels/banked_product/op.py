# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Multiply more rows than a tile's by a weight whose columns are split over the DRAM banks, read by all cores at once.

Stock programs for such a weight read it by the cores of one row or column, or take one tile of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tt_kernels.common.circular_buffers import FIDELITY, TILE_BYTES, Buffer, check_l1, circular_buffer, l1_bytes
from tt_kernels.common.cores import check_on_device, core_set, noc_core_of
from tt_kernels.common.kernel import kernel_descriptor, program_of, semaphores_on
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import (
    UnsupportedError,
    check_banked,
    check_rows,
    result_memory,
)

KERNELS = Path(__file__).parent / "kernels"
TILE = 32
WEIGHTS = ("BFLOAT8_B", "BFLOAT4_B")
PACKET_BYTES = 8192  # of the NoC
MAX_ROWS = 32  # tiles
# Tiles of the rows that are multicast at once: up to 32, or 64 of up to four side by side. With 512 rows two side by
# side take 24 % more cycles for each tile of the inner dimension, with 256 rows eight 42 % (perf.ops prefill_product).
BLOCK_ROWS, MAX_INNER, LONG_INNER = 32, 8, 4
MOST_L1 = 1_100_000  # bytes of a core, for longer blocks
REGISTERS = 8  # tiles of a piece of the result
SLOTS = 3  # blocks of either input in L1: one is multiplied, two arrive


def widest_piece(rows: int, columns: int, registers: int) -> tuple[int, int]:
    """Return rows and columns of a piece of the result, for so many registers, that divide `rows` and `columns` tiles.
    A row of it is unpacked once, its columns once for each row, and those of the weight take less: it is wide first."""
    wide = max(n for n in range(1, registers + 1) if columns % n == 0)
    return max(n for n in range(1, registers // wide + 1) if rows % n == 0), wide


@dataclass(frozen=True)
class Split:
    """How a product is split, in tiles.

    high: rows. inner: of the inner dimension in a block, of which there are `blocks`. columns: of each of `cores`, the
    last of which may have fewer or none. piece: rows and columns of the result that the registers hold at once.
    """

    high: int
    inner: int
    blocks: int
    columns: int
    outputs: int
    cores: int
    piece: tuple[int, int]

    @classmethod
    def of(cls, rows: int, inputs: int, outputs: int, grid: tuple[int, int], dtype: str) -> Split:
        """Split a product of these many tiles over a grid's first rows of cores. dtype: the weight's, by its name in
        upper case. Raises UnsupportedError for too many rows."""
        if rows > MAX_ROWS:
            raise UnsupportedError(f"x may have {MAX_ROWS * TILE} rows, got {rows * TILE}")
        width, height = grid
        columns = -(-outputs // (width * height))
        used = -(-outputs // columns)
        cores = used if used <= width else -(-used // width) * width
        piece = widest_piece(rows, columns, REGISTERS)

        def cut(inner: int) -> Split:
            return cls(rows, inner, inputs // inner, columns, outputs, cores, piece)

        def fits(inner: int) -> bool:
            if inner * rows <= BLOCK_ROWS:
                return True
            if inner > LONG_INNER or inner * rows > 2 * BLOCK_ROWS:
                return False
            return max(l1_bytes(buffers_of(cut(inner), dtype)).values()) <= MOST_L1

        return cut(max(n for n in range(1, MAX_INNER + 1) if inputs % n == 0 and fits(n)))

    def part(self, core: int) -> tuple[int, int]:
        """Return the first column of a core, and how many it has."""
        first = min(core * self.columns, self.outputs)
        return first, min(self.columns, self.outputs - first)


def banked_product(x: ttnn.Tensor, weight: ttnn.Tensor, memory_config: ttnn.MemoryConfig | None = None) -> Any:
    """Return x @ weight, bfloat16 [1, 1, rows, outputs], interleaved.

    x: bfloat16 [1, 1, rows, inputs], TILE, interleaved, up to 1,024 rows.
    weight: bfloat8_b or bfloat4_b [1, 1, inputs, outputs], TILE, width-sharded over the DRAM banks.
    memory_config: of the result; DRAM by default.

    The matrix unit takes the fewest passes that use all bits of the weight, and sums up in bfloat16. In a region of the
    compute gate the op is skipped. Errors: UnsupportedError.
    """
    memory = result_memory(memory_config)
    if not (found := check_rows("x", x)).interleaved:
        raise UnsupportedError("x must be interleaved, it is sharded")
    check_banked(found, weight, WEIGHTS)
    check_on_device("weight", weight, x.device())
    device, grid = x.device(), x.device().compute_with_storage_grid_size()
    rows, inputs = (size // TILE for size in tuple(x.padded_shape)[2:])
    split = Split.of(rows, inputs, weight.padded_shape[3] // TILE, (grid.x, grid.y), weight.dtype.name)
    buffers = buffers_of(split, weight.dtype.name)
    check_l1(buffers, device)
    shape = [1, 1, x.shape[2], weight.shape[3]]
    result = ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)
    return ttnn.generic_op([x, weight, result], _program(x, weight, result, split, buffers, grid.x))


def buffers_of(split: Split, dtype: str) -> dict[str, Buffer]:
    """Return the circular buffers of a product by the name of the weight's dtype; all cores have them."""
    block, everywhere = split.high * split.inner, frozenset({"all"})
    pages = {
        "cb_rows": ("BFLOAT16", SLOTS * block),
        "cb_source": ("BFLOAT16", block),
        "cb_weight": (dtype, SLOTS * split.inner * split.columns),
        "cb_result": ("BFLOAT16", split.high * split.columns),
    }
    return {
        name: Buffer(index, of, TILE_BYTES[of], count, everywhere)
        for index, (name, (of, count)) in enumerate(pages.items())
    }


def _program(x: Any, weight: Any, result: Any, split: Split, buffers: dict[str, Buffer], width: int) -> Any:
    fidelity = getattr(ttnn.MathFidelity, FIDELITY[weight.dtype.name])
    cores = [(index % width, index // width) for index in range(split.cores)]
    place = noc_core_of(x.device())
    semaphores = {"sem_ready": 0, "sem_one": 1, "sem_arrived": 2}
    constants = {name: buffer.index for name, buffer in buffers.items()} | semaphores
    constants |= {name: getattr(split, name) for name in ("high", "inner", "blocks", "columns", "outputs", "cores")}
    constants |= {
        "piece_rows": split.piece[0],
        "piece_columns": split.piece[1],
        "bank_columns": weight.memory_config().shard_spec.shape[1] // TILE,
        "packet_columns": PACKET_BYTES // TILE_BYTES[weight.dtype.name],
        "row_slots": SLOTS,
        "weight_slots": SLOTS,
    }
    places = [place(core) for core in cores]
    (start_x, start_y), (end_x, end_y) = places[-1], places[0]  # NoC 1 counts down
    parts = [dict(zip(("first", "count"), split.part(index), strict=True)) for index in range(split.cores)]
    kernels = [
        kernel_descriptor(
            KERNELS / "read_weight.cpp",
            "Reader",
            constants=constants,
            common={"weight": weight.buffer_address()},
            per_core=dict(zip(cores, parts, strict=True)),
        ),
        kernel_descriptor(
            KERNELS / "share_rows.cpp",
            "Writer",
            constants=constants,
            accessors={"rows": x, "result": result},
            common={
                "rows": x.buffer_address(),
                "result": result.buffer_address(),
                "start_x": start_x,
                "start_y": start_y,
                "end_x": end_x,
                "end_y": end_y,
                "places": [x | y << 16 for x, y in places],
            },
            per_core={core: {"index": index} | parts[index] for index, core in enumerate(cores)},
        ),
        kernel_descriptor(
            KERNELS / "multiply.cpp",
            ttnn.ComputeConfigDescriptor(math_fidelity=fidelity),
            constants=constants,
            per_core={core: {"count": part["count"]} for core, part in zip(cores, parts, strict=True)},
        ),
    ]
    held = [circular_buffer(buffer, {"all": cores}) for buffer in buffers.values()]
    return program_of(kernels, held, semaphores_on(core_set(*cores), 0, 1, *SLOTS * [0]))
