# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Where weights and activations of a decode step are on a chip, and on which cores: decided once.

`interleaved` keeps everything interleaved and leaves the rest to ttnn. `sharded` follows tt-metal's own Llama
(tech_reports/LLMs/llms.md): weights are split by columns over the DRAM banks and read by a core beside each bank,
activations are split by columns over cores' L1, and each op leaves its result where the next one reads it.

Nothing here imports ttnn; `modules.py` makes ttnn's objects."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import LlamaConfig
from .mesh import TILE, MeshShape
from .precision import TILE_BYTES, LayerPrecision, PrecisionConfig

DECODE_SHARDINGS = ("interleaved", "sharded")
BANKS = 12  # of a Wormhole's DRAM, each with a core that reads it
GRID = (8, 8)  # columns and rows of an N150's compute cores that ops may use
ROWS = TILE  # of users: a step is one tile high
BLOCK_BYTES = 576 * 1024  # of L1 on a reading core for the blocks of a weight, three of which are in flight
_BLOCKS_IN_FLIGHT = 3
MAX_BLOCK = 7  # tiles of the inner dimension that the stock product adds up at once, in bfloat16
NORM_CORES, REDUCED_CORES = 32, 8  # of the residual, at most: where the norm is an op, and where an all-reduce takes it
HEAD_TILES = 1008  # columns of a block of the LM head, in tiles: 84 per bank, of which two rows of tiles fit


class ShardingError(ValueError):
    """This model, mesh or step cannot be sharded; the message has the numbers."""


@dataclass(frozen=True)
class Shards:
    """An activation [1, 1, 32, cores * columns] in L1, `columns` of it on each of the first `cores` cores, in row-major
    order."""

    cores: int
    columns: int

    @property
    def tiles(self) -> int:
        return self.columns // TILE

    @property
    def width(self) -> int:
        return self.cores * self.columns


