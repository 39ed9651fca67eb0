# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Multiply a decode step's rows by a weight whose columns are split over the DRAM banks.

The stock program for such a weight multicasts whole tiles of rows, of which one user's row is a thirty-second. Of a
narrow weight that takes longer than reading it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tt_kernels.common.circular_buffers import FIDELITY, TILE_BYTES, Buffer, check_l1, circular_buffer
from tt_kernels.common.cores import Core, check_on_device, core_list, noc_core_of
from tt_kernels.common.kernel import kernel_descriptor, program_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import (
    TensorFacts,
    UnsupportedError,
    check_banked,
    check_user_heads,
    check_user_rows,
    facts,
    width_shards,
)

KERNELS = Path(__file__).parent / "kernels"
TILE = 32
WEIGHTS = ("BFLOAT16", "BFLOAT8_B", "BFLOAT4_B")
FACE_ROWS = 16
IN_REGISTERS, IN_L1 = 8, 4  # tiles of the inner dimension in a block
WEIGHT_BYTES = 192 * 1024  # of a block of the weight
SLOTS = 3  # blocks of either input in L1, at least: one is multiplied, two arrive
REGISTERS = 8  # tiles of float32 sums


@dataclass(frozen=True)
class Split:
    """How a product is split, in tiles.

    inner: of the inner dimension in a block, of which there are `blocks`. columns: of each of `cores`, one beside each
    bank; the last may have fewer. piece: columns that the registers hold at once: all of a core's, from the first block
    to the last, or some of them, whose blocks are added up in L1.
    """

    inner: int
    blocks: int
    columns: int
    outputs: int
    cores: int
    piece: int

    @classmethod
    def of(cls, inputs: int, outputs: int, columns: int, dtype: str) -> Split:
        """Split a product of these many tiles, `columns` of them in each bank."""
        alone = columns <= REGISTERS
        most = min(IN_REGISTERS if alone else IN_L1, WEIGHT_BYTES // (columns * TILE_BYTES[dtype]))
        inner = max((n for n in range(1, most + 1) if inputs % n == 0), default=1)
        piece = columns if alone else -(-columns // -(-columns // (REGISTERS // 2)))
        return cls(inner, inputs // inner, columns, outputs, -(-outputs // columns), piece)

    def slots(self, dtype: str, ahead: int) -> int:
        """Return how many blocks each core holds, of which `ahead` bytes of weight may wait for rows."""
        block = self.inner * self.columns * TILE_BYTES[dtype]
        return max(SLOTS, min(self.blocks, ahead // block))

    def part(self, core: int) -> tuple[int, int]:
        """Return the first column of a core, and how many it has."""
        first = core * self.columns
        return first, min(self.columns, self.outputs - first)


def decode_product(x: ttnn.Tensor, weight: ttnn.Tensor, memory_config: ttnn.MemoryConfig) -> Any:
    """Return x @ weight, bfloat16 [1, 1, users, outputs].

    x: bfloat16, TILE, 1 to 16 users: [1, 1, users, inputs], width-sharded in L1; or attention's result, [1, users,
    heads, head_dim], interleaved, whose heads side by side are the inputs.
    weight: bfloat16, bfloat8_b or bfloat4_b [1, 1, inputs, outputs], TILE, width-sharded over the DRAM banks.
    memory_config: of the result, width-sharded in L1.

    The matrix unit takes the fewest passes that use all bits of the weight, and sums up in float32; a core with more
    than eight tiles of columns rounds the sum to bfloat16 after each block of the inner dimension. Padding rows of the
    result are undefined. In a region of the compute gate the op is skipped. Errors: UnsupportedError.
    """
    product = Product(x, weight, memory_config)
    return ttnn.generic_op([x, weight, product.result], program_of(product.kernels(), product.circular_buffers()))


def bank_cores(device: ttnn.MeshDevice) -> list[Core]:
    """Return the cores beside the DRAM banks, bank by bank, which multiply."""
    return [(core.x, core.y) for core in device.get_optimal_dram_bank_to_logical_worker_assignment(ttnn.NOC.NOC_0)]


class Product:
    """A checked product, its result, and what a program needs to make it.

    ahead: bytes of the weight that each core may read before it has rows, where the same program makes those. For the
    rest, and errors, see `decode_product`.
    """

    def __init__(self, x: ttnn.Tensor, weight: ttnn.Tensor, memory_config: ttnn.MemoryConfig, ahead: int = 0) -> None:
        rows, self.heads = _rows_and_heads(x)
        other = check_banked(rows, weight, WEIGHTS)
        width_shards("memory_config", memory_config)
        if rows.shape[2] > FACE_ROWS:
            raise UnsupportedError(f"x may have {FACE_ROWS} users, got {rows.shape[2]}")
        self.x, self.weight, self.device = x, weight, x.device()
        check_on_device("weight", weight, self.device)
        inputs, outputs = other.shape[2:]
        columns = weight.memory_config().shard_spec.shape[1] // TILE
        self.split = Split.of(inputs // TILE, -(-outputs // TILE), columns, other.dtype)
        self.slots = self.split.slots(other.dtype, ahead)
        self.buffers = buffers_of(self.split, other.dtype, self.slots)
        self.cores = bank_cores(self.device)[: self.split.cores]
        form = ([1, 1, rows.shape[2], outputs], ttnn.bfloat16, ttnn.TILE_LAYOUT, self.device, memory_config)
        self.result = ttnn.empty(*form)
        check_l1(self.buffers, self.device)

    def circular_buffers(self) -> list[Any]:
        return [circular_buffer(buffer, {"all": self.cores}) for buffer in self.buffers.values()]

    def kernels(self, makers: int = 0, semaphore: int = 0) -> list[Any]:
        """Return the kernels. makers: those of the same program that write the rows, each of which then adds 1 to the
        `semaphore` on all `cores`; 0: the rows are there."""
        x, weight, result, split, heads = self.x, self.weight, self.result, self.split, self.heads
        place = noc_core_of(self.device)
        spec, result_spec = (tensor.memory_config().shard_spec for tensor in (x, result))
        row_columns = x.shape[3] if heads else spec.shape[1]
        constants = {name: buffer.index for name, buffer in self.buffers.items()} | {
            "inner": split.inner,
            "blocks": split.blocks,
            "columns": split.columns,
            "piece": split.piece,
            "slots": self.slots,
            "makers": makers,
            "rows_semaphore": semaphore,
            "users": result.shape[2],
            "heads": heads,
            "row_tiles": row_columns // TILE,
            "result_tiles": result_spec.shape[1] // TILE,
        }
        per_core = {
            core: dict(zip(("bank", "first", "count"), (bank, *split.part(bank)), strict=True))
            for bank, core in enumerate(self.cores)
        }

        def places(shards: Any) -> list[int]:
            return [x | y << 16 for x, y in map(place, core_list(shards.grid))]

        config = ttnn.ComputeConfigDescriptor(
            math_fidelity=getattr(ttnn.MathFidelity, FIDELITY[weight.dtype.name]),
            fp32_dest_acc_en=True,
            dst_full_sync_en=split.piece == split.columns,
        )
        return [
            kernel_descriptor(
                KERNELS / "read_weight.cpp",
                "Reader",
                constants=constants,
                common={"weight": weight.buffer_address()},
                per_core=per_core,
            ),
            kernel_descriptor(
                KERNELS / "move_rows.cpp",
                "Writer",
                constants=constants,
                accessors={"rows": x},
                common={
                    "rows": x.buffer_address(),
                    "result": result.buffer_address(),
                    "row_places": [] if heads else places(spec),
                    "result_places": places(result_spec),
                },
                per_core=per_core,
            ),
            kernel_descriptor(KERNELS / "multiply.cpp", config, constants=constants, per_core=per_core),
        ]


def _rows_and_heads(x: Any) -> tuple[TensorFacts, int]:
    """Return the facts of joined rows, and how many heads x has of each user, 0 where it is joined."""
    if facts("x", x).interleaved:
        found = check_user_heads("x", x)
        _, users, heads, head_dim = found.shape
        return replace(found, shape=(1, 1, users, heads * head_dim)), heads
    width_shards("x", x.memory_config())
    return check_user_rows("x", x), 0


def buffers_of(split: Split, dtype: str, slots: int = SLOTS) -> dict[str, Buffer]:
    """Return the circular buffers of a product by the name of the weight's dtype, of so many blocks; all its cores have
    them. Of rows they hold the upper halves of tiles."""
    everywhere = frozenset({"all"})
    pages = {
        "cb_rows": ("BFLOAT16", slots * split.inner),
        "cb_weight": (dtype, slots * split.inner * split.columns),
        "cb_result": ("BFLOAT16", split.columns),
    }
    high = {name: TILE if name == "cb_weight" else FACE_ROWS for name in pages}
    return {
        name: Buffer(index, of, TILE_BYTES[of] * high[name] // TILE, count, everywhere, high[name])
        for index, (name, (of, count)) in enumerate(pages.items())
    }
