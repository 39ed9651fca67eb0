# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How a decode step lies on a chip, chosen once and printed: where weights and activations stand, and on which cores.

`simple` keeps everything interleaved and leaves the rest to ttnn. `fast` is the arrangement of tt-metal's own Llama
(tech_reports/LLMs/llms.md): weights split by columns over the DRAM banks and read by a core beside each bank,
activations split by columns over cores' L1, so that one op leaves its result where the next one reads it.

Nothing here imports ttnn; `modules.py` makes ttnn's objects of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.checks import check_problem

from ...config import LlamaConfig
from ..device.precision import TILE_BYTES, LayerPrecision, PrecisionConfig
from ..parallel.mesh import TILE, MeshShape

DECODE_SHARDINGS = ("interleaved", "sharded")
BANKS = 12  # of a Wormhole's DRAM, each with a core that reads it
GRID = (8, 8)  # columns and rows of an N150's compute cores that ops may use
ROWS = TILE  # of users: a step is one tile high
MAX_CORES = 32  # of an activation: more make the input's multicasts shorter and more numerous
BLOCK_BYTES = 576 * 1024  # of L1 on a reading core for the blocks of a weight, of which three are under way
_BLOCKS_UNDER_WAY = 3
HEAD_TILES = 1008  # columns of a block of the LM head, in tiles: 84 a bank, of which two rows of tiles fit
FLASH_DECODE, STOCK = "flash_decode", "scaled_dot_product_attention_decode"
MEASURED = "0.71 to 0.90 of the stock op's cycles, 1 to 8 users: perf.ops.bench_plan_attention"


class ShardingError(ValueError):
    """The fast plan cannot lay this model, mesh or step out; the message has the numbers."""


@dataclass(frozen=True)
class Shards:
    """An activation [1, 1, 32, cores * columns] in L1, `columns` of it on each of the first `cores` cores, row by row
    of the grid."""

    cores: int
    columns: int

    @property
    def tiles(self) -> int:
        return self.columns // TILE

    def __str__(self) -> str:
        return f"{self.cores} x [{ROWS}, {self.columns}]"


