# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How a model on chips is built and attends, checked before a device is opened. Needs neither ttnn nor a device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tt_kernels.common.attention_checks import MAX_THRESHOLD, MAX_USERS

from ..config import BUDGET, DEFAULT_PREDICTOR, PREDICTORS, LlamaConfig, check_budget
from .layer_parallel import LayerAssignment
from .mesh import TILE, MeshShape
from .precision import PrecisionConfig, precision_config
from .sharding import ShardingError, check_decode_sharding

if TYPE_CHECKING:
    from tt_kernels.speculative_flash_decode.op import ProgramConfig
    from tt_kernels.tree_attention.op import ProgramConfig as TreeProgramConfig

    from .attention_policies import AttentionPolicy


POLICIES = ("exact", "alspec")


@dataclass(frozen=True)
class AttentionSettings:
    """The attention of decode steps.

    policy: one of POLICIES, as in the reference. For alspec:

    chunk_size: tokens of the guess at either end, a multiple of 32.
    threshold: a guess is accepted if |guess - exact| < threshold * |exact| over all heads of a user; infinity acts as
        1e6, the op's maximum, which accepts every finite guess of a nonzero result.
    predictor: what the guess reads: `budget`, the default: one tile of first tokens, the last ones, and between them
        the tiles that held this part, `budget`, of the attention weight of earlier steps; or `ends`.
    timeout_s: how long a chip waits for another before it gives up, in seconds at 1 GHz; None for the ops' default.
    program, tree_program: core assignments of the attention ops, chosen by them for None.

    Raises ValueError for another policy or predictor, a predictor beside another policy, and a budget out of range or
    of another predictor; `check` does the rest.
    """

    policy: str = "exact"
    chunk_size: int = 128
    threshold: float = 0.10
    predictor: str | None = None
    budget: float = BUDGET
    timeout_s: float | None = None
    program: ProgramConfig | None = None
    tree_program: TreeProgramConfig | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"no attention policy {self.policy!r}; policies: {', '.join(POLICIES)}")
        if self.predictor is not None:
            if self.predictor not in PREDICTORS:
                raise ValueError(f"no predictor {self.predictor!r}; predictors: {', '.join(PREDICTORS)}")
            if self.policy != "alspec":
                raise ValueError(f"predictor {self.predictor!r} needs alspec, which verifies, not {self.policy}")
        check_budget(self.budget)
        if self.budget != BUDGET and self.guess != "budget":
            raise ValueError(f"budget {self.budget} needs alspec with predictor 'budget', got {self.guess!r}")

    @property
    def guess(self) -> str | None:
        """What the guess of alspec reads, one of PREDICTORS; None for another policy."""
        return (self.predictor or DEFAULT_PREDICTOR) if self.policy == "alspec" else None

    @property
    def named(self) -> tuple[str, int, float, str | None, float]:
        """What names the reference's policy, the arguments of its `by_name`."""
        return self.policy, self.chunk_size, self.threshold, self.predictor, self.budget

    def check(self, mesh_shape: MeshShape, users: int, capacity: int) -> None:
        """Refuse what chips cannot run; the one check of attention x mesh x threshold, for every command and engine.

        Args:
            users, capacity: of the model's cache.

        Raises:
            SpeculationError: the message names the setting, or the mesh, and its value.
        """
        if self.policy == "exact":
            return
        if mesh_shape.sp != 2:
            raise SpeculationError(
                f"attention-level speculation needs a mesh of two rows, such as 2x1; {mesh_shape} has {mesh_shape.sp}"
            )
        number = isinstance(self.threshold, (int, float)) and not isinstance(self.threshold, bool)
        infinite = number and math.isinf(self.threshold) and self.threshold > 0
        if not number or not (0 <= self.threshold <= MAX_THRESHOLD or infinite):
            raise SpeculationError(
                f"threshold must be from 0 to {MAX_THRESHOLD:g}, or inf to accept every guess, got {self.threshold!r}"
            )
        if not 1 <= users <= MAX_USERS:
            raise SpeculationError(f"attention with a guess decodes 1 to {MAX_USERS} users together, got {users}")
        check_chunk_size(self.chunk_size, capacity)


class SpeculationError(ValueError):
    """This mesh or these settings do not support speculation; the message names the values."""


def check_chunk_size(chunk_size: int, capacity: int, name: str = "chunk_size") -> None:
    """Raises SpeculationError, which calls it `name`, unless `chunk_size` is a multiple of 32 up to the cache's
    capacity."""
    whole = isinstance(chunk_size, int) and not isinstance(chunk_size, bool)
    if not whole or chunk_size < TILE or chunk_size % TILE or chunk_size > capacity:
        raise SpeculationError(
            f"{name} must be a multiple of {TILE} up to the cache's capacity of {capacity}, got {chunk_size!r}"
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
    attention: AttentionSettings | AttentionPolicy = AttentionSettings()
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
        sharding or one that does not support layer groups, SpeculationError, ValueError for the layer assignment of
        another model or mesh."""
        mesh_shape.check_model(config)
        self.formats(config)
        if isinstance(self.attention, AttentionSettings):
            self.attention.check(mesh_shape, self.users, self.capacity)
        check_decode_sharding(self.decode_sharding)
        if self.cache_blocks and self.layer_assignment is not None:
            raise ValueError("a draft model in layer groups has a cache without pages")
        assignment = self.layer_assignment
        if assignment is None:
            return
        if self.decode_sharding != "interleaved":
            raise ShardingError(
                f"{self.decode_sharding} decode steps do not support layer-parallel drafts: use interleaved"
            )
        if (assignment.config, assignment.mesh) != (config, mesh_shape):
            raise ValueError(
                f"the assignment is for {assignment.config.name} with {assignment.config.num_hidden_layers} layers "
                f"on {assignment.mesh}, the model is {config.name} with {config.num_hidden_layers} on {mesh_shape}"
            )
