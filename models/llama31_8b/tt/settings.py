# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How a model on chips is built and attends, checked before a device is opened. Needs neither ttnn nor a device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tt_kernels.speculative_flash_decode.checks import MAX_THRESHOLD, MAX_USERS
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.tile_lists import MAX_TILES

from ..config import LlamaConfig
from .layer_parallel import LayerAssignment
from .mesh import TILE, MeshShape
from .precision import PrecisionConfig, precision_config
from .sharding import check_decode_sharding, check_sharding_of_groups

if TYPE_CHECKING:
    from .attention_policies import DecodeAttention


POLICIES = ("exact", "sink", "static", "alspec")
PREDICTORS = ("ends", "followed")


@dataclass(frozen=True)
class AttentionSettings:
    """policy: one of POLICIES, as in the reference. chunk_size: tokens of the guess at either end, a multiple of 32.
    threshold: relative error up to which alspec accepts a guess. static_layers: the layers where static takes the
    guess. predictor: what alspec's guess reads: `ends`, or `followed`: as many keys, half of them in the tiles on which
    the attention lay before. Raises ValueError for another policy or predictor, and for one beside another policy."""

    policy: str = "exact"
    chunk_size: int = 128
    threshold: float = 0.10
    static_layers: frozenset[int] = frozenset()
    predictor: str = "ends"

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"no attention policy {self.policy!r}; policies: {', '.join(POLICIES)}")
        if self.predictor not in PREDICTORS:
            raise ValueError(f"no predictor {self.predictor!r}; predictors: {', '.join(PREDICTORS)}")
        if self.predictor != "ends" and self.policy != "alspec":
            raise ValueError(f"predictor {self.predictor!r} needs alspec, which verifies, not {self.policy}")

    @property
    def guess_range(self) -> GuessRange | None:
        """What alspec's guess reads, None for the op's default. Raises SpeculationError for a chunk size that
        `followed` cannot divide."""
        return None if self.predictor == "ends" else followed_range(self.chunk_size)


class SpeculationError(ValueError):
    """This mesh or these settings do not support speculation; the message names the values."""


def followed_range(chunk_size: int) -> GuessRange:
    """Return a guess as large as both ends: one tile of first tokens, `chunk_size` last ones, and for the rest tiles
    that lists name. Raises SpeculationError."""
    most = TILE * (MAX_TILES + 1)
    if chunk_size % TILE or not 2 * TILE <= chunk_size <= most:
        raise SpeculationError(
            f"a guess that follows the attention has chunks of {2 * TILE} to {most} tokens, a multiple of {TILE}, got "
            f"{chunk_size}"
        )
    return GuessRange(TILE, chunk_size, whole_tail=True, tiles=chunk_size // TILE - 1)


def check_chunk_size(chunk_size: int, capacity: int, name: str = "chunk_size") -> None:
    """Raises SpeculationError, which calls it `name`, unless `chunk_size` is a multiple of 32 up to the cache's
    capacity."""
    whole = isinstance(chunk_size, int) and not isinstance(chunk_size, bool)
    if not whole or chunk_size < TILE or chunk_size % TILE or chunk_size > capacity:
        raise SpeculationError(
            f"{name} must be a multiple of {TILE} up to the cache's capacity of {capacity}, got {chunk_size!r}"
        )


def check_speculation(mesh_shape: MeshShape, users: int, capacity: int, chunk_size: int, threshold: float) -> None:
    """Raises SpeculationError for a mesh, batch or setting without attention-level speculation."""
    if mesh_shape.sp != 2:
        raise SpeculationError(
            f"attention-level speculation needs a mesh of two rows, such as 2x1; {mesh_shape} has {mesh_shape.sp}"
        )
    if not 1 <= users <= MAX_USERS:
        raise SpeculationError(f"speculation decodes 1 to {MAX_USERS} users together, got {users}")
    check_chunk_size(chunk_size, capacity)
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not number or not (0 <= threshold <= MAX_THRESHOLD or math.isinf(threshold) and threshold > 0):
        raise SpeculationError(
            f"threshold must be from 0 to {MAX_THRESHOLD:g}, or inf to accept every guess, got {threshold!r}"
        )


@dataclass(frozen=True)
class ModelSettings:
    """users: decoded together, 1 to 32, one core each. capacity: cached positions per user, a multiple of 32.
    precision: number formats, a preset's name or a PrecisionConfig. attention: of decode steps, by its settings or an
    object made for this mesh. decode_sharding: where decode steps keep tensors, one of DECODE_SHARDINGS.
    layer_assignment: for a draft model, run decode steps in these groups of parallel layers; prefill and tree steps
    stay exact. zeroed: see KVCache. cache_blocks: of a paged cache, of `block_size` positions each, block 0 among them;
    0 for a cache of `capacity` positions for each user.
    """

    users: int = 1
    capacity: int = 1024
    precision: PrecisionConfig | str = "performance"
    attention: AttentionSettings | DecodeAttention = AttentionSettings()
    decode_sharding: str = "interleaved"
    layer_assignment: LayerAssignment | None = None
    zeroed: bool = True
    cache_blocks: int = 0
    block_size: int = 64

    def formats(self, config: LlamaConfig) -> PrecisionConfig:
        """Return the number formats for this model. Raises PrecisionError."""
        if isinstance(self.precision, PrecisionConfig):
            return self.precision
        return precision_config(self.precision, config.num_hidden_layers)

    def check(self, config: LlamaConfig, mesh_shape: MeshShape) -> None:
        """Raises MeshError for a mesh that cannot split the model, PrecisionError, ShardingError for an unknown
        sharding or one that does not support layer groups, ValueError for the layer assignment of another model or
        mesh."""
        mesh_shape.check_model(config)
        self.formats(config)
        check_decode_sharding(self.decode_sharding)
        if self.cache_blocks and self.layer_assignment is not None:
            raise ValueError("a draft model in layer groups has a cache without pages")
        assignment = self.layer_assignment
        if assignment is None:
            return
        check_sharding_of_groups(self.decode_sharding)
        if (assignment.config, assignment.mesh) != (config, mesh_shape):
            raise ValueError(
                f"the assignment is for {assignment.config.name} with {assignment.config.num_hidden_layers} layers "
                f"on {assignment.mesh}, the model is {config.name} with {config.num_hidden_layers} on {mesh_shape}"
            )
