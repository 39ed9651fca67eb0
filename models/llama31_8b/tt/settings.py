# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How a TtLlama is built, apart from its weights. Needs neither ttnn nor a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..config import LlamaConfig
from .decode_attention.settings import AttentionSettings
from .device.precision import PrecisionConfig, precision_config
from .parallel.layer_parallel import LayerAssignment
from .parallel.mesh import MeshShape
from .sharding.config import check_decode_sharding, check_sharding_of_groups

if TYPE_CHECKING:
    from .decode_attention.base import DecodeAttention


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
