# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of a layer on a chip: matrix products, norms, MLP, look-up in tables and rotary embedding."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import ttnn

from tt_kernels.banked_product.op import banked_product
from tt_kernels.decode_product.op import decode_product
from tt_kernels.gated_product.op import gated_product

from ..config import inverse_frequencies
from .mesh import TILE, Site
from .precision import FIDELITY, float32_sums
from .prefill import all_cores_read, row_blocks

if TYPE_CHECKING:
    from .layouts import Rows


# Up to so many users a chip's narrow products take fewer cycles by decode_product (python -m perf.ops decode_product).
DECODE_PRODUCT_USERS = 8


@cache
def kernel_config(dtype: str) -> Any:
    """Return the compute configuration for weights of this format: the fewest passes that use all its bits."""
    return ttnn.WormholeComputeKernelConfig(
        math_fidelity=getattr(ttnn.MathFidelity, FIDELITY[dtype]),
        math_approx_mode=False,
        fp32_dest_acc_en=float32_sums(dtype),
        packer_l1_acc=True,
    )


def dtype_name(tensor: ttnn.Tensor) -> str:
    """Return a tensor's dtype as bfloat16, bfloat8_b and so on."""
    return str(tensor.dtype).rpartition(".")[2].lower()


def linear(x: ttnn.Tensor, weight: ttnn.Tensor, memory: ttnn.MemoryConfig, dtype: str = "bfloat16") -> ttnn.Tensor:
    """Multiply x [1, 1, rows, inputs] by a chip's weight [1, 1, inputs, outputs] -> `dtype`, interleaved."""
    config = kernel_config(dtype_name(weight))
    return ttnn.linear(x, weight, dtype=getattr(ttnn, dtype), memory_config=memory, compute_kernel_config=config)


def minimal_matmul(
    x: ttnn.Tensor, weight: ttnn.Tensor, memory: ttnn.MemoryConfig, dtype: str = "bfloat16"
) -> ttnn.Tensor:
    """Do `linear` by ttnn's minimal_matmul in the blocks of `row_blocks`; weight: anywhere in DRAM."""
    grid = x.device().compute_with_storage_grid_size()
    inputs, outputs = tuple(weight.padded_shape)[2:]
    blocks = row_blocks(x.padded_shape[2], inputs, outputs, (grid.x, grid.y), dtype_name(weight))
    program = ttnn.MinimalMatmulConfig(
        M_block_size=blocks.rows,
        K_block_size=blocks.inner,
        N_block_size=blocks.columns,
        subblock_h=blocks.piece[0],
        subblock_w=blocks.piece[1],
        compute_with_storage_grid_size=grid,
    )
    return ttnn.experimental.minimal_matmul(
        x,
        weight,
        config=program,
        dtype=getattr(ttnn, dtype),
        memory_config=memory,
        compute_kernel_config=kernel_config(dtype_name(weight)),
    )


class Projection:
    """A chip's matrix. weight: [1, 1, inputs, outputs], interleaved in DRAM."""

    def __init__(self, weight: ttnn.Tensor) -> None:
        self.weight = weight

    def rows(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig, dtype: str = "bfloat16") -> ttnn.Tensor:
        """Multiply any number of interleaved rows -> `dtype`, interleaved."""
        return linear(x, self.weight, memory, dtype)


class BankedProjection(Projection):
    """A weight whose columns are split over the DRAM banks, for rows one tile high, sharded by columns in L1. program:
    of the stock product; source, result: memory of the rows and of their product."""

    def __init__(self, weight: ttnn.Tensor, program: Any, source: ttnn.MemoryConfig, result: ttnn.MemoryConfig) -> None:
        super().__init__(weight)
        self.program, self.source, self.result = program, source, result

    def decode(self, x: ttnn.Tensor) -> Any:
        """Multiply a decode step's rows, [1, 1, users, inputs] -> bfloat16. Few users' go by `decode_product`, which
        leaves padding rows undefined; those of many go faster by the stock program, which multicasts whole tiles."""
        if x.shape[2] <= DECODE_PRODUCT_USERS:
            return decode_product(x, self.weight, self.result)
        return self._whole_tiles(x)

    def decode_heads(self, out: ttnn.Tensor) -> Any:
        """Multiply few users' heads as attention leaves them, bfloat16 [1, users, heads, head_dim], interleaved."""
        return decode_product(out, self.weight, self.result)

    def _whole_tiles(self, x: ttnn.Tensor) -> Any:
        return ttnn.linear(
            x,
            self.weight,
            dtype=ttnn.bfloat16,
            memory_config=self.result,
            program_config=self.program,
            compute_kernel_config=kernel_config(dtype_name(self.weight)),
        )

    def rows(self, x: ttnn.Tensor, memory: Any, dtype: str = "bfloat16") -> Any:
        """Multiply a tile of rows, padding too, since attention reads whole tiles of keys and values; of more rows,
        each core reads blocks of the weight where they are."""
        if x.padded_shape[2] == TILE:
            return ttnn.sharded_to_interleaved(self._whole_tiles(ttnn.interleaved_to_sharded(x, self.source)), memory)
        if dtype == "bfloat16" and all_cores_read(x.padded_shape[2], dtype_name(self.weight)):
            return banked_product(x, self.weight, memory)
        return minimal_matmul(x, self.weight, memory, dtype)


