# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Where the rows of a pass are on a chip, and the ops that this takes: collectives, norms, products and heads.

`TtLlama` has one layout for decode steps of one token per user, interleaved or sharded, which also makes the modules
with its weights; and `Rows` for everything longer, prefill and token trees. With it goes the collective: a TP group
adds up a decode step's partial sums by `all_reduce`, which takes one tile of rows and the norm that follows, and all
others by ttnn's reduce_scatter and all_gather. In a sharded step it also multiplies the norm, and so reads the next
weight while the chips wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import ttnn

from tt_kernels.all_reduce.op import AllReduce
from tt_kernels.common.peer import DEFAULT_TIMEOUT_S
from tt_kernels.rotated_heads.op import cached_heads

from .mesh import TILE, TP_AXIS, MeshShape, Site
from .modules import (
    DECODE_PRODUCT_USERS,
    Angles,
    BankedProjection,
    Projection,
    RMSNorm,
    Rope,
    column_blocks,
    norm_program,
    user_shards,
)
from .prefill import row_format
from .settings import AttentionSettings, ModelSettings
from .sharding import BANKS, MatmulConfig, ShardedDecodeConfig, ShardingError, Shards
from .weights import WeightStore

if TYPE_CHECKING:
    from .layer import Pass


Matrix = Callable[[], torch.Tensor]


def gather(x: ttnn.Tensor, mesh_shape: MeshShape, dim: int = 3) -> ttnn.Tensor:
    """Gather the columns of a TP group on each chip: [1, 1, rows, columns / tp] -> [1, 1, rows, columns]; or
    concatenate along another dimension."""
    return x if mesh_shape.tp == 1 else ttnn.all_gather(x, dim=dim, cluster_axis=TP_AXIS)


def reduce(x: ttnn.Tensor, mesh_shape: MeshShape) -> ttnn.Tensor:
    """Sum over a TP group, a part for each chip: [1, 1, rows, columns] -> [1, 1, rows, columns / tp]."""
    if mesh_shape.tp == 1:
        return x
    return ttnn.reduce_scatter(x, dim=3, cluster_axis=TP_AXIS, topology=ttnn.Topology.Linear)


def add_into(x: ttnn.Tensor, other: ttnn.Tensor) -> ttnn.Tensor:
    """Return the sum in x's memory; x is freed."""
    out = ttnn.add(x, other, memory_config=x.memory_config(), dtype=x.dtype)
    ttnn.deallocate(x)
    return out


class Residual(NamedTuple):
    """The residual between two parts of a layer: x, bfloat16, placed by the layout; a decode step has all columns on
    each chip, [1, 1, users, hidden], other passes a chip's part, [1, 1, rows, hidden / tp]. normed: the following norm
    of it where the collective took that too, [1, 1, users, hidden], else None. product: of that and the matrix behind
    it, where it was multiplied too."""

    x: ttnn.Tensor
    normed: ttnn.Tensor | None = None
    product: ttnn.Tensor | None = None


# The norm that follows a residual, and the matrix behind it.
Following = tuple[RMSNorm, Projection]


