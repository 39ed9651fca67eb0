# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of a few Llama layers on a pair of simulated chips, replayed from traces, every program timed.

Runs in a process whose runtime notes programs (runtime_patches/profiling/timeline.py), under fast dispatch, where the
chips run on their own as on silicon. The caches hold random numbers, so that no prompt has to be read; outcomes are
forced, a threshold a layer. Where the layers are to decide, caches and embeddings may be random walks, so that
attention stays near where it was a step before. Steps decode a token, or with `nodes` a chain of so many. `measure` is
the only entry; perf/steps/bench_alspec.py starts it, and alspec_table.py makes sense of what it returns.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
import ttnn

from models.llama31_8b.checkpoint.random_weights import random_state_dict
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from models.llama31_8b.tt.alspec import AttentionSpeculation
from models.llama31_8b.tt.attention_policies import DecodeAttention
from models.llama31_8b.tt.mesh import TP_AXIS, MeshShape
from models.llama31_8b.tt.model import TtLlama
from models.llama31_8b.tt.precision import PrecisionConfig, precision_config
from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings
from perf.lib.launch_labels import Labels
from perf.steps.alspec_programs import EXACT, hit_pattern, own_names
from perf.steps.random_walks import walked_caches, walked_embeddings
from runtime_patches.profiling.timeline import Timeline
from tt_kernels.common.priority import HOLDS_EXACT, YIELDED, priority_row
from tt_kernels.compute_gate.op import clear_compute_gate, set_compute_gate, skip_compute
from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode
from tt_kernels.tree_attention.op import ProgramConfig as TreeProgramConfig
from tt_kernels.tree_attention.op import tree_attention

TOKEN = 5  # of a step alone


@dataclass(frozen=True)
class Shape:
    """The layers and the step. context: cached positions, the new token counted. workers: cores per key/value head
    for attention, exact and speculative alike; None: what either op chooses, and the exact one then has two more.
    precision: a preset's formats of layers before a model's last. sharding: of decode steps. nodes: of a step's tree, 0
    for a step of one token. predictor: what the guess reads. walk: so many steps follow one another with the layers'
    own decisions, over keys, values and embeddings that are random walks; 0: one step, all numbers independent."""

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
    walk: int = 0

    def own_steps(self) -> list[tuple[str, int, int]]:
        """Return name, token and position of the steps in which the layers decide."""
        if not self.walk:
            return [(own_names(0)[0], TOKEN, self.context - 1)]
        return [(name, step, self.context - self.walk + step) for step, name in enumerate(own_names(self.walk))]

    def formats(self) -> PrecisionConfig:
        return precision_config(self.precision, self.layers + 1)

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
    """A threshold a layer: infinite for a hit, 0 for a miss; without `hits` its own. skipped: priorities by which both
    rows skip what is gated, whatever they decide."""

    hits: Sequence[bool] = ()
    skipped: ttnn.Tensor | None = None

    def __call__(self, layer, q, keys, values, positions, page_table=None):
        self._force(layer)
        return super().__call__(layer, q, keys, values, positions, page_table)

    def attend_tree(self, layer, *inputs):
        self._force(layer)
        return super().attend_tree(layer, *inputs)

    def _force(self, layer: int) -> None:
        if self.hits:
            self.threshold = math.inf if self.hits[layer] else 0.0

    def gate(self, layer):
        if self.skipped is None:
            return super().gate(layer)
        return skip_compute(self.skipped, users=self.users, log=self.log, layer=layer, shared_gate_axis=TP_AXIS)