@dataclass(frozen=True)
class MatmulConfig:
    """One matrix product of a chip: [32, inputs] @ [inputs, outputs].

    source, result: shards of the activation and of the product; the last core of `result` may have fewer columns.
    block: tiles of the inner dimension that the stock program multicasts and multiplies at once.
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
        """Return the weight's columns per bank, in whole tiles; the last banks hold fewer, and padding."""
        return -(-self.outputs // (BANKS * TILE)) * TILE

    @property
    def weight_bytes(self) -> int:
        """Return the weight's bytes without padding."""
        return self.inputs // TILE * (self.outputs // TILE) * TILE_BYTES[self.dtype]

    @property
    def laid_bytes(self) -> int:
        """Return the weight's bytes over the banks, each as full as the fullest. That much is allocated, and determines
        the time of reading, since the banks are read at once. A bank of padding alone is not read."""
        return self.inputs // TILE * (self.bank_columns // TILE) * BANKS * TILE_BYTES[self.dtype]


@dataclass(frozen=True)
class ShardedDecodeConfig:
    """The shards of a model on one chip of a mesh.

    normed: the residual, the norm's input and output, and partial sums. merged: the attention's heads side by side.
    hidden: what the MLP's gate and up are multiplied to; the same cores hold both before, side by side.
    """

    normed: Shards
    fused: Shards
    merged: Shards
    hidden: Shards
    head_columns: int

    @classmethod
    def of(cls, config: LlamaConfig, mesh: MeshShape, users: int) -> ShardedDecodeConfig:
        """Choose the shards. Raises MeshError if the mesh cannot split the model, ShardingError for more heads or users
        than cores."""
        mesh.check_model(config)
        tp, head_dim, cores = mesh.tp, config.head_dim, GRID[0] * GRID[1]
        heads, kv_heads = config.num_attention_heads // tp, config.num_key_value_heads // tp
        joined = heads + 2 * kv_heads
        if joined > cores:
            raise ShardingError(
                f"sharded decode steps need a core per head: {config.name} has {heads} + 2 x {kv_heads} on "
                f"{mesh}, a chip {cores} cores"
            )
        if 2 * users > cores:
            raise ShardingError(
                f"sharded decode steps need a core each for every user's queries and keys: {users} users, {cores} cores"
            )
        return cls(
            normed=_shards(config.hidden_size, NORM_CORES if tp == 1 else REDUCED_CORES),
            fused=Shards(joined, head_dim),
            merged=Shards(heads, head_dim),
            hidden=hidden_shards(config, mesh),
            head_columns=mesh.padded_vocab(config) // tp,
        )

    def qkv(self, dtype: str) -> MatmulConfig:
        return _product("qkv", dtype, self.normed, self.fused)

    def wo(self, dtype: str) -> MatmulConfig:
        return _product("wo", dtype, self.merged, self.normed)

    def gate_up(self, dtype: str) -> MatmulConfig:
        return _product("gate_up", dtype, self.normed, Shards(self.hidden.cores, 2 * self.hidden.columns))

    def down(self, dtype: str) -> MatmulConfig:
        return _product("down", dtype, self.hidden, self.normed)

    def lm_head(self, columns: int, dtype: str) -> MatmulConfig:
        """Return the product of a block of `columns` columns."""
        tiles = -(-columns // TILE // (GRID[0] * GRID[1]))
        result = Shards(-(-columns // (TILE * tiles)), TILE * tiles)
        return _product("lm_head", dtype, self.normed, result, columns)

    def head_blocks(self) -> list[int]:
        """Return the widths of the LM head's blocks on a chip: nearly equal, whole rounds over the banks except for the
        last."""
        rounds = -(-self.head_columns // (TILE * BANKS))
        count = -(-rounds * BANKS // HEAD_TILES)
        widths = [TILE * BANKS * (rounds // count + (index < rounds % count)) for index in range(count)]
        widths[-1] -= sum(widths) - self.head_columns
        return widths

    def layer(self, formats: LayerPrecision) -> list[MatmulConfig]:
        return [getattr(self, name)(dtype) for name, dtype in vars(formats).items()]

    def padding_bytes(self, precision: PrecisionConfig, layers: int) -> int:
        """Return the bytes that a chip's weights take over the banks beyond interleaved ones."""
        products = [product for index in range(layers) for product in self.layer(precision.of_layer(index))]
        products += [self.lm_head(columns, precision.lm_head) for columns in self.head_blocks()]
        return sum(product.laid_bytes - product.weight_bytes for product in products)


def hidden_shards(config: LlamaConfig, mesh: MeshShape) -> Shards:
    """Return the shards of the MLP's gated product, an exponential per element: on as many cores as divide it."""
    return _shards(config.intermediate_size // mesh.tp, GRID[0] * GRID[1])


def check_decode_sharding(name: str) -> str:
    """Return `name`. Raises ShardingError for an unknown one."""
    if name not in DECODE_SHARDINGS:
        raise ShardingError(f"no decode sharding {name!r}; shardings: {', '.join(DECODE_SHARDINGS)}")
    return name


def check_sharding_of_rows(name: str, rows: int) -> None:
    """Raises ShardingError if this sharding does not support tree steps of so many rows, users * nodes."""
    if check_decode_sharding(name) == "sharded" and rows > ROWS:
        raise ShardingError(
            f"sharded decode steps do not support trees of {rows} nodes in all (users * nodes): they are "
            f"one tile high, {ROWS} rows"
        )


def _shards(columns: int, most: int) -> Shards:
    """Split into whole tiles on as many cores as divide them, up to `most` that fill a rectangle, which the sharded
    norm requires."""
    tiles, width = columns // TILE, GRID[0]
    cores = max(n for n in range(1, most + 1) if tiles % n == 0 and (n <= width or n % width == 0))
    return Shards(cores, columns // cores)


def _product(name: str, dtype: str, source: Shards, result: Shards, outputs: int = 0) -> MatmulConfig:
    """Use blocks as deep as a core's part of the activation, to MAX_BLOCK, unless the weight's would not fit in L1.
    outputs: by default all columns of `result`."""
    outputs = outputs or result.width
    columns = -(-outputs // (BANKS * TILE))
    room = min(MAX_BLOCK, BLOCK_BYTES // (_BLOCKS_IN_FLIGHT * columns * TILE_BYTES[dtype]))
    block = max((n for n in range(1, source.tiles + 1) if source.tiles % n == 0 and n <= room), default=1)
    return MatmulConfig(name, source.width, outputs, dtype, source, result, block)