@dataclass(frozen=True)
class MatmulConfig:
    """One matrix product of a chip: [32, inputs] @ [inputs, outputs].

    source, result: where the activation lies and where its product is left; the last core of `result` may have fewer
    columns. block: tiles of the inner dimension that are multicast and multiplied at once.
    """

    name: str
    inputs: int
    outputs: int
    dtype: str
    source: Shards
    result: Shards
    block: int

    @property
    def bank_columns(self) -> int:
        """Columns of the weight in each bank, whole tiles; the last banks hold fewer, and padding."""
        return -(-self.outputs // (BANKS * TILE)) * TILE

    @property
    def hops(self) -> int:
        """Multicasts of the activation's blocks, one after the other."""
        return self.inputs // TILE // self.block

    @property
    def weight_bytes(self) -> int:
        """Of the weight without padding."""
        return self.inputs // TILE * (self.outputs // TILE) * TILE_BYTES[self.dtype]

    @property
    def laid_bytes(self) -> int:
        """Of the weight over the banks, each as full as the fullest: what is allocated, and what reading takes the time
        of, since the banks are read at once. A bank of padding alone is not read."""
        return self.inputs // TILE * (self.bank_columns // TILE) * BANKS * TILE_BYTES[self.dtype]

    def __str__(self) -> str:
        return (
            f"{self.name:8} {self.inputs:6} x {self.outputs:6} {self.dtype:9} {str(self.source):>15} -> "
            f"{str(self.result):>15}  block {self.block:2}, {self.hops:3} hops, {self.bank_columns:5} columns a bank, "
            f"{self.laid_bytes / 1e6:8.3f} MB, {self.laid_bytes / self.weight_bytes - 1:.1%} padding"
        )


@dataclass(frozen=True)
class AttentionChoice:
    """What computes exact attention in decode steps, FLASH_DECODE or STOCK, and why."""

    op: str
    reason: str

    def __str__(self) -> str:
        return f"exact attention: {self.op} ({self.reason})"


@dataclass(frozen=True)
class ShardedDecodeConfig:
    """The fast arrangement of a model on one chip of a mesh.

    normed: the norm's input and output, and the sums over all columns; residual: a chip's part of it. merged: the
    attention's heads side by side. hidden: the MLP's gate and up.
    """

    model: str
    mesh: MeshShape
    users: int
    hidden_size: int
    qkv_columns: int
    normed: Shards
    residual: Shards
    fused: Shards
    merged: Shards
    hidden: Shards
    head_columns: int

    name = "sharded"

    @classmethod
    def of(cls, config: LlamaConfig, mesh: MeshShape, users: int) -> ShardedDecodeConfig:
        """Errors: MeshError where the mesh cannot split the model; ShardingError where heads or users are more than
        cores."""
        mesh.check_model(config)
        tp, head_dim, cores = mesh.tp, config.head_dim, GRID[0] * GRID[1]
        heads, kv_heads = config.num_attention_heads // tp, config.num_key_value_heads // tp
        joined = heads + 2 * kv_heads
        if joined > cores:
            raise ShardingError(
                f"the fast plan gives every head of a chip a core: {config.name} has {heads} + 2 x {kv_heads} on "
                f"{mesh}, a chip {cores} cores"
            )
        if 2 * users > cores:
            raise ShardingError(
                f"the fast plan gives queries and keys of every user a core each: {users} users, {cores} cores"
            )
        return cls(
            model=config.name,
            mesh=mesh,
            users=users,
            hidden_size=config.hidden_size,
            qkv_columns=joined * head_dim,
            normed=_shards(config.hidden_size),
            residual=_shards(config.hidden_size // tp),
            fused=Shards(joined, head_dim),
            merged=Shards(heads, head_dim),
            hidden=_shards(config.intermediate_size // tp),
            head_columns=mesh.padded_vocab(config) // tp,
        )

    def exact_attention(self, kv_cache: str) -> AttentionChoice:
        """Our flash decode where it takes the shapes, else the stock op. kv_cache: the cache's dtype."""
        heads, head_dim = self.merged.cores, self.merged.columns
        q = TensorFacts((1, self.users, heads, head_dim), "BFLOAT16")
        # Of any length: a cache holds whole tiles.
        shape = (self.users, (self.fused.cores - heads) // 2, TILE, head_dim)
        cache = TensorFacts(shape, kv_cache.upper())
        try:
            check_problem(q, cache, cache, TensorFacts((self.users,), "INT32", "ROW_MAJOR"), TILE)
        except UnsupportedError as error:
            return AttentionChoice(STOCK, f"{FLASH_DECODE}: {error}")
        return AttentionChoice(FLASH_DECODE, MEASURED)

    def qkv(self, dtype: str) -> MatmulConfig:
        return _product("qkv", self.hidden_size, self.qkv_columns, dtype, self.normed, self.fused)

    def wo(self, dtype: str) -> MatmulConfig:
        width = self.merged.cores * self.merged.columns
        return _product("wo", width, self.hidden_size, dtype, self.merged, self.normed)

    def ff1(self, dtype: str, name: str = "ff1") -> MatmulConfig:
        return _product(name, self.hidden_size, self._intermediate, dtype, self.normed, self.hidden)

    def ff3(self, dtype: str) -> MatmulConfig:
        return self.ff1(dtype, "ff3")

    def ff2(self, dtype: str) -> MatmulConfig:
        return _product("ff2", self._intermediate, self.hidden_size, dtype, self.hidden, self.normed)

    def lm_head(self, columns: int, dtype: str) -> MatmulConfig:
        """A block of so many columns."""
        tiles = -(-columns // TILE // (GRID[0] * GRID[1]))
        result = Shards(-(-columns // (TILE * tiles)), TILE * tiles)
        return _product("lm_head", self.hidden_size, columns, dtype, self.normed, result)

    def head_blocks(self) -> list[int]:
        """Widths of the LM head's blocks on a chip: nearly equal, whole rounds over the banks but for the last."""
        rounds = -(-self.head_columns // (TILE * BANKS))
        count = -(-rounds * BANKS // HEAD_TILES)
        widths = [TILE * BANKS * (rounds // count + (index < rounds % count)) for index in range(count)]
        widths[-1] -= sum(widths) - self.head_columns
        return widths

    def layer(self, formats: LayerPrecision) -> list[MatmulConfig]:
        """The five products of a layer."""
        return [getattr(self, name)(dtype) for name, dtype in vars(formats).items()]

    def products(self, precision: PrecisionConfig, layers: int) -> list[MatmulConfig]:
        """All products of a step."""
        found = [product for index in range(layers) for product in self.layer(precision.of_layer(index))]
        return found + [self.lm_head(columns, precision.lm_head) for columns in self.head_blocks()]

    def padding_bytes(self, precision: PrecisionConfig, layers: int) -> int:
        """Of all weights of a chip as they are laid over the banks, beyond those of the simple plan."""
        return sum(product.laid_bytes - product.weight_bytes for product in self.products(precision, layers))

    def describe(self, precision: PrecisionConfig) -> str:
        """A line for the activations, attention and each product; of the layers the first stands for all."""
        lines = [
            f"fast plan of {self.model} on a chip of {self.mesh}, {self.users} users, {precision.name} precision",
            f"residual {self.residual}, norm {self.normed}, heads {self.fused}, joined {self.merged}, "
            f"MLP {self.hidden}",
            str(self.exact_attention(precision.kv_cache)),
        ]
        products = self.layer(precision.of_layer(0))
        lines += map(str, products)
        lines += [str(self.lm_head(columns, precision.lm_head)) for columns in self.head_blocks()]
        return "\n".join(lines)

    @property
    def _intermediate(self) -> int:
        return self.hidden.cores * self.hidden.columns


def check_decode_sharding(name: str) -> str:
    """Raises ShardingError for another name."""
    if name not in DECODE_SHARDINGS:
        raise ShardingError(f"no decode sharding {name!r}; shardings: {', '.join(DECODE_SHARDINGS)}")
    return name


def check_sharding_of_groups(name: str) -> None:
    """Raises ShardingError where a plan does not go with layer-parallel drafts."""
    if check_decode_sharding(name) != "interleaved":
        raise ShardingError(f"the {name} plan does not go with layer-parallel drafts: their layers lie simply")


def check_sharding_of_rows(name: str, rows: int) -> None:
    """Raises ShardingError where a plan does not go with steps over trees of so many rows, users * nodes."""
    if check_decode_sharding(name) == "sharded" and rows > ROWS:
        raise ShardingError(
            f"the fast plan does not go with trees of {rows} nodes in all (users * nodes): its steps are a tile high, "
            f"{ROWS} rows"
        )


def _shards(columns: int) -> Shards:
    """Whole tiles on as many cores as divide them, up to 32 that fill a rectangle, which the sharded norm wants."""
    tiles, width = columns // TILE, GRID[0]
    cores = max(n for n in range(1, MAX_CORES + 1) if tiles % n == 0 and (n <= width or n % width == 0))
    return Shards(cores, columns // cores)


def _product(name: str, inputs: int, outputs: int, dtype: str, source: Shards, result: Shards) -> MatmulConfig:
    """Blocks as deep as a core's part of the activation, unless the weight's would not fit in L1."""
    columns = -(-outputs // (BANKS * TILE))
    room = BLOCK_BYTES // (_BLOCKS_UNDER_WAY * columns * TILE_BYTES[dtype])
    block = max((n for n in range(1, source.tiles + 1) if source.tiles % n == 0 and n <= room), default=1)
    return MatmulConfig(name, inputs, outputs, dtype, source, result, block)
