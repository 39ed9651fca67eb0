# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What steps are of: shapes of layers, what one simulated chip runs of a whole model and what no chip holds, which
layers hit, and random walks as the contents of caches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from models.llama31_8b.config import BUDGET, LlamaConfig
from models.llama31_8b.tt.dram_budget import budget
from models.llama31_8b.tt.mesh import TILE, MeshShape
from models.llama31_8b.tt.precision import PrecisionConfig, precision_config
from models.llama31_8b.tt.sharding import HEAD_TILES, ShardedDecodeConfig

if TYPE_CHECKING:
    import torch

FULL_GRID = "8x8"  # columns and rows of an N150's compute cores that ops may use
THIN_VOCABULARY = 384  # of steps whose LM head is not what is measured: a tile for each DRAM bank
TOKEN = 5  # of a step that is decoded alone
# Names of measured steps beside the hit rates that were forced: exact attention, and the layers' own decisions.
EXACT, OWN = "exact", "own"
# The part of the cache, and the tokens of the vocabulary, after which a row of a walk has little to do with another.
# Keys are longer than independent ones, so that a query prefers some.
CACHE_STRIDE, VOCABULARY_STRIDE, KEY_LENGTH = 0.25, 16, 3.0


@dataclass(frozen=True)
class Shape:
    """Layers and a step of a pair of chips.

    context: cached positions, the new token counted. workers: cores per key/value head for attention, exact and
    speculative alike; None: what either op chooses, and the exact one then has two more. precision: a preset's formats
    of layers before a model's last. sharding: of decode steps. nodes: of a step's tree, 0 for a step of one token.
    predictor: what the guess reads. chosen: where outcomes are forced, tiles between both ends that a guess by a budget
    reads for each head, by made-up weights. walk: so many steps follow one another with the layers' own decisions, over
    keys, values and embeddings that are random walks; 0: one step, all numbers independent.
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
    walk: int = 0

    def own_steps(self) -> list[tuple[str, int, int]]:
        """Return name, token and position of the steps in which the layers decide."""
        if not self.walk:
            return [(OWN, TOKEN, self.context - 1)]
        return [(name, step, self.context - self.walk + step) for step, name in enumerate(self.own_names())]

    def own_names(self) -> list[str]:
        """Return the names of these steps: one, or `walk` of them that follow one another."""
        return [f"{OWN} {step}" for step in range(self.walk)] if self.walk else [OWN]

    def formats(self) -> PrecisionConfig:
        return precision_config(self.precision, self.layers + 1)

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


def is_own(name: str) -> bool:
    return name.split()[0] == OWN


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


def random_walk(shape: tuple[int, ...], stride: float, generator: torch.Generator) -> torch.Tensor:
    """Return normal numbers, float32 of `shape`, whose rows, along the last dimension but one, are steps of a
    stationary walk: the correlation of two falls by a factor of e in `stride` rows."""
    import torch

    kept = math.exp(-1 / stride)
    rows = torch.randn(shape, generator=generator)
    for row in range(1, shape[-2]):
        rows[..., row, :] = kept * rows[..., row - 1, :] + math.sqrt(1 - kept**2) * rows[..., row, :]
    return rows


def walked_embeddings(vocab: int, hidden: int, seed: int) -> torch.Tensor:
    """Return an embedding table, float32 [vocab, hidden], as long as that of `random_state_dict`."""
    import torch

    return random_walk((vocab, hidden), VOCABULARY_STRIDE, torch.Generator().manual_seed(seed)) / hidden**0.5


def walked_caches(layers: int, shape: tuple[int, ...], seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return keys and values of each layer, float32 of `shape`, [users, kv_heads, tokens, head_dim], as a chip's cache
    holds them: the numbers of a key that RoPE turns together are side by side."""
    import torch

    generator, stride = torch.Generator().manual_seed(seed), CACHE_STRIDE * shape[-2]
    keys = [KEY_LENGTH * random_walk(shape, stride, generator) for _ in range(layers)]
    return keys, [random_walk(shape, stride, generator) for _ in range(layers)]