class Rows:
    """The rows of a pass on one chip, any number of them, interleaved in DRAM: prefill, and token trees with a row per
    node. Heads are [1, heads or kv heads, rows, head_dim].

    memory: of the embedding's rows. heads, kv_heads: of the chip.
    """

    memory = ttnn.DRAM_MEMORY_CONFIG

    def __init__(self, site: Site) -> None:
        self.mesh, self.mesh_shape = site.mesh, site.shape
        self.heads, self.kv_heads, self.head_dim = site.heads, site.kv_heads, site.config.head_dim

    def residual(self, x: ttnn.Tensor) -> Any:
        """Place the embedding, bfloat16 [1, 1, rows, hidden / tp], interleaved in `memory`, as the residual."""
        return x

    def gather(self, x: ttnn.Tensor) -> Any:
        """Return all columns of the residual, [1, 1, rows, hidden]."""
        return gather(x, self.mesh_shape)

    def add(self, x: ttnn.Tensor, partial: ttnn.Tensor, following: Following | None) -> Residual:
        """Add a TP group's partial sums, [1, 1, rows, hidden] on each chip, to the residual x, which is freed."""
        return Residual(add_into(x, self.total(partial)))

    def total(self, partial: ttnn.Tensor) -> Any:
        """Add up a TP group's partial sums as the residual has them."""
        return reduce(partial, self.mesh_shape)

    def angles(self, rope: Rope, positions: ttnn.Tensor) -> Angles:
        """Look up the rows' angles. positions: uint32 [1, rows]."""
        return rope.row_angles(positions)

    def norm(self, norm: RMSNorm, x: ttnn.Tensor) -> Any:
        """Norm whole rows, bfloat16 [1, 1, rows, hidden]."""
        return norm(x)

    def normed(self, norm: RMSNorm, x: ttnn.Tensor) -> Any:
        """Gather and norm the residual: [1, 1, rows, hidden]."""
        return self.norm(norm, self.gather(x))

    def format(self, x: ttnn.Tensor) -> str:
        """Return the format of rows [1, 1, rows, columns] where they may be coarse."""
        return "bfloat16"

    def multiply(self, projection: Projection, x: ttnn.Tensor) -> ttnn.Tensor:
        """Multiply rows, [1, 1, rows, inputs] -> bfloat16 [1, 1, rows, outputs]."""
        return projection.rows(x, self.memory)

    def partial_sums(self, projection: Projection, x: ttnn.Tensor) -> ttnn.Tensor:
        """Multiply rows by a matrix whose products a TP group adds up, [1, 1, rows, inputs / tp] -> [1, 1, rows,
        hidden]."""
        return self.multiply(projection, x)

    def logits(self, projection: Projection, x: ttnn.Tensor) -> ttnn.Tensor:
        """Multiply whole rows by a block of the LM head -> bfloat16, interleaved in DRAM."""
        return projection.rows(x, ttnn.DRAM_MEMORY_CONFIG)

    def multiply_heads(self, projection: Projection, out: ttnn.Tensor) -> ttnn.Tensor:
        """Do `partial_sums` with attention's output, interleaved, and the output projection."""
        return self.partial_sums(projection, self.join(out))

    def join(self, out: ttnn.Tensor) -> Any:
        """Join attention's output, interleaved, -> [1, 1, rows, heads * head_dim], the output projection's input."""
        return ttnn.experimental.nlp_concat_heads(out)

    def cached(self, fused: ttnn.Tensor, rope: Rope, step: Pass, layer: int) -> Any:
        """Split the fused product [1, 1, rows, (heads + 2 kv heads) * head_dim], which is freed, rotate queries and
        keys, write a step's keys and values into the cache, and return the queries: interleaved, unless the policy
        takes shards."""
        q, k, v = self.rotated(fused, rope, step.angles)
        step.cache.write_nodes(layer, k, v, step.inputs.positions, step.inputs.nodes)
        return q

    def rotated(self, fused: ttnn.Tensor, rope: Rope, angles: Angles) -> Any:
        """Split the fused product of a pass that is no decode step, which is freed, and rotate queries and keys."""
        q, k, v = self.split(fused)
        ttnn.deallocate(fused)
        return rope.prefill(q, angles), rope.prefill(k, angles), v

    def split(self, fused: ttnn.Tensor) -> Any:
        """Split the fused product likewise into queries, keys and values that are not rotated."""
        return ttnn.experimental.nlp_create_qkv_heads(
            fused, num_heads=self.heads, num_kv_heads=self.kv_heads, transpose_k_heads=False
        )


class PrefillRows(Rows):
    """The rows of a prefill. Many of them are coarse where a TP group's chips send them to each other, as partial sums
    and as normed rows in place of the residual, whose largest numbers would take the bits of their neighbours; and
    before the down projection. long_rows: their format, of a PrecisionConfig."""

    def __init__(self, site: Site, long_rows: str) -> None:
        super().__init__(site)
        self.long_rows = long_rows

    def prepare(self, norm: RMSNorm) -> RMSNorm:
        """Give a norm that passes take the part of its weight that they need."""
        if self.long_rows != "bfloat16" and self.mesh_shape.tp > 1:
            norm.part = ttnn.mesh_partition(norm.weight, dim=3, cluster_axis=TP_AXIS)
        return norm

    def format(self, x: ttnn.Tensor) -> str:
        return row_format(x.padded_shape[2], self.long_rows)

    def normed(self, norm: RMSNorm, x: ttnn.Tensor) -> Any:
        """Norm a chip's columns by the squares of all, which are gathered before them."""
        sent = self.format(x)
        if self.mesh_shape.tp == 1 or sent == "bfloat16":
            return super().normed(norm, x)
        own = norm.squares(x)
        squares = self.gather(own)
        part = norm.by_squares(x, squares, sent)
        out = self.gather(part)
        for freed in (own, squares, part):
            ttnn.deallocate(freed)
        return out

    def partial_sums(self, projection: Projection, x: ttnn.Tensor) -> ttnn.Tensor:
        if self.mesh_shape.tp == 1:
            return self.multiply(projection, x)
        return projection.rows(x, self.memory, self.format(x))