def attention_program(mesh: ttnn.MeshDevice, queries: int, keys: int) -> Any:
    """Return the program of stock attention on all cores, each of which takes so many queries and keys at once."""
    grid = mesh.compute_with_storage_grid_size()
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=(grid.x, grid.y), q_chunk_size=queries, k_chunk_size=keys, exp_approx_mode=False
    )


class MLP:
    """gate_up: [1, 1, hidden, 2 * intermediate / tp] on each chip, `block` columns of gate, the same of up, and so on;
    down: [1, 1, intermediate / tp, hidden]."""

    def __init__(self, gate_up: Projection, down: Projection, block: int) -> None:
        self.gate_up, self.down, self.block = gate_up, down, block

    def __call__(self, x: ttnn.Tensor, layout: Rows, product: ttnn.Tensor | None = None) -> ttnn.Tensor:
        """x: [1, 1, rows, hidden] -> partial sums of the same shape, both placed by the layout. product: of x and
        gate_up, where it is there."""
        if product is None:
            product = layout.multiply(self.gate_up, x)
        hidden = gated_product(product, self.block, layout.format(product))
        ttnn.deallocate(product)
        out = layout.partial_sums(self.down, hidden)
        ttnn.deallocate(hidden)
        return out


def norm_program(columns: int, rows: int, width: int) -> Any:
    """Return the norm's program for rows sharded over `columns` x `rows` cores, each with a tile of rows and `width`
    tiles of columns."""
    return ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=(columns, rows),
        subblock_w=max(count for count in range(1, 5) if width % count == 0),
        block_h=1,
        block_w=width,
        inplace=False,
    )


@cache
def norm_shards(rows: int, columns: int, width: int) -> tuple[Any, Any]:
    """Return memory and program of a norm of so many tiles of rows, a row of cores each, `width` tiles on a core."""
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(columns - 1, rows - 1))})
    spec = ttnn.ShardSpec(cores, [TILE, TILE * width], ttnn.ShardOrientation.ROW_MAJOR)
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.BLOCK_SHARDED, ttnn.BufferType.L1, spec)
    return memory, norm_program(columns, rows, width)


