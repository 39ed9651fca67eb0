# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Build Llama 3.1 8B on a mock mesh by its real modules and say what its steps take; nothing executes.

Imports ttnn: for a process in the environment of a mock mesh, which `python -m perf.footprint` starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import ttnn

from models.llama31_8b.checkpoint.tensor_shapes import tensor_shapes
from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.tt.layer_parallel import LayerAssignment
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.model import TtLlama
from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings
from models.llama31_8b.tt.weights import WeightStore

from .graph import MODEL, MeshMemory, StepMemory, largest_program, peak_per_bank


class BlankStore(WeightStore):
    """Allocates a chip's part of every weight, and makes no numbers."""

    def put(self, name, make, dtype, split, layout="TILE_LAYOUT", memory=None):
        """Raises ValueError for a matrix that the columns cannot share."""
        shape = list(make().shape)
        if split is not None:
            if shape[split] % self.mesh_shape.tp:
                raise ValueError(
                    f"{name}: dimension {split} of {shape} cannot be split over {self.mesh_shape.tp} chips"
                )
            shape[split] //= self.mesh_shape.tp
        if layout == "TILE_LAYOUT":
            shape = [1] * (4 - len(shape)) + shape
        return ttnn.empty(
            shape, getattr(ttnn, dtype), getattr(ttnn, layout), self.mesh, memory or ttnn.DRAM_MEMORY_CONFIG
        )


def blank_weights(
    config: LlamaConfig, mesh: ttnn.MeshDevice, mesh_shape: MeshShape
) -> tuple[dict[str, torch.Tensor], BlankStore]:
    """Return a state dict of shapes alone and the store that allocates them: what `TtLlama.from_state_dict` takes."""
    state = {name: torch.empty(shape, device="meta") for name, shape in tensor_shapes(config).items()}
    return state, BlankStore(mesh, mesh_shape)


def build_model(
    mesh: ttnn.MeshDevice,
    precision: str,
    users: int,
    capacity: int,
    layers: int | None = None,
    chunk_size: int | None = None,
    *,
    model: str = MODEL,
    fuzzy: int | None = None,
    decode_sharding: str = "interleaved",
    cache_blocks: int = 0,
    predictor: str = "ends",
) -> TtLlama:
    """Build a preset's model, or its first `layers`, with its weights allocated on `mesh` but blank.

    Args:
        users: decoded together.
        capacity: cached positions of each.
        layers: None for all.
        chunk_size: of attention-level speculation between the rows of the mesh; None for exact attention.
        fuzzy: layers that a draft model runs in parallel.
        cache_blocks: of a paged cache, see ModelSettings.
    """
    mesh_shape, config = MeshShape(*mesh.shape), preset(model)
    config = config if layers is None else config.with_layers(layers)
    state, store = blank_weights(config, mesh, mesh_shape)
    settings = ModelSettings(
        users=users,
        capacity=capacity,
        precision=precision,
        attention=AttentionSettings("alspec", chunk_size, predictor=predictor) if chunk_size else AttentionSettings(),
        decode_sharding=decode_sharding,
        layer_assignment=None if fuzzy is None else LayerAssignment.make(config, mesh_shape, fuzzy),
        zeroed=False,
        cache_blocks=cache_blocks,
    )
    return TtLlama.from_state_dict(config, state, mesh, settings, store)


def measure(mesh: ttnn.MeshDevice, precision: str, users: int, capacity: int, chunk: int, **options: Any) -> MeshMemory:
    """Build the model, a decode step of all users at the last position, and the last prefill chunk of one user.

    Drops the mesh's compiled programs, to count those of this model. capacity: cached positions per user; chunk: a
    power of two that divides it; options: as in `build_model`.
    """
    mesh.clear_program_cache()
    empty = in_use(mesh)
    model = build_model(mesh, precision, users, capacity, **options)
    held = in_use(mesh)
    decode, decoded = step_memory(lambda: model.decode(model.step_inputs([0] * users, [capacity - 1] * users)))
    prefill, prefilled = step_memory(lambda: model.prefill([0] * chunk, users - 1, capacity - chunk, last=True))  # type: ignore[arg-type,return-value]
    dram, l1 = (ttnn.get_memory_view(mesh, kind) for kind in (ttnn.BufferType.DRAM, ttnn.BufferType.L1))
    return MeshMemory(
        dram_held=held[0] - empty[0],
        dram_size=dram.total_bytes_per_bank,
        dram_banks=dram.num_banks,
        l1_held=held[1] - empty[1],
        l1_size=l1.total_bytes_per_bank,
        decode=decode,
        prefill=prefill,
        programs=mesh.num_program_cache_entries(),
        logits=(decoded, prefilled),
    )


def in_use(mesh: ttnn.MeshDevice) -> tuple[int, int]:
    """Return the allocated bytes of a DRAM bank, and of a core's L1."""
    kinds = (ttnn.BufferType.DRAM, ttnn.BufferType.L1)
    return tuple(ttnn.get_memory_view(mesh, kind).total_bytes_allocated_per_bank for kind in kinds)


def step_memory(step: Callable[[], ttnn.Tensor]) -> tuple[StepMemory, tuple[int, ...]]:
    """Return what `step` takes, and the shape of its result.

    It runs twice: as it is, when ttnn refuses what does not fit beside what is allocated, and recorded without
    dispatch, the only mode in which every program tells its buffers.
    """
    shape = tuple(step().shape)
    ttnn.graph.begin_graph_capture(ttnn.graph.RunMode.NO_DISPATCH)
    try:
        step()
    finally:
        graph = ttnn.graph.end_graph_capture()
    usage = ttnn.graph.extract_resource_usage_per_core(graph)
    size, operation = largest_program(graph)
    return StepMemory(size, operation, usage.peak_l1, usage.peak_total, peak_per_bank(graph, "DRAM")), shape
