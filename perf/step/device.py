# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps on simulated chips, every program timed. Runs in a process whose runtime notes programs, under fast dispatch,
where the chips run on their own as on silicon; caches hold random numbers, so that no prompt has to be read."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
import ttnn

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from models.llama31_8b.tt.alspec import PairAlspec
from models.llama31_8b.tt.attention_policies import ExactAttention
from models.llama31_8b.tt.mesh import TP_AXIS, MeshShape, Site
from models.llama31_8b.tt.model import TtLlama
from models.llama31_8b.tt.precision import precision_config
from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings
from perf.lib.chip import replayed, simulated_timer
from perf.lib.data_file import Kept
from perf.lib.launch_labels import Labels
from perf.step.shapes import EXACT, TOKEN, Shape, hit_pattern, known_weights
from runtime_patches.profiling.timeline import ProgramSpan
from tt_kernels.common.priority import HOLDS_EXACT, YIELDED, priority_row
from tt_kernels.compute_gate.op import clear_compute_gate, set_compute_gate, skip_compute
from tt_kernels.speculative_flash_decode.guess_range import MASS_UNIT
from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode
from tt_kernels.tree_attention.op import ProgramConfig as TreeProgramConfig
from tt_kernels.tree_attention.op import tree_attention

SEED = 0


class ExactFlashDecode(ExactAttention):
    """The exact variant of the speculative op's kernels, on every chip alone."""

    def __init__(self, shape: Shape) -> None:
        self.chunk_size, workers = shape.chunk_size, shape.workers
        self.program = ProgramConfig(workers_per_head=workers)
        self.tree_program = TreeProgramConfig(workers_per_head=workers)

    def attend_tree(self, layer, q, cache, inputs):
        trees = inputs.positions, inputs.intervals
        return tree_attention(q, cache.keys, cache.values, *trees, program_config=self.tree_program)

    def attend(self, layer, q, cache, inputs):
        options = {"chunk_size": self.chunk_size, "program_config": self.program}
        return flash_decode(q, cache.keys, cache.values, inputs.positions, **options)


class ForcedSpeculation(PairAlspec):
    """Speculation by a threshold per layer: infinite for a hit, 0 for a miss. skipped: priorities by which both rows
    skip what is gated, whatever they decide."""

    hits: Sequence[bool] = ()
    skipped: ttnn.Tensor | None = None

    def __call__(self, layer, *given):
        if self.hits:
            self.threshold = math.inf if self.hits[layer] else 0.0
        return super().__call__(layer, *given)

    def skip_if_overruled(self, layer):
        if self.skipped is None:
            return super().skip_if_overruled(layer)
        return skip_compute(self.skipped, users=self.users, log=self.log, layer=layer, shared_gate_axis=TP_AXIS)

    def know(self, chosen: int, context: int) -> None:
        """Give both rows attention weights of all layers by which a guess reads `chosen` tiles between both ends."""
        assert self.by_budget is not None
        users, kv_heads, total = self.by_budget.masses[0].shape
        weights = known_weights(self.by_budget.guess_range.middle(context), chosen, total)
        words = (torch.tensor(weights) / MASS_UNIT).to(torch.int32).expand(users, kv_heads, total)
        mapper = ttnn.ReplicateTensorToMesh(self.mesh)
        for masses in self.by_budget.masses:
            host = ttnn.from_torch(words.contiguous(), dtype=masses.dtype, layout=masses.layout, mesh_mapper=mapper)
            ttnn.copy_host_to_device_tensor(host, masses)


def fill(model: TtLlama) -> None:
    """Write random keys and values into the whole cache, the same on both rows."""
    tensors = [*model.cache.keys, *model.cache.values]
    shape = tuple(tensors[0].shape)
    generator = torch.Generator().manual_seed(SEED)
    for tensor in tensors:
        content = torch.randn(shape, generator=generator)
        everywhere = ttnn.ReplicateTensorToMesh(model.mesh)
        host = ttnn.from_torch(content, dtype=tensor.dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=everywhere)
        ttnn.copy_host_to_device_tensor(host, tensor)


def measure_pair(mesh, shape: Shape, rates: Sequence[float], kept: Kept) -> None:
    """Measure the steps of a few layers that `kept` lacks, and add each as soon as it is measured: with exact attention
    on one row alone, and with speculation at each forced hit rate. On a mesh of one row: the step with exact attention
    and tensor parallelism.

    kept: steps by name: "exact", "0.5" ...; a step is {"chips": per chip a list of {"name", "layer", "start", "end"},
    in cycles from the step's first program, "hits": per layer 1 or 0, as the chips decided}. Raises RuntimeError when
    the chips' outcomes are not the forced ones.
    """
    pair = _Pair(mesh, shape)
    if EXACT not in kept.steps:
        kept.add(EXACT, pair.exact_step())
    if pair.speculation is None:
        return
    wanted = {f"{rate:g}": rate for rate in rates if f"{rate:g}" not in kept.steps}
    if wanted:
        pair.compile_speculation()
    for name, rate in wanted.items():
        pair.speculation.hits = hit_pattern(shape.layers, rate)
        if shape.chosen:
            pair.speculation.know(shape.chosen, shape.context)
        step = pair.speculative_step()
        if step["hits"] != [int(hit) for hit in pair.speculation.hits]:
            raise RuntimeError(f"forced hits {pair.speculation.hits}, the chips decided {step['hits']}")
        kept.add(name, step)