class RMSNorm:
    """weight: bfloat16 [1, 1, 1, hidden], TILE, the same on every chip. part: of it, each chip's columns, if any pass
    norms those alone."""

    def __init__(self, weight: ttnn.Tensor, epsilon: float) -> None:
        self.weight, self.epsilon = weight, epsilon
        self.part: Any = None

    def __call__(self, x: ttnn.Tensor) -> Any:
        """x: interleaved bfloat16 [1, 1, rows, hidden] -> the same shape, in the same memory.

        Squares are added up in float32: in bfloat16 a row of 4,096 comes out 2.5 % too small. Of few rows each tile of
        rows has a row of cores, unless that were one core, of more a core."""
        to, grid = x.memory_config(), x.device().compute_with_storage_grid_size()
        rows, tiles = x.padded_shape[-2] // TILE, x.padded_shape[-1] // TILE
        columns = max(count for count in range(1, grid.x + 1) if tiles % count == 0)
        if rows > grid.y or columns == 1:
            return self._normed(x, to)
        memory, program = norm_shards(rows, columns, tiles // columns)
        sharded = ttnn.interleaved_to_sharded(x, memory)
        normed = self._normed(sharded, memory, program_config=program)
        ttnn.deallocate(sharded)
        out = ttnn.sharded_to_interleaved(normed, to)
        ttnn.deallocate(normed)
        return out

    def _normed(self, x: ttnn.Tensor, memory: Any, **program: Any) -> Any:
        config = kernel_config(dtype_name(self.weight))
        return ttnn.rms_norm(
            x, weight=self.weight, epsilon=self.epsilon, memory_config=memory, compute_kernel_config=config, **program
        )

    def squares(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Add up the squares of a chip's columns, bfloat16 [1, 1, rows, hidden / tp] -> bfloat16 [1, 1, rows, 32], in
        the first of those."""
        return ttnn.rms_norm_pre_all_gather(
            x, compute_kernel_config=kernel_config(dtype_name(self.weight)), dtype=ttnn.bfloat16
        )

    def by_squares(self, x: ttnn.Tensor, squares: ttnn.Tensor, dtype: str) -> ttnn.Tensor:
        """Norm a chip's columns, as `squares` takes them, by those of all chips side by side, [1, 1, rows, 32 * tp] ->
        `dtype`."""
        return ttnn.rms_norm_post_all_gather(
            x,
            squares,
            epsilon=self.epsilon,
            weight=self.part,
            compute_kernel_config=kernel_config(dtype_name(self.weight)),
            dtype=getattr(ttnn, dtype),
        )


BLOCK_TILES = 1024  # columns of a block, in tiles


def column_blocks(columns: int, max_tiles: int = BLOCK_TILES) -> list[int]:
    """Return the widths of the blocks of one chip's columns (a multiple of 32): nearly equal, at most `max_tiles`
    each."""
    tiles = columns // TILE
    count = -(-tiles // max_tiles)
    return [TILE * (tiles // count + (index < tiles % count)) for index in range(count)]


def look_up(
    table: ttnn.Tensor,
    indices: ttnn.Tensor,
    memory: ttnn.MemoryConfig | None = None,
    layout: ttnn.Layout = ttnn.TILE_LAYOUT,
) -> ttnn.Tensor:
    """Return rows of a table, bfloat16 [count, columns], ROW_MAJOR, by uint32 [1, rows], ROW_MAJOR: [1, 1, rows,
    columns]."""
    return ttnn.unsqueeze_to_4D(ttnn.embedding(indices, table, layout=layout, memory_config=memory))


class Angles(NamedTuple):
    """cos, sin: bfloat16; for interleaved decode steps [1, users, 1, head_dim], one core per user; else [1, 1, rows,
    head_dim], for sharded ones ROW_MAJOR."""

    cos: ttnn.Tensor
    sin: ttnn.Tensor


def pair_rotation() -> torch.Tensor:
    """Return [1, 1, 32, 32], by which x @ matrix turns every pair (a, b) of x into (-b, a)."""
    matrix = torch.zeros(1, 1, TILE, TILE)
    even = torch.arange(0, TILE, 2)
    matrix[..., even, even + 1] = 1
    matrix[..., even + 1, even] = -1
    return matrix


def user_shards(mesh: ttnn.MeshDevice, users: int, rows: int, columns: int) -> ttnn.MemoryConfig:
    """Return L1 memory with a [rows, columns] shard on one core per user, row by row. Raises ValueError for more users
    than cores."""
    grid = mesh.compute_with_storage_grid_size()
    if users > grid.x * grid.y:
        raise ValueError(f"{users} users need one core each, the chip has {grid.x} x {grid.y}")
    cores = ttnn.num_cores_to_corerangeset(users, grid, row_wise=True)
    return ttnn.create_sharded_memory_config(
        (rows, columns),
        core_grid=cores,
        strategy=ttnn.ShardStrategy.HEIGHT,
        orientation=ttnn.ShardOrientation.ROW_MAJOR,
        use_height_and_width_as_shard_shape=True,
    )


class Rope:
    """Angles of all positions below `positions` in DRAM, and the rotary op's matrices for `users` users."""

    def __init__(self, site: Site, positions: int, users: int) -> None:
        mesh, shape, config = site
        self._shards = user_shards(mesh, users, TILE, config.head_dim)
        # In float32, each angle twice in succession: [positions, head_dim].
        angles = torch.arange(positions).float()[:, None] * inverse_frequencies(config)
        self.tables = [
            shape.put(mesh, table.repeat_interleave(2, 1), "bfloat16", "ROW_MAJOR_LAYOUT")
            for table in (angles.cos(), angles.sin())
        ]
        self._rotation = shape.put(mesh, pair_rotation(), "bfloat16")
        rotations = pair_rotation().repeat(1, 1, users, 1)
        self._rotations = shape.put(mesh, rotations, "bfloat16", memory=user_shards(mesh, users, TILE, TILE))

    def decode_angles(self, positions: ttnn.Tensor) -> Angles:
        """Look up angles, a core for each. positions: uint32 [1, users], ROW_MAJOR, one new token per user."""
        rows = (ttnn.transpose(look_up(table, positions), 1, 2) for table in self.tables)
        return Angles(*(ttnn.interleaved_to_sharded(row, self._shards) for row in rows))

    def row_angles(self, positions: ttnn.Tensor, layout: ttnn.Layout = ttnn.TILE_LAYOUT) -> Angles:
        """Look up angles, side by side. positions: uint32 [1, rows], ROW_MAJOR. layout: of the angles, for
        `cached_heads` ROW_MAJOR."""
        return Angles(*(look_up(table, positions, layout=layout) for table in self.tables))

    def decode(self, x: ttnn.Tensor, angles: Angles) -> ttnn.Tensor:
        """Rotate x: [1, users, heads, head_dim], one core per user."""
        return ttnn.experimental.rotary_embedding_llama(x, *angles, self._rotations, is_decode_mode=True)

    def prefill(self, x: ttnn.Tensor, angles: Angles) -> ttnn.Tensor:
        """Rotate x: [1, heads, tokens, head_dim]."""
        return ttnn.experimental.rotary_embedding_llama(x, *angles, self._rotation, is_decode_mode=False)
