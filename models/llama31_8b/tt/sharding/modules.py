# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The modules that depend on the decode sharding: weights, norms, heads and collectives as ttnn objects.

`TtLlama` makes one DecodeModules and builds every layer from it, so that no module asks for the sharding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import ttnn

from ...config import LlamaConfig
from ..device.precision import LayerPrecision
from ..linear import BankedProjection, Projection
from ..lm_head import column_blocks
from ..parallel.collectives import ShardedTpCollectives, TpCollectives
from ..parallel.mesh import TILE, MeshShape
from ..rms_norm import RMSNorm, ShardedRMSNorm
from ..weights.store import WeightStore
from .config import BANKS, MatmulConfig, ShardedDecodeConfig, Shards, check_decode_sharding
from .heads import Heads, InterleavedHeads, ShardedHeads


class DecodeModules(ABC):
    """The parts of a model that depend on the decode sharding. Prefill and tree steps use the same parts, with
    interleaved activations. collectives: of the TP group. heads: splits and joins a decode step's heads."""

    name: str
    collectives: TpCollectives
    heads: Heads

    @abstractmethod
    def residual(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Place the embedding, bfloat16 [1, 1, users, hidden / tp], interleaved in L1, as the residual."""

    @abstractmethod
    def norm(self, weight: ttnn.Tensor, epsilon: float) -> RMSNorm: ...

    @abstractmethod
    def matrix(
        self,
        store: WeightStore,
        layer: int,
        name: str,
        make: Callable[[], torch.Tensor],
        formats: LayerPrecision,
        split: int,
    ) -> Projection:
        """Put a layer's matrix on the mesh, by its name in LayerPrecision; for the others see WeightStore.put."""

    @abstractmethod
    def lm_head(self, store: WeightStore, make: Callable[[int, int], torch.Tensor], dtype: str) -> list[Projection]:
        """Put the blocks of the LM head on the mesh; side by side they are a chip's columns. make:
        WeightMap.lm_head."""


class InterleavedModules(DecodeModules):
    """Everything interleaved; ttnn chooses programs. The reference for sharded modules."""

    name = "interleaved"

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, config: LlamaConfig, users: int) -> None:
        self.collectives = TpCollectives(mesh_shape)
        self.heads = InterleavedHeads(mesh, mesh_shape, config)
        self._columns = mesh_shape.padded_vocab(config) // mesh_shape.tp

    def residual(self, x):
        return x

    def norm(self, weight, epsilon):
        return RMSNorm(weight, epsilon)

    def matrix(self, store, layer, name, make, formats, split):
        return Projection(store.put(f"{layer}.{name}", make, getattr(formats, name), split))

    def lm_head(self, store, make, dtype):
        blocks, start = [], 0
        for columns in column_blocks(self._columns):
            part = (start, columns)
            weight = store.put(f"lm_head.{start}", lambda part=part: make(*part), dtype, -1)
            blocks.append(Projection(weight))
            start += columns
        return blocks


class ShardedModules(DecodeModules):
    """Modules by a ShardedDecodeConfig. Raises ShardingError."""

    name = "sharded"

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, config: LlamaConfig, users: int) -> None:
        self.mesh, self.config = mesh, ShardedDecodeConfig.of(config, mesh_shape, users)
        normed, residual = (in_l1(mesh, shards) for shards in (self.config.normed, self.config.residual))
        self._residual, self._normed = residual, normed
        self.collectives = TpCollectives(mesh_shape)
        if mesh_shape.tp > 1:
            self.collectives = ShardedTpCollectives(mesh_shape, mesh, users, config.hidden_size, normed, residual)
        self.heads = ShardedHeads(mesh, mesh_shape, config, users)

    def residual(self, x):
        return ttnn.interleaved_to_sharded(x, self._residual)

    def norm(self, weight, epsilon):
        grid = self._normed.shard_spec.grid.bounding_box().grid_size()
        tiles = self.config.normed.tiles
        program = ttnn.LayerNormShardedMultiCoreProgramConfig(
            compute_with_storage_grid_size=(grid.x, grid.y),
            subblock_w=max(n for n in range(1, 5) if tiles % n == 0),
            block_h=1,
            block_w=tiles,
            inplace=False,
        )
        return ShardedRMSNorm(weight, epsilon, program)

    def matrix(self, store, layer, name, make, formats, split):
        dtype = getattr(formats, name)
        return self._banked(store, f"{layer}.{name}", make, split, getattr(self.config, name)(dtype))

    def lm_head(self, store, make, dtype):
        blocks, start = [], 0
        for columns in self.config.head_blocks():
            part, name = (start, columns), f"lm_head.{start}+{columns}"
            product = self.config.lm_head(columns, dtype)
            blocks.append(self._banked(store, name, lambda part=part: make(*part), -1, product))
            start += columns
        return blocks

    def _banked(
        self,
        store: WeightStore,
        name: str,
        make: Callable[[], torch.Tensor],
        split: int,
        product: MatmulConfig,
    ) -> BankedProjection:
        weight = store.put(name, make, product.dtype, split, memory=in_banks(product))
        source, result = (in_l1(self.mesh, shards) for shards in (product.source, product.result))
        return BankedProjection(weight, banked_program(product), source, result)


def make_decode_modules(
    name: str, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, config: LlamaConfig, users: int
) -> DecodeModules:
    """Make the modules of a decode sharding by name. Raises ShardingError."""
    layouts = {"interleaved": InterleavedModules, "sharded": ShardedModules}
    return layouts[check_decode_sharding(name)](mesh, mesh_shape, config, users)


def in_l1(mesh: ttnn.MeshDevice, shards: Shards) -> ttnn.MemoryConfig:
    """Return L1 memory of an activation one tile high."""
    grid = ttnn.num_cores_to_corerangeset(shards.cores, mesh.compute_with_storage_grid_size(), row_wise=True)
    spec = ttnn.ShardSpec(grid, [TILE, shards.columns], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, spec)


def in_banks(product: MatmulConfig) -> ttnn.MemoryConfig:
    """Return DRAM memory of a weight, its columns over all banks."""
    banks = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(BANKS - 1, 0))})
    spec = ttnn.ShardSpec(banks, [product.inputs, product.bank_columns], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.DRAM, spec)


def banked_program(product: MatmulConfig):
    """Return the program of ttnn.linear with a weight in `in_banks`."""
    return ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(
        in0_block_w=product.block, per_core_M=1, per_core_N=product.result.tiles, fused_activation=None
    )
