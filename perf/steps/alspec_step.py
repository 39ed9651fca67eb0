# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of a few Llama layers on a pair of simulated chips, replayed from traces, every program timed.

Runs in a process whose runtime notes programs (runtime_patches/profiling/timeline.py), under fast dispatch, where the
chips run on their own as on silicon. The caches hold random numbers, so that no prompt has to be read; outcomes are
forced, a threshold a layer. Steps decode a token, or with `nodes` a chain of so many. `measure` is the only entry;
perf/steps/bench_alspec.py starts it and makes sense of what it returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
import ttnn

from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.reference.model.random_weights import random_state_dict
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from models.llama31_8b.tt.decode_attention.alspec import AttentionSpeculation
from models.llama31_8b.tt.decode_attention.base import DecodeAttention
from models.llama31_8b.tt.model import TtLlama
from models.llama31_8b.tt.parallel.mesh import MeshShape
from models.llama31_8b.tt.settings import ModelSettings
from perf.lib.launch_labels import Labels
from perf.steps.alspec_programs import EXACT, OWN, hit_pattern
from runtime_patches.profiling.timeline import Timeline
from tt_kernels.common.priority import YIELDED
from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode
from tt_kernels.tree_attention.op import ProgramConfig as TreeProgramConfig
from tt_kernels.tree_attention.op import tree_attention


@dataclass(frozen=True)
class Shape:
    """The layers and the step. context: cached positions, the new token counted. workers: cores per key/value head
    for attention, exact and speculative alike; None: what either op chooses, and the exact one then has two more.
    nodes: of a step's tree, 0 for a step of one token."""

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
    nodes: int = 0

    def program(self) -> ProgramConfig:
        return ProgramConfig(workers_per_head=self.workers)

    def tree_program(self) -> TreeProgramConfig:
        return TreeProgramConfig(workers_per_head=self.workers)

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


class ExactFlashDecode(DecodeAttention):
    """The exact variant of the speculative op's kernels, on every chip alone."""

    def __init__(self, shape: Shape) -> None:
        self.chunk_size, self.program, self.tree_program = shape.chunk_size, shape.program(), shape.tree_program()

    def check_trees(self) -> None:
        """Accept token trees."""

    def attend_tree(self, layer, q, keys, values, prefix, intervals, page_table=None):
        return tree_attention(q, keys, values, prefix, intervals, program_config=self.tree_program)

    def __call__(self, layer, q, keys, values, positions, page_table=None):
        return flash_decode(q, keys, values, positions, chunk_size=self.chunk_size, program_config=self.program)


class ForcedSpeculation(AttentionSpeculation):
    """A threshold a layer: infinite for a hit, 0 for a miss; without `hits` its own."""

    hits: Sequence[bool] = ()

    def __call__(self, layer, q, keys, values, positions, page_table=None):
        self._force(layer)
        return super().__call__(layer, q, keys, values, positions, page_table)

    def attend_tree(self, layer, *inputs):
        self._force(layer)
        return super().attend_tree(layer, *inputs)

    def _force(self, layer: int) -> None:
        if self.hits:
            self.threshold = math.inf if self.hits[layer] else 0.0


