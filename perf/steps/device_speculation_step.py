# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of a round of token-level speculation on a row of simulated chips, replayed from traces, every program
timed. Runs in a process whose runtime notes programs (runtime_patches/profiling/timeline.py), under fast dispatch;
perf/ bench_device_speculation.py starts it. Caches are blank: programs take as long whatever the numbers are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import ttnn
from loguru import logger

from models.llama31_8b.checkpoint.random_weights import random_state_dict
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.spec_decode.tree import TokenTree
from models.llama31_8b.tt.layer_parallel import LayerAssignment
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.model import TtLlama
from models.llama31_8b.tt.settings import ModelSettings
from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
from runtime_patches.profiling.timeline import Timeline
from tt_kernels.speculative_sampling.program import RESULT_HEAD

SEQUENTIAL, FUZZY, CALIBRATION = "draft step, sequential", "draft step, layer-parallel", "calibration"
TARGET, COMMIT = "target step with verification and commit", "commit alone"


@dataclass(frozen=True)
class Shape:
    """layers: of the draft, all of them one group; the target has one. heads: query and key/value heads alike.
    drafted: tokens of a chain. context: cached positions before the round."""

    layers: int = 2
    heads: int = 2
    drafted: int = 3
    context: int = 64

    def config(self) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=96,
            hidden_size=32 * self.heads,
            intermediate_size=32 * self.heads,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            head_dim=64,
            max_position_embeddings=self.context + 32,
            name="bench",
        )


def measure(mesh: ttnn.MeshDevice, shape: Shape) -> dict[str, dict[str, int]]:
    """Return by part: cycles from its first program's start to its last one's end over all chips, and its programs."""
    mesh_shape, config = MeshShape(*mesh.shape), shape.config()

    def llama(layers: int, assignment: LayerAssignment | None) -> TtLlama:
        cut = config.with_layers(layers)
        settings = ModelSettings(
            capacity=config.max_position_embeddings, precision="bfloat16", layer_assignment=assignment
        )
        return TtLlama.from_state_dict(cut, random_state_dict(cut, 0), mesh, settings)

    draft = llama(shape.layers, LayerAssignment.make(config, mesh_shape, [list(range(shape.layers))]))
    target = llama(1, None)
    groups, one = draft.groups, draft.step_inputs([5], [shape.context])
    chain = TokenTree.chain(shape.drafted + 1)
    tokens = [1] * len(chain)
    nodes = draft.tree_inputs(torch.tensor([tokens]), [shape.context], chain.enter[None], chain.leave[None])
    step = TreeStep(target, len(chain), SamplingParams(0.0))
    step.load({0: (chain, tokens)}, [shape.context], ())

    def sequential() -> None:
        draft.groups = None
        try:
            draft.decode(one, gather_logits=False)
        finally:
            draft.groups = groups

    prefix = target.put_integers(torch.tensor([shape.context]), "int32")
    outcome = step().result
    parts: dict[str, Callable[[], object]] = {
        SEQUENTIAL: sequential,
        FUZZY: lambda: draft.decode(one, gather_logits=False),
        CALIBRATION: lambda: draft.decode_tree(nodes, gather_logits=False),
        TARGET: step,
        COMMIT: lambda: target.cache.commit(prefix, outcome, len(chain), first_column=RESULT_HEAD),
    }
    timeline, found = Timeline(mesh), {}
    for name, run in parts.items():
        found[name] = _timed(mesh, timeline, run)
        logger.info("1x{}, {}: {}", mesh_shape.tp, name, found[name])
    return found


def _timed(mesh: ttnn.MeshDevice, timeline: Timeline, run: Callable[[], object]) -> dict[str, int]:
    """Run once to compile, then capture, replay and time."""
    run()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    kept = run()  # what the trace writes must not be given to others before it ran
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    timeline.start()
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    chips = timeline.stop()
    ttnn.release_trace(mesh, trace)
    del kept
    spans = [span for chip in chips for span in chip]
    cycles = max(span.end for span in spans) - min(span.start for span in spans)
    return {"cycles": cycles, "programs": len(chips[0])}
