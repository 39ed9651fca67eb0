# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Count what a chip holds of a model and its caches, what a decode step reads, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tt_kernels.common.page_table import BLOCKS

from ..config import LlamaConfig
from .mesh import DRAM_BYTES, MAX_USERS, TILE, MeshShape
from .precision import PrecisionConfig, bytes_of
from .sharding import ShardedDecodeConfig, check_decode_sharding

DRAM_BYTES_PER_S = 288e9  # Wormhole at 12 GT/s
# Left for captured traces, a prefill chunk's activations and the runtime.
RESERVE_BYTES = 512 * 1024**2


class DoesNotFit(ValueError):
    """The model needs more DRAM than a chip has; the message states both."""


@dataclass(frozen=True)
class Budget:
    """Bytes of one chip. weights: read in each step; embedding: all of it held, one row per user read.

    kv_cache: all users at the full context; decode attention reads all of it. rotary: cosine and sine tables. norms:
    tiles, which ttnn's norm reads whole, though one row of 32 holds numbers. padding: the part of what a step reads
    that holds none: those rows, and what fills up the DRAM banks of sharded decode steps.
    """

    weights: int
    norms: int
    embedding: int
    kv_cache: int
    rotary: int
    read_per_step: int
    padding: int = 0

    @property
    def numbers_per_step(self) -> int:
        """Return what a step reads, without the padding of tiles and banks."""
        return self.read_per_step - self.padding

    @property
    def held(self) -> int:
        return self.weights + self.norms + self.embedding + self.kv_cache + self.rotary

    @property
    def needed(self) -> int:
        return self.held + RESERVE_BYTES

    def beside(self, other: Budget) -> Budget:
        """Add the budget of another model on the same chip."""
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return Budget(**sums)

    def tokens_per_s(self, bytes_per_s: float = DRAM_BYTES_PER_S) -> float:
        """Return the bound for one user: steps per second if only reading takes time."""
        return bytes_per_s / self.read_per_step

    def check(self, what: str, dram_bytes: int = DRAM_BYTES) -> None:
        """Raises DoesNotFit."""
        if self.needed > dram_bytes:
            raise DoesNotFit(
                f"{what} needs {self.needed} bytes per chip ({gb(self.needed)} GB: weights and norms "
                f"{gb(self.weights + self.norms)}, embedding {gb(self.embedding)}, "
                f"KV cache {gb(self.kv_cache)}, RoPE {gb(self.rotary)}, "
                f"reserve {gb(RESERVE_BYTES)}); an N150 has {dram_bytes} ({gb(dram_bytes)} GB)"
            )


def budget(
    config: LlamaConfig,
    mesh: MeshShape,
    precision: PrecisionConfig,
    context: int,
    users: int = 1,
    decode_sharding: str = "interleaved",
    nodes: int = 0,
) -> Budget:
    """Count one chip's DRAM. context: cached positions per user, in whole tiles, up to `most_positions` with these
    nodes. decode_sharding: one of DECODE_SHARDINGS; sharded weights take 12 banks, each as full as the fullest
    (MatmulConfig.laid_bytes). Raises ValueError for values out of range, MeshError for a mesh that cannot split the
    model, ShardingError."""
    check_decode_sharding(decode_sharding)
    mesh.check_model(config)
    check_users(users)
    most = most_positions(config, nodes)
    if not 1 <= context <= most:
        raise ValueError(f"context must be 1 to {most}, got {context}")
    hidden, ffn, dim = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads, tp = config.num_attention_heads, config.num_key_value_heads, mesh.tp
    weights = 0
    for index in range(config.num_hidden_layers):
        of = precision.of_layer(index)
        weights += bytes_of(hidden * (heads + 2 * kv_heads) * dim // tp, of.qkv)
        weights += bytes_of(hidden * heads * dim // tp, of.wo)
        weights += bytes_of(hidden * 2 * ffn // tp, of.gate_up)
        weights += bytes_of(hidden * ffn // tp, of.down)
    weights += bytes_of(hidden * mesh.padded_vocab(config) // tp, precision.lm_head)
    padding = 0
    if decode_sharding == "sharded":
        padding = ShardedDecodeConfig.of(config, mesh, users).padding_bytes(precision, config.num_hidden_layers)
        weights += padding
    norms = (2 * config.num_hidden_layers + 1) * bytes_of(TILE * hidden, "bfloat16")
    padding += norms - norms // TILE
    positions = -(-context // TILE) * TILE
    kv_cache = 2 * config.num_hidden_layers * users * bytes_of(kv_heads * positions * dim // tp, precision.kv_cache)
    row = 2 * hidden // tp
    return Budget(
        weights=weights,
        norms=norms,
        embedding=config.vocab_size * row,
        kv_cache=kv_cache,
        rotary=2 * 2 * positions * dim,
        read_per_step=weights + norms + kv_cache + users * (row + 2 * 2 * dim),
        padding=padding,
    )


def check_users(users: int) -> None:
    """Raises ValueError for a batch that no cache has."""
    if not 1 <= users <= MAX_USERS:
        raise ValueError(f"users must be 1 to {MAX_USERS}, got {users}")


def most_positions(config: LlamaConfig, nodes: int) -> int:
    """Return the positions that a cache has at most: a full context in whole tiles, or one with the nodes of a step
    after it, in whole blocks."""
    step = max(BLOCKS) if nodes else TILE
    return -(-(config.max_position_embeddings + nodes) // step) * step


def longest_context(check: Callable[[int], None], most: int, step: int) -> int:
    """Return the largest multiple of `step` up to `most`, rounded up, for which `check` does not raise DoesNotFit; 0 if
    it does for all. What more positions need is never less."""
    low, high = 0, -(-most // step)
    while low < high:
        middle = (low + high + 1) // 2
        try:
            check(middle * step)
            low = middle
        except DoesNotFit:
            high = middle - 1
    return low * step


def gb(count: int) -> str:
    """Format bytes as 1e9 bytes, to two digits."""
    return f"{count / 1e9:.2f}"