class DecodeLayout(Rows):
    """One token per user, one tile high. Queries are [1, users, heads, head_dim], keys and values [1, users, kv heads,
    head_dim], one core per user. Everything is interleaved, and ttnn chooses programs: the reference for ShardedLayout.
    Makes the projections with its weights. all_reduce: of the mesh's TP groups, None where they have one chip. Raises
    ShardingError if a chip has more query heads than cores."""

    name, head_name = "interleaved", "lm_head.{0}"  # of a block, by its first column and its width
    memory = ttnn.L1_MEMORY_CONFIG

    def __init__(self, site: Site, all_reduce: AllReduce | None = None) -> None:
        super().__init__(site)
        self.all_reduce = all_reduce
        self.head_blocks = column_blocks(site.shape.padded_vocab(site.config) // site.shape.tp)
        grid = site.mesh.compute_with_storage_grid_size()
        if self.heads > grid.x * grid.y:
            raise ShardingError(
                f"joining heads takes a core for each: {site.config.name} has {self.heads} query heads per chip on "
                f"{site.shape}, a chip {grid.x} x {grid.y} cores"
            )

    def residual(self, x: ttnn.Tensor) -> Any:
        return gather(x, self.mesh_shape)

    def gather(self, x: ttnn.Tensor) -> Any:
        return x

    def add(self, x: ttnn.Tensor, partial: ttnn.Tensor, following: Any) -> Residual:
        if self.all_reduce is None:
            return Residual(add_into(x, partial))
        options: dict[str, Any] = {}
        if following is not None:
            norm, matrix = following
            options = {"norm": norm.weight, "epsilon": norm.epsilon}
            if self.all_reduce.multiplies:
                options["multiply"] = matrix.weight, matrix.result
        out = Residual(*self.all_reduce(partial, residual=x, **options))
        ttnn.deallocate(x)
        return out

    def total(self, partial: ttnn.Tensor) -> Any:
        return partial if self.all_reduce is None else self.all_reduce(partial).sum

    def make_matrix(
        self, store: WeightStore, name: str, make: Matrix, dtype: str, split: int, product: str, *columns: int
    ) -> Projection:
        """Put a matrix on the mesh. product, columns: what names it in ShardedDecodeConfig; others: see
        WeightStore.put."""
        return Projection(store.put(name, make, dtype, split))

    def make_lm_head(
        self, store: WeightStore, make: Callable[[int, int], torch.Tensor], dtype: str
    ) -> list[Projection]:
        """Put the blocks of the LM head on the mesh; side by side they are a chip's columns. make:
        WeightMap.lm_head."""
        blocks = []
        for place in zip([0, *accumulate(self.head_blocks)], self.head_blocks, strict=False):
            name = self.head_name.format(*place)
            blocks.append(self.make_matrix(store, name, partial(make, *place), dtype, -1, "lm_head", place[1]))
        return blocks

    def angles(self, rope: Any, positions: ttnn.Tensor) -> Any:
        return rope.decode_angles(positions)

    def cached(self, fused: ttnn.Tensor, rope: Any, step: Any, layer: int) -> Any:
        """Do as Rows: queries, keys and values on the same cores, one op for each; attention reads queries from
        DRAM."""
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
            fused,
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            overlap_qk_coregrid=True,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )
        ttnn.deallocate(fused)
        q, k = rope.decode(q, step.angles), rope.decode(k, step.angles)
        step.cache.update(layer, k, v, step.inputs.positions)
        return ttnn.to_memory_config(q, ttnn.DRAM_MEMORY_CONFIG)

    def join(self, out: ttnn.Tensor) -> ttnn.Tensor:
        joined = ttnn.to_memory_config(join_heads(out, self.heads), ttnn.L1_MEMORY_CONFIG)
        return self._users_alone(joined, out.shape[1])

    def _users_alone(self, joined: ttnn.Tensor, users: int) -> ttnn.Tensor:
        """Turn the rows after the users' into padding, without a copy."""
        width = self.heads * self.head_dim
        return ttnn.reshape(joined, (1, 1, users, width), (1, 1, TILE, width))


