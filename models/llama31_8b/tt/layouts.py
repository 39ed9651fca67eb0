# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Where a decode step keeps its rows: collectives, heads, and the modules of a decode sharding as ttnn objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import ttnn

from ..config import LlamaConfig
from .kv_cache import KVCacheBase
from .mesh import TILE, TP_AXIS, MeshShape
from .modules import (
    Angles,
    BankedProjection,
    Projection,
    RMSNorm,
    Rope,
    ShardedRMSNorm,
    all_cores,
    column_blocks,
    user_shards,
)
from .precision import LayerPrecision
from .sharding import BANKS, MatmulConfig, ShardedDecodeConfig, ShardingError, Shards, check_decode_sharding
from .weights import WeightStore


def gather(x: ttnn.Tensor, mesh_shape: MeshShape, dim: int = 3) -> ttnn.Tensor:
    """Gather the columns of a TP group on each chip: [1, 1, rows, columns / tp] -> [1, 1, rows, columns]; or
    concatenate along another dimension."""
    return x if mesh_shape.tp == 1 else ttnn.all_gather(x, dim=dim, cluster_axis=TP_AXIS)


def reduce(x: ttnn.Tensor, mesh_shape: MeshShape) -> ttnn.Tensor:
    """Sum over a TP group, a part for each chip: [1, 1, rows, columns] -> [1, 1, rows, columns / tp]."""
    if mesh_shape.tp == 1:
        return x
    return ttnn.reduce_scatter(x, dim=3, cluster_axis=TP_AXIS, topology=ttnn.Topology.Linear)


class TpCollectives:
    """The collectives of a decode step over a TP group."""

    def __init__(self, mesh_shape: MeshShape) -> None:
        self.mesh_shape = mesh_shape

    def gather(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Do `gather`; the next call may overwrite the result."""
        return gather(x, self.mesh_shape)

    def reduce(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Do `reduce`; the next call may overwrite the result."""
        return reduce(x, self.mesh_shape)


class ShardedTpCollectives(TpCollectives):
    """Collectives of activations sharded by columns in L1, into buffers that all steps share. whole: memory of all
    columns; part: of a chip's. Gathers and reductions alternate, so that no chip writes a buffer which its peer still
    reads."""

    def __init__(
        self,
        mesh_shape: MeshShape,
        mesh: ttnn.MeshDevice,
        users: int,
        hidden: int,
        whole: ttnn.MemoryConfig,
        part: ttnn.MemoryConfig,
    ) -> None:
        super().__init__(mesh_shape)
        self._gathered, self._reduced = (
            ttnn.empty([1, 1, users, columns], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, memory)
            for columns, memory in ((hidden, whole), (hidden // mesh_shape.tp, part))
        )

    def gather(self, x):
        return ttnn.all_gather(
            x,
            dim=3,
            cluster_axis=TP_AXIS,
            memory_config=self._gathered.memory_config(),
            output_tensor=self._gathered,
        )

    def reduce(self, x):
        return ttnn.reduce_scatter(
            x,
            dim=3,
            cluster_axis=TP_AXIS,
            topology=ttnn.Topology.Linear,
            memory_config=self._reduced.memory_config(),
            output_tensor=self._reduced,
        )


class Heads(ABC):
    """The heads of one chip. Queries are [1, users, heads / tp, head_dim], keys and values [1, users, kv heads / tp,
    head_dim], bfloat16, one core per user. Errors: ShardingError if a chip has more query heads than cores."""

    # Cores that share a user's rotation: the rows of angles that a step looks up for each.
    angle_rows = 1

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, config: LlamaConfig) -> None:
        self.mesh = mesh
        self.heads = config.num_attention_heads // mesh_shape.tp
        self.kv_heads = config.num_key_value_heads // mesh_shape.tp
        self.head_dim = config.head_dim
        grid = mesh.compute_with_storage_grid_size()
        if self.heads > grid.x * grid.y:
            raise ShardingError(
                f"joining heads takes a core for each: {config.name} has {self.heads} query heads per chip on "
                f"{mesh_shape}, a chip {grid.x} x {grid.y} cores"
            )

    @abstractmethod
    def split(self, fused: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor]:
        """Split the fused product [1, 1, users, (heads + 2 kv heads) * head_dim / tp] into queries, keys and values."""

    @abstractmethod
    def rotate(self, rope: Rope, q: ttnn.Tensor, k: ttnn.Tensor, angles: Angles) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Rotate queries and keys by the angles of `Rope.decode_angles`."""

    @abstractmethod
    def store(self, cache: KVCacheBase, layer: int, k: ttnn.Tensor, v: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        """Write keys and values into the cache, see KVCacheBase.update."""

    @abstractmethod
    def queries(self, q: ttnn.Tensor, takes_shards: bool) -> ttnn.Tensor:
        """Place queries for attention: interleaved, or as they are if attention takes shards."""

    @abstractmethod
    def join(self, out: ttnn.Tensor) -> ttnn.Tensor:
        """Join attention's output, [1, users, heads / tp, head_dim], interleaved -> [1, 1, users, heads * head_dim /
        tp], the output projection's input."""

    def _split(self, fused: ttnn.Tensor, apart: bool) -> tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor]:
        return ttnn.experimental.nlp_create_qkv_heads_decode(
            fused,
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            overlap_qk_coregrid=not apart,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )

    def _join(self, out: ttnn.Tensor) -> ttnn.Tensor:
        """Join heads side by side, one core each; the op returns 32 rows."""
        shards = user_shards(self.mesh, out.shape[1], TILE, self.head_dim)
        # Of users on cores that are no rectangle the op must be told which cores its result may take.
        grid = None if shards.shard_spec.grid.size() == 1 else all_cores(self.mesh)
        out = ttnn.interleaved_to_sharded(out, shards)
        return ttnn.experimental.nlp_concat_heads_decode(out, num_heads=self.heads, sub_core_grids=grid)

    def _users_alone(self, joined: ttnn.Tensor, users: int) -> ttnn.Tensor:
        """Turn the rows after the users' into padding, without a copy."""
        width = self.heads * self.head_dim
        return ttnn.reshape(joined, (1, 1, users, width), (1, 1, TILE, width))


class InterleavedHeads(Heads):
    """Queries, keys and values on the same cores, with one op for each; attention reads queries from DRAM."""

    def split(self, fused):
        return self._split(fused, apart=False)

    def rotate(self, rope, q, k, angles):
        return rope.decode(q, angles), rope.decode(k, angles)

    def store(self, cache, layer, k, v, positions):
        cache.update(layer, k, v, positions)

    def queries(self, q, takes_shards):
        return ttnn.to_memory_config(q, ttnn.DRAM_MEMORY_CONFIG)

    def join(self, out):
        joined = ttnn.to_memory_config(self._join(out), ttnn.L1_MEMORY_CONFIG)
        return self._users_alone(joined, out.shape[1])


class ShardedHeads(Heads):
    """Keys on other cores than queries and values, so that one op rotates both and one op caches both."""

    angle_rows = 2

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, config: LlamaConfig, users: int) -> None:
        super().__init__(mesh, mesh_shape, config)
        self.users = users

    def split(self, fused):
        return self._split(fused, apart=True)

    def rotate(self, rope, q, k, angles):
        return rope.decode_together(q, k, angles)

    def store(self, cache, layer, k, v, positions):
        cache.update_together(layer, k, v, positions)

    def queries(self, q, takes_shards):
        return q if takes_shards else ttnn.sharded_to_interleaved(q, ttnn.L1_MEMORY_CONFIG)

    def join(self, out):
        return self._users_alone(self._join(out), out.shape[1])


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
