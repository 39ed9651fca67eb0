# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What steps are of: shapes of layers, what one simulated chip runs of a whole model and what no chip holds, and which
layers hit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from models.llama31_8b.config import BUDGET, LlamaConfig
from models.llama31_8b.tt.dram_budget import budget
from models.llama31_8b.tt.mesh import TILE, MeshShape
from models.llama31_8b.tt.precision import precision_config
from models.llama31_8b.tt.sharding import HEAD_TILES, ShardedDecodeConfig

FULL_GRID = "8x8"  # columns and rows of an N150's compute cores that ops may use
THIN_VOCABULARY = 384  # of steps whose LM head is not what is measured: a tile for each DRAM bank
TOKEN = 5  # of a step that is decoded alone
EMBEDDING, LAYER, HEAD = "embedding", "layer", "head"  # the stages of a step
EXACT = "exact"  # name of the measured step with exact attention, beside the hit rates that were forced


@dataclass(frozen=True)
class Shape:
    """Layers and a step of a pair of chips.

    context: cached positions, the new token counted. workers: cores per key/value head for attention, exact and
    speculative alike; None: what either op chooses, and the exact one then has two more. precision: a preset's formats
    of layers before a model's last. sharding: of decode steps. nodes: of a step's tree, 0 for a step of one token.
    predictor: what the guess reads. chosen: tiles between both ends that a guess by a budget reads for each head, by
    made-up weights.
    """

    layers: int = 2
    hidden: int = 64
    intermediate: int = 96
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 64
    vocab: int = 96
    context: int = 512
    chunk_size: int = 64
    workers: int | None = None
    precision: str = "bfloat16"
    sharding: str = "interleaved"
    nodes: int = 0
    predictor: str = "ends"
    chosen: int = 0

    def config(self) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            max_position_embeddings=-(-(self.context + self.nodes) // 32) * 32,
            name="bench",
        )


def known_weights(tiles: range, chosen: int, total: int, budget: float = BUDGET) -> list[float]:
    """Return attention weights, which add up to 1, of `total` tiles of a cache, such that a guess by `budget` reads
    `chosen` of `tiles`: spread evenly, the first nearly eight times as heavy as the last. Raises ValueError where no
    weights do that: all other tiles together have what may stay unread, each of them less than a chosen one."""
    if not 1 <= chosen < len(tiles):
        raise ValueError(f"a guess may choose 1 to {len(tiles) - 1} tiles between both ends, not {chosen}")
    shares = [2 ** (-3 * at / chosen) for at in range(chosen)]
    shares = [share / sum(shares) for share in shares]
    unread = max(1 - budget - shares[-1] / 2, (1 - budget) / 2)
    rest = unread / (len(tiles) - chosen)
    if rest >= shares[-1] * (1 - unread):
        raise ValueError(f"{chosen} of {len(tiles)} tiles are too many for a guess to leave {1 - budget:.2g} unread")
    weights = [rest if tile in tiles else 0.0 for tile in range(total)]
    for at, share in enumerate(shares):
        weights[tiles[(2 * at + 1) * len(tiles) // (2 * chosen)]] = (1 - unread) * share
    return weights


def hit_pattern(layers: int, rate: float) -> list[bool]:
    """Return which layers hit: the whole number of them nearest below `rate`, spread evenly, as appendix F counts
    them."""
    hits = math.floor(layers * rate)
    return [(index + 1) * hits // layers > index * hits // layers for index in range(layers)]


def part_of(config: LlamaConfig, tp: int) -> LlamaConfig:
    """Return a model with the layers of one of `tp` chips that share the heads and the MLP: the hidden size stays.
    Raises MeshError where they cannot."""
    MeshShape(1, tp).check_model(config)
    return replace(
        config,
        num_attention_heads=config.num_attention_heads // tp,
        num_key_value_heads=config.num_key_value_heads // tp,
        intermediate_size=config.intermediate_size // tp,
        head_dim=config.head_dim,
    )


def head_pieces(config: LlamaConfig) -> int:
    """Return how many equal pieces of whole tiles the vocabulary is cut into to run one of them: each is at most a
    third of what a chip multiplies at once. Raises ValueError for a vocabulary that has none."""
    tiles, left = divmod(config.vocab_size, TILE)
    fewest = -(-tiles // (HEAD_TILES // 3))
    pieces = next((count for count in range(fewest, 2 * fewest) if tiles % count == 0), None)
    if left or pieces is None:
        raise ValueError(f"a vocabulary of {config.vocab_size} has no {fewest} equal pieces of whole tiles of {TILE}")
    return pieces


def check_fits(config: LlamaConfig, context: int, sharding: str) -> None:
    """Refuse what no chip of 8x8 cores holds: all layers with `context` cached positions of one user. Raises
    DoesNotFit, ShardingError, ValueError."""
    chip = MeshShape(1, 1)
    if sharding == "sharded":
        ShardedDecodeConfig.of(config, chip, 1)
    found = budget(config, chip, precision_config("performance", config.num_hidden_layers), context, 1, sharding)
    found.check(f"{config.name} with {context} positions, {sharding}")
