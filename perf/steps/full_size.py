# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Say what one simulated chip runs of a model's decode step at full size, and what no chip holds."""

from __future__ import annotations

from dataclasses import replace

from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.tt.dram_budget import budget
from models.llama31_8b.tt.mesh import TILE, MeshShape
from models.llama31_8b.tt.precision import PrecisionConfig, precision_config
from models.llama31_8b.tt.sharding import HEAD_TILES, ShardedDecodeConfig

FULL_GRID = "8x8"  # columns and rows of an N150's compute cores that ops may use
THIN_VOCABULARY = 384  # of steps whose LM head is not what is measured: a tile for each DRAM bank


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


def formats_of(config: LlamaConfig) -> PrecisionConfig:
    """Return the formats of the whole model, whose last layer has formats of its own."""
    return precision_config("performance", config.num_hidden_layers)


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
    found = budget(config, chip, formats_of(config), context, 1, sharding)
    found.check(f"{config.name} with {context} positions, {sharding}")