def measure(mesh, shape: Shape, rates: Sequence[float], own: float | None = None, seed: int = 0) -> dict:
    """Steps with exact attention on each row alone, with speculation at each hit rate, and at the threshold `own` with
    the layers' own decisions; on a mesh of one row, the step with exact attention and tensor parallelism.

    Returns {"exact": step, "0.5": step, ..., "own": step}; a step is {"chips": a list a chip of {"name", "layer",
    "start", "end"}, in cycles from the step's first program, "hits": of each layer, 1 or 0, as the chips decided}.
    Errors: RuntimeError when the chips' outcomes are not the forced ones.
    """
    mesh_shape, config = MeshShape(*mesh.shape), shape.config()
    capacity = config.max_position_embeddings
    exact = ExactFlashDecode(shape)
    speculation = None
    if mesh_shape.sp == 2:
        speculation = ForcedSpeculation(
            mesh,
            mesh_shape,
            config,
            users=1,
            capacity=capacity,
            chunk_size=shape.chunk_size,
            timeout_s=0.02,
            program=shape.program(),
            tree_program=shape.tree_program(),
        )
    settings = ModelSettings(capacity=capacity, precision="bfloat16", attention=speculation or exact)
    model = TtLlama.from_state_dict(config, random_state_dict(config, seed), mesh, settings)
    fill(model, seed)
    timeline = Timeline(mesh)
    _compile(model, exact, shape)
    found = {EXACT: _step(model, exact, timeline, shape)}
    if speculation is None:
        return found
    _compile(model, speculation, shape)
    for rate in rates:
        speculation.hits = hit_pattern(shape.layers, rate)
        found[f"{rate:g}"] = step = _speculative_step(model, speculation, timeline, shape)
        if step["hits"] != [int(hit) for hit in speculation.hits]:
            raise RuntimeError(f"forced hits {speculation.hits}, the chips decided {step['hits']}")
    if own is not None:
        speculation.hits, speculation.threshold = (), own
        found[OWN] = _speculative_step(model, speculation, timeline, shape) | {"threshold": own}
    return found


def _compile(model: TtLlama, attention: DecodeAttention, shape: Shape) -> None:
    """One step that compiles, at the shortest context that speculates."""
    _prepared(model.with_attention(attention), shape, 2 * shape.chunk_size - 1)()


def _speculative_step(model: TtLlama, speculation: ForcedSpeculation, timeline: Timeline, shape: Shape) -> dict:
    step = _step(model, speculation, timeline, shape)
    speculation.check()
    rows = speculation.last_priorities()
    hits = [any(layer[0] == YIELDED for layer in layers) for layers in zip(*rows, strict=True)]
    return step | {"hits": [int(hit) for hit in hits]}


def fill(model: TtLlama, seed: int) -> None:
    """Random keys and values in the whole cache, the same on both rows."""
    generator = torch.Generator().manual_seed(seed)
    for tensors in (model.cache.keys, model.cache.values):
        for tensor in tensors:
            values = torch.randn(tuple(tensor.shape), generator=generator)
            host = ttnn.from_torch(
                values,
                dtype=tensor.dtype,
                layout=ttnn.TILE_LAYOUT,
                mesh_mapper=ttnn.ReplicateTensorToMesh(model.mesh),
            )
            ttnn.copy_host_to_device_tensor(host, tensor)


def _step(model: TtLlama, attention: DecodeAttention, timeline: Timeline, shape: Shape) -> dict:
    """One step, whose programs are compiled, captured, replayed and timed."""
    model = model.with_attention(attention)
    step = _prepared(model, shape, shape.context - 1)
    labels = Labels()
    trace = ttnn.begin_trace_capture(model.mesh, cq_id=0)
    with labels.of_model(model):
        step()
    ttnn.end_trace_capture(model.mesh, trace, cq_id=0)
    timeline.start()
    ttnn.execute_trace(model.mesh, trace, cq_id=0, blocking=True)
    chips = timeline.stop()
    ttnn.release_trace(model.mesh, trace)
    return {"chips": [[_named(asdict(span), labels) for span in chip] for chip in chips]}


def _prepared(model: TtLlama, shape: Shape, position: int) -> Callable[[], ttnn.Tensor]:
    """Return a step from `position` on, whose inputs are on the chips."""
    if not shape.nodes:
        token = model.step_inputs([5], [position])
        return lambda: model.decode(token, gather_logits=False)
    chain = TokenTreeBatch.stack([TokenTree.chain(shape.nodes)])
    tree = model.tree_inputs(torch.full((1, shape.nodes), 5), [position], chain.enter, chain.leave)
    return lambda: model.decode_tree(tree, gather_logits=False)


def _named(span: dict, labels: Labels) -> dict:
    """A span with the name and layer of the launch it belongs to."""
    label = labels.of(span["number"])
    found = (
        {"name": "other", "layer": None} if label is None else {"name": label.part or label.name, "layer": label.layer}
    )
    return found | span
