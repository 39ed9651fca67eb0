# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Assign attention layers of a layer-parallel draft model to the chips of a TP group (EasySpec, section 3.1 and
appendix B), and count the DRAM they take beside the tensor-parallel model. Needs no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..config import LlamaConfig
from ..spec_decode.draft_settings import groups_of
from .dram_budget import Budget
from .mesh import TILE, MeshShape
from .precision import LayerPrecision, PrecisionConfig, PrecisionError, bytes_of


@dataclass(frozen=True)
class Stage:
    """Layers whose attentions run at once on a TP group of `chips` chips, each on `share` neighbours that split its
    heads.

    With three layers on four chips each layer has one chip, and the fourth idles; with two layers each has two chips.
    """

    layers: tuple[int, ...]
    chips: int

    @property
    def share(self) -> int:
        """Return the chips per layer, a power of two, since TP groups have 1, 2, 4 or 8 chips."""
        return self.chips // len(self.layers)

    @property
    def mesh(self) -> MeshShape:
        """Return the row of chips that splits the heads of one of the layers."""
        return MeshShape(1, self.share)

    @property
    def alone(self) -> bool:
        """Return whether there is one layer only: the tensor-parallel layer, its heads split over the whole group."""
        return len(self.layers) == 1

    def place(self, chip: int) -> tuple[int, int] | None:
        """Return (layer, which of its `share` parts) for a chip, None if it idles."""
        slot, part = divmod(chip, self.share)
        return (self.layers[slot], part) if slot < len(self.layers) else None


@dataclass(frozen=True)
class LayerAssignment:
    """groups: consecutive layers whose attentions all read the first one's input (EasySpec, algorithm 2).

    A group runs in stages of at most tp layers, one after another. A stage of one layer is the tensor-parallel layer:
    layer 0, the last layer, and on one chip all of them, which then compute the same numbers one after another. A layer
    on a chip of its own would leave the others idle and read tp times its bytes.

    Chips of a stage hold whole layers *beside* the tensor-parallel model, which stays complete: exact passes
    (calibration, prefill) run on it at full speed, and each chip computes its own layers' keys and values once more
    from the hidden state that the exact pass hands to that layer. The alternative, exact passes on the chips' own
    layers while all other chips idle, needs no second copy but reads tp times the attention bytes in every round. For
    Llama 3.2 1B, N = 4, on 1x4 the copy takes 45 MB per chip, and 18 MB for 4096 positions of one user.
    """

    config: LlamaConfig
    mesh: MeshShape
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def make(cls, config: LlamaConfig, mesh: MeshShape, fuzzy: int | Sequence[Sequence[int]]) -> LayerAssignment:
        """fuzzy: layers in parallel, by the strategies of table 6 (1 is sequential), or the groups themselves.

        Raises ValueError for a size or groups that the model does not have, MeshError for a model that the TP group, or
        the chips of one layer, cannot hold in whole heads.
        """
        groups = groups_of(config.num_hidden_layers, fuzzy)
        assignment = cls(config, mesh, tuple(map(tuple, groups)))
        mesh.check_model(config)
        for stage in assignment.parallel_stages:
            stage.mesh.check_model(config)
        return assignment

    @property
    def size(self) -> int:
        """Return the layers of the largest group."""
        return max(map(len, self.groups))

    def stages(self, group: Sequence[int]) -> list[Stage]:
        tp = self.mesh.tp
        return [Stage(tuple(group[start : start + tp]), tp) for start in range(0, len(group), tp)]

    @property
    def parallel_stages(self) -> list[Stage]:
        """Return all stages of more than one layer: those that hold a second copy."""
        return [stage for group in self.groups for stage in self.stages(group) if not stage.alone]

    def formats(self, stage: Stage, precision: PrecisionConfig) -> LayerPrecision:
        """Return the formats of a stage's attentions, which run as one program. Raises PrecisionError if they
        differ."""
        kinds = {layer: precision.of_layer(layer) for layer in stage.layers}
        if len({(of.qkv, of.wo) for of in kinds.values()}) > 1:
            named = ", ".join(f"{layer} {of.qkv} and {of.wo}" for layer, of in kinds.items())
            raise PrecisionError(
                f"layers in parallel need one format of qkv and one of wo; of {precision.name}: {named}"
            )
        return kinds[stage.layers[0]]

    def extra(self, precision: PrecisionConfig, context: int, users: int = 1) -> Budget:
        """Count one chip's DRAM beside the model's `budget`; the same on every chip, since one program runs on all: a
        chip that idles in a stage holds zeros. read_per_step: what a layer-parallel step reads beyond a sequential one.
        Raises PrecisionError (see `formats`)."""
        config, tp = self.config, self.mesh.tp
        positions = -(-context // TILE) * TILE
        columns = (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim
        weights = norms = kv_cache = read = 0
        for stage in self.parallel_stages:
            formats = self.formats(stage, precision)

            def layer(chips: int, formats: Any = formats) -> tuple[int, int]:
                matrices = bytes_of(config.hidden_size * columns // chips, formats.qkv) + bytes_of(
                    config.hidden_size * config.num_attention_heads * config.head_dim // chips, formats.wo
                )
                heads = config.num_key_value_heads // chips
                return matrices, 2 * users * bytes_of(heads * positions * config.head_dim, precision.kv_cache)

            own, cached = layer(stage.share)
            weights, kv_cache = weights + own, kv_cache + cached
            norms += bytes_of(TILE * config.hidden_size, "bfloat16")
            norms += 2 * len(stage.layers) * bytes_of(1, "bfloat16")  # which chip has which layer, twice
            read += own + cached - len(stage.layers) * sum(layer(tp))
        return Budget(weights, norms, 0, kv_cache, 0, read)