def measure(
    mesh,
    shape: Shape,
    rates: Sequence[float],
    own: float | None = None,
    seed: int = 0,
    done: Collection[str] = (),
    note: Callable[[str, dict], None] = lambda name, step: None,
) -> dict:
    """Steps with exact attention on one row alone, with speculation at each hit rate, and at the threshold `own` with
    the layers' own decisions; on a mesh of one row, the step with exact attention and tensor parallelism.

    Returns {"exact": step, "0.5": step, ..., "own": step} without those that are `done`, in place of the last with a
    walk "own 0", "own 1" and so on; a step is {"chips": a list a chip of {"name", "layer", "start", "end"}, in cycles
    from the step's first program, "hits": of each layer, 1 or 0, as the chips decided}. note: called with each step as
    soon as it is measured. Errors: RuntimeError when the chips' outcomes are not the forced ones.
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
            guess_range=AttentionSettings("alspec", chunk_size=shape.chunk_size, predictor=shape.predictor).guess_range,
        )
    settings = ModelSettings(
        capacity=capacity,
        precision=shape.formats(),
        attention=speculation or exact,
        decode_sharding=shape.sharding,
        zeroed=False,
    )
    state = random_state_dict(config, seed)
    if shape.walk:
        state["model.embed_tokens.weight"] = walked_embeddings(config.vocab_size, config.hidden_size, seed)
    model = TtLlama.from_state_dict(config, state, mesh, settings)
    fill(model, seed, walks=shape.walk > 0)
    timeline, found = Timeline(mesh), {}

    def add(name: str, step: dict) -> None:
        found[name] = step
        note(name, step)

    if EXACT not in done:
        add(EXACT, _exact_step(model, exact, timeline, shape))
    if speculation is None:
        return found
    wanted = {f"{rate:g}": rate for rate in rates if f"{rate:g}" not in done}
    own_steps = [] if own is None or set(own_names(shape.walk)) <= set(done) else shape.own_steps()
    if wanted or own_steps:
        with _skipped_by(model, (0, 1)) as speculation.skipped:
            _compile(model.with_attention(speculation), shape)
        speculation.skipped = None
    for name, rate in wanted.items():
        speculation.hits = hit_pattern(shape.layers, rate)
        step = _speculative_step(model, speculation, timeline, shape)
        if step["hits"] != [int(hit) for hit in speculation.hits]:
            raise RuntimeError(f"forced hits {speculation.hits}, the chips decided {step['hits']}")
        add(name, step)
    if own is not None:
        speculation.hits, speculation.threshold = (), own
    for name, token, position in own_steps:
        step = _speculative_step(model, speculation, timeline, shape, token, position)
        add(name, step | {"threshold": own})
    return found


def _exact_step(model: TtLlama, exact: ExactFlashDecode, timeline: Timeline, shape: Shape) -> dict:
    """Return the step of a mesh of one row, or of the first row of two, while the other skips it. The chips skip what
    is launched to compile it."""
    model = model.with_attention(exact)
    if model.mesh_shape.sp == 1:
        _compile(model, shape)
        return _step(model, timeline, shape)
    with _skipped_by(model, (0, 1)):
        _compile(model, shape)
    with _skipped_by(model, (1,)):
        step = _step(model, timeline, shape)
    return {"chips": step["chips"][: model.mesh_shape.tp]}


@contextlib.contextmanager
def _skipped_by(model: TtLlama, rows: Collection[int]) -> Iterator[ttnn.Tensor]:
    """Inside, the chips of these rows of the mesh skip what is launched, by the yielded priorities."""
    held = torch.cat([priority_row(YIELDED if row in rows else HOLDS_EXACT) for row in range(model.mesh_shape.sp)])
    mapper = ttnn.ShardTensor2dMesh(model.mesh, mesh_shape=model.mesh_shape.shape, dims=(0, None))
    priority = ttnn.from_torch(
        held, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=model.mesh, mesh_mapper=mapper
    )
    set_compute_gate(priority, users=1)
    try:
        yield priority
    finally:
        clear_compute_gate(model.mesh)


def _speculative_step(
    model: TtLlama,
    speculation: ForcedSpeculation,
    timeline: Timeline,
    shape: Shape,
    token: int = TOKEN,
    position: int | None = None,
) -> dict:
    step = _step(model.with_attention(speculation), timeline, shape, token, position)
    speculation.check()
    rows = speculation.last_priorities()
    hits = [any(layer[0] == YIELDED for layer in layers) for layers in zip(*rows, strict=True)]
    return step | {"hits": [int(hit) for hit in hits]}


def fill(model: TtLlama, seed: int, walks: bool = False) -> None:
    """Random keys and values in the whole cache, the same on both rows. walks: as walks along the positions."""
    tensors = [*model.cache.keys, *model.cache.values]
    shape = tuple(tensors[0].shape)
    if walks:
        keys, values = walked_caches(len(model.cache.keys), shape, seed)
        contents = [*keys, *values]
    else:
        generator = torch.Generator().manual_seed(seed)
        contents = [torch.randn(shape, generator=generator) for _ in tensors]
    for tensor, content in zip(tensors, contents, strict=True):
        host = ttnn.from_torch(
            content,
            dtype=tensor.dtype,
            layout=ttnn.TILE_LAYOUT,
            mesh_mapper=ttnn.ReplicateTensorToMesh(model.mesh),
        )
        ttnn.copy_host_to_device_tensor(host, tensor)


def _compile(model: TtLlama, shape: Shape) -> None:
    """Launch a step, at the shortest context that speculates."""
    _prepared(model, shape, 2 * shape.chunk_size - 1)()
    ttnn.synchronize_device(model.mesh)


def _step(model: TtLlama, timeline: Timeline, shape: Shape, token: int = TOKEN, position: int | None = None) -> dict:
    """Return a compiled step, by default that of the last position, as it is captured, replayed and timed."""
    step = _prepared(model, shape, shape.context - 1 if position is None else position, token)
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


def _prepared(model: TtLlama, shape: Shape, position: int, token: int = TOKEN) -> Callable[[], ttnn.Tensor]:
    """Return a step from `position` on, whose inputs are on the chips."""
    if not shape.nodes:
        inputs = model.step_inputs([token], [position])
        return lambda: model.decode(inputs, gather_logits=False)
    chain = TokenTreeBatch.stack([TokenTree.chain(shape.nodes)])
    tree = model.tree_inputs(torch.full((1, shape.nodes), token), [position], chain.enter, chain.leave)
    return lambda: model.decode_tree(tree, gather_logits=False)


def _named(span: dict, labels: Labels) -> dict:
    """A span with the name and layer of the launch it belongs to."""
    label = labels.of(span["number"])
    found = (
        {"name": "other", "layer": None} if label is None else {"name": label.part or label.name, "layer": label.layer}
    )
    return found | span