class _Pair:
    """The model of a shape on one or two rows of chips, and its steps."""

    def __init__(self, mesh, shape: Shape) -> None:
        self.shape, self.mesh_shape, config = shape, MeshShape(*mesh.shape), shape.config()
        capacity, self.exact = config.max_position_embeddings, ExactFlashDecode(shape)
        self.speculation: ForcedSpeculation | None = None
        if self.mesh_shape.sp == 2:
            own: dict[str, Any] = {"program": self.exact.program, "tree_program": self.exact.tree_program}
            chosen = AttentionSettings("alspec", shape.chunk_size, predictor=shape.predictor, timeout_s=0.02, **own)
            site = Site(mesh, self.mesh_shape, config)
            self.speculation = ForcedSpeculation(site, chosen, users=1, capacity=capacity)
        settings = ModelSettings(
            capacity=capacity,
            precision=precision_config(shape.precision, shape.layers + 1),
            attention=self.speculation or self.exact,
            decode_sharding=shape.sharding,
            zeroed=False,
        )
        self.model = TtLlama.from_state_dict(config, random_state_dict(config, SEED), mesh, settings)
        fill(self.model)
        self.timer = simulated_timer(mesh)

    def exact_step(self) -> dict:
        """Return the step of a mesh of one row, or of the first row of two, while the other skips it. The chips skip
        what is launched to compile it."""
        model = self.model.with_attention(self.exact)
        alone = self.mesh_shape.sp == 1
        with contextlib.nullcontext() if alone else self._skipped_by((0, 1)):
            self._compile(model)
        with contextlib.nullcontext() if alone else self._skipped_by((1,)):
            step = self._step(model)
        return step if alone else {"chips": step["chips"][: self.mesh_shape.tp]}

    def compile_speculation(self) -> None:
        assert self.speculation is not None
        with self._skipped_by((0, 1)) as self.speculation.skipped:
            self._compile(self.model.with_attention(self.speculation))
        self.speculation.skipped = None

    def speculative_step(self) -> dict:
        assert self.speculation is not None
        model = self.model.with_attention(self.speculation)
        step = self._step(model)
        model.check()
        rows = self.speculation.last_priorities()
        hits = [any(layer[0] == YIELDED for layer in layers) for layers in zip(*rows, strict=True)]
        return step | {"hits": [int(hit) for hit in hits]}

    @contextlib.contextmanager
    def _skipped_by(self, rows: Collection[int]) -> Iterator[ttnn.Tensor]:
        """Inside, the chips of these rows of the mesh skip what is launched, by the yielded priorities."""
        held = torch.cat([priority_row(YIELDED if row in rows else HOLDS_EXACT) for row in range(self.mesh_shape.sp)])
        mapper = ttnn.ShardTensor2dMesh(self.model.mesh, mesh_shape=self.mesh_shape.shape, dims=(0, None))
        place: dict[str, Any] = {"device": self.model.mesh, "mesh_mapper": mapper}
        priority = ttnn.from_torch(held, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, **place)
        set_compute_gate(priority, users=1)
        try:
            yield priority
        finally:
            clear_compute_gate(self.model.mesh)

    def _compile(self, model: TtLlama) -> None:
        """Launch a step, at the shortest context that speculates."""
        self._prepared(model, 2 * self.shape.chunk_size - 1)()
        ttnn.synchronize_device(model.mesh)

    def _step(self, model: TtLlama) -> dict:
        labels, step = Labels(), self._prepared(model, self.shape.context - 1)
        chips = replayed(model.mesh, self.timer, step, labels.of_model(model))

        def named(span: ProgramSpan) -> dict:
            label = labels.of(span.number)
            name, layer = (label.part or label.name, label.layer) if label else ("other", None)
            return {"name": name, "layer": layer} | asdict(span)

        return {"chips": [list(map(named, chip)) for chip in chips]}

    def _prepared(self, model: TtLlama, position: int) -> Callable[[], ttnn.Tensor]:
        """Return a step from `position` on, whose inputs are on the chips."""
        nodes = self.shape.nodes
        if not nodes:
            inputs = model.step_inputs([TOKEN], [position])
            return lambda: model.decode(inputs, gather_logits=False)
        chain = TokenTreeBatch.stack([TokenTree.chain(nodes)])
        tree = model.tree_inputs(torch.full((1, nodes), TOKEN), [position], chain.enter, chain.leave)
        return lambda: model.decode(tree, gather_logits=False)
