# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Layer-parallel decode steps of a draft model (EasySpec, section 3.1, algorithm 2), and exact keys and values for the
chips' own layers (bonus calibration, section 3.2). For which chip holds what see layer_parallel.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import ttnn

from ..kv_cache import KVCache
from ..layer import Attention, DecoderLayer, Pass
from ..layer_parallel import LayerAssignment, Stage
from ..layouts import DecodeLayout, Residual, Rows, add_into, gather, reduce
from ..modules import Angles, Projection, RMSNorm, Rope
from ..precision import LayerPrecision
from ..weights import WeightMap, WeightStore

# Writes the keys and values of a pass, bfloat16 [1, kv heads of a chip, rows, head_dim], into a cache of one layer.
Write = Callable[[KVCache, ttnn.Tensor, ttnn.Tensor], None]


class ParallelStage:
    """The attentions of a stage's layers, each with its own norm, weights and cache on its own chips, all from the same
    input: one program whose weights differ by chip. cache: of one layer with the heads of the stage's mesh."""

    def __init__(
        self, stage: Stage, formats: LayerPrecision, weights: WeightMap, store: WeightStore, rope: Rope, cache: KVCache
    ) -> None:
        self.mesh_shape, self.layers, self.cache, site = weights.mesh, stage.layers, cache, cache.site
        name = f"own.{'-'.join(map(str, stage.layers))}"
        self.norm = RMSNorm(
            store.put(f"{name}.norm", lambda: weights.own_norms(stage), "bfloat16", -1), site.config.rms_norm_eps
        )
        self.layout, self.rows = DecodeLayout(site), Rows(site)
        self.attention = Attention(
            0,
            Projection(store.put(f"{name}.qkv", lambda: weights.own_qkv(stage), formats.qkv, -1)),
            Projection(store.put(f"{name}.wo", lambda: weights.own_wo(stage), formats.wo, -2)),
            rope,
        )
        places = [stage.place(chip) for chip in range(stage.chips)]
        owners = [None if place is None else place[0] for place in places]
        slots = torch.tensor([[float(owner == layer) for owner in owners] for layer in stage.layers])

        def mask(values: torch.Tensor) -> ttnn.Tensor:
            """A number for each chip of the row and each layer of `values` [layers, chips]: [1, layers, 1, 1]."""
            return weights.mesh.put(site.mesh, values.t().reshape(1, -1, 1, 1), "bfloat16", dim=1)

        self._slots = mask(slots)
        self._owns = [mask(row[None]) for row in slots]

    def decode(self, whole: ttnn.Tensor, step: Pass) -> list[ttnn.Tensor]:
        """whole: bfloat16 [1, 1, users, hidden], the same on every chip -> per layer what its attention adds to it, of
        the same shape, in L1. Writes the chips' own caches."""
        own, attention = replace(step, cache=self.cache, layout=self.layout), self.attention
        fused = self.layout.multiply(attention.qkv, self.norm(whole))
        partial = self.layout.multiply_heads(attention.wo, attention.attend(fused, own))
        # Each chip puts its part into its layer's slot of a stack, zeros into the others: one sum over the row then
        # brings every layer's columns to all chips.
        stacked = ttnn.mul(partial, self._slots, memory_config=ttnn.L1_MEMORY_CONFIG)
        sums = gather(reduce(stacked, self.mesh_shape), self.mesh_shape)
        _, _, users, columns = sums.shape
        return [
            ttnn.slice(sums, [0, slot, 0, 0], [1, slot + 1, users, columns], memory_config=ttnn.L1_MEMORY_CONFIG)
            for slot in range(len(self.layers))
        ]

    def select(self, layer: int, whole: ttnn.Tensor, so_far: ttnn.Tensor | None) -> ttnn.Tensor:
        """Select the input of the chips' own layers: `whole` on the chips of `layer`, `so_far` on the others."""
        mine = ttnn.mul(whole, self._owns[self.layers.index(layer)], memory_config=ttnn.DRAM_MEMORY_CONFIG)
        return mine if so_far is None else ttnn.add(so_far, mine, memory_config=ttnn.DRAM_MEMORY_CONFIG)

    def refill(self, entering: ttnn.Tensor, angles: Angles, write: Write) -> None:
        """Write exact keys and values into the chips' own caches. entering: what `select` made for all layers."""
        keys, values = self.attention.keys_and_values(self.norm(entering), self.rows, angles)
        write(self.cache, keys, values)


class Refill:
    """Refill the chips' own caches during one exact pass: call it with each layer and its input, in order."""

    def __init__(self, stages: Sequence[ParallelStage], angles: Angles, write: Write) -> None:
        self._stages = {layer: stage for stage in stages for layer in stage.layers}
        self._angles, self._write = angles, write
        self._entering: ttnn.Tensor | None = None

    def __call__(self, layer: int, whole: ttnn.Tensor) -> None:
        """whole: bfloat16 [1, 1, rows, hidden], the same on every chip."""
        stage = self._stages.get(layer)
        if stage is None:
            return
        self._entering = stage.select(layer, whole, self._entering)
        if layer == stage.layers[-1]:
            stage.refill(self._entering, self._angles, self._write)
            self._entering = None


class LayerGroups:
    """The layers of a model in the groups of an assignment. Stages of one layer run as the tensor-parallel layer;
    parallel: makes the others."""

    def __init__(
        self, assignment: LayerAssignment, layers: Sequence[DecoderLayer], parallel: Callable[[Stage], ParallelStage]
    ) -> None:
        self.assignment, self.layers = assignment, layers
        self._groups: list[tuple[tuple[int, ...], list[int | ParallelStage]]] = [
            (group, [stage.layers[0] if stage.alone else parallel(stage) for stage in assignment.stages(group)])
            for group in assignment.groups
        ]

    @property
    def parallel_stages(self) -> list[ParallelStage]:
        return [stage for _, stages in self._groups for stage in stages if isinstance(stage, ParallelStage)]

    def decode(self, x: ttnn.Tensor, step: Pass) -> ttnn.Tensor:
        """Run all layers by algorithm 2: the attentions of a group read its first layer's input; each MLP reads the
        residual with the attentions up to its own and the MLPs before it. x: the residual, [1, 1, users, hidden];
        returns its shape."""
        for group, stages in self._groups:
            updates = []
            for stage in stages:
                if isinstance(stage, ParallelStage):
                    updates += stage.decode(x, step)
                else:
                    updates.append(self.layers[stage].attention_update(x, step))
            for layer, update in zip(group, updates, strict=True):
                x = self.layers[layer].add_mlp(Residual(add_into(x, update)), step.layout).x
        return x