class ShardedLayout(DecodeLayout):
    """Rows and weights by a ShardedDecodeConfig. Raises ShardingError."""

    name, head_name = "sharded", "lm_head.{0}+{1}"

    def __init__(self, site: Site, users: int, all_reduce: AllReduce | None) -> None:
        self.config = ShardedDecodeConfig.of(site.config, site.shape, users)
        super().__init__(site, all_reduce)
        self.head_blocks = self.config.head_blocks()
        self._normed = in_l1(site.mesh, self.config.normed)
        grid = self._normed.shard_spec.grid.bounding_box().grid_size()
        self._norm_program = norm_program(grid.x, grid.y, self.config.normed.tiles)
        self._queries = user_shards(site.mesh, users, TILE, self.head_dim)

    def residual(self, x: ttnn.Tensor) -> Any:
        return ttnn.interleaved_to_sharded(super().residual(x), self._normed)

    def norm(self, norm: RMSNorm, x: ttnn.Tensor) -> Any:
        """Norm rows whose cores add up their squares by multicast."""
        place = {"memory_config": x.memory_config(), "program_config": self._norm_program}
        return ttnn.rms_norm(x, weight=norm.weight, epsilon=norm.epsilon, **place)

    def make_matrix(self, store: Any, name: str, make: Any, dtype: str, split: int, product: str, *columns: int) -> Any:
        config = getattr(self.config, product)(*columns, dtype)
        weight = store.put(name, make, dtype, split, memory=in_banks(config))
        source, result = (in_l1(self.mesh, shards) for shards in (config.source, config.result))
        return BankedProjection(weight, banked_program(config), source, result)

    def angles(self, rope: Any, positions: ttnn.Tensor) -> Any:
        return rope.row_angles(positions, ttnn.ROW_MAJOR_LAYOUT)

    def multiply(self, projection: Any, x: ttnn.Tensor) -> Any:
        return projection.decode(x)

    def logits(self, projection: Any, x: ttnn.Tensor) -> Any:
        return ttnn.sharded_to_interleaved(projection.decode(x), ttnn.DRAM_MEMORY_CONFIG)

    def cached(self, fused: ttnn.Tensor, rope: Any, step: Any, layer: int) -> Any:
        """Do as Rows, by one op."""
        keys, values, table = step.cache.of_layer(layer)
        q = cached_heads(
            fused,
            step.angles.cos,
            step.angles.sin,
            self.heads,
            self.kv_heads,
            keys,
            values,
            step.inputs.positions,
            page_table=table,
            q_memory=self._queries if step.policy.takes_shards else ttnn.L1_MEMORY_CONFIG,
        )
        ttnn.deallocate(fused)
        return q

    def join(self, out: ttnn.Tensor) -> ttnn.Tensor:
        return self._users_alone(join_heads(out, self.heads), out.shape[1])

    def multiply_heads(self, projection: Any, out: ttnn.Tensor) -> Any:
        if out.shape[1] <= DECODE_PRODUCT_USERS:
            return projection.decode_heads(out)
        return super().multiply_heads(projection, out)


def make_decode_layout(settings: ModelSettings, site: Site) -> DecodeLayout:
    """Make the layout of decode steps that checked settings name. A chip of a TP group waits for the others as long as
    attention does. Raises ShardingError, and ValueError for a grid without room for the all-reduce."""
    users, attention, all_reduce = settings.users, settings.attention, None
    sharded = settings.decode_sharding == "sharded"
    if site.shape.tp > 1:
        patience_s = attention.timeout_s if isinstance(attention, AttentionSettings) else None
        patience_s = DEFAULT_TIMEOUT_S if patience_s is None else patience_s
        multiplies = sharded and users <= DECODE_PRODUCT_USERS
        columns = site.config.hidden_size
        all_reduce = AllReduce(site.mesh, users, columns, TP_AXIS, timeout_s=patience_s, multiplies=multiplies)
    return ShardedLayout(site, users, all_reduce) if sharded else DecodeLayout(site, all_reduce)


def join_heads(out: ttnn.Tensor, heads: int) -> ttnn.Tensor:
    """Join each user's heads, [1, users, heads, head_dim], interleaved, on a core each; the op returns 32 rows."""
    mesh, cores = out.device(), None
    shards = user_shards(mesh, out.shape[1], TILE, out.shape[3])
    if shards.shard_spec.grid.size() > 1:  # cores that are no rectangle: the op must be told which its result may take
        grid = mesh.compute_with_storage_grid_size()
        cores = ttnn.num_cores_to_corerangeset(grid.x * grid.y, grid, row_wise=True)
    out = ttnn.interleaved_to_sharded(out, shards)
    return ttnn.experimental.nlp_concat_heads_decode(out, num_heads=heads, sub_core_grids=cores)


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


def banked_program(product: MatmulConfig) -> Any:
    """Return the program of ttnn.linear with a weight in `in_banks`."""
    return ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(
        in0_block_w=product.block, per_core_M=1, per_core_N=product.result.tiles, fused_activation=None
    )
