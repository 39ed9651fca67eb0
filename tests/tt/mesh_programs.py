# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The real modules at Llama 3.1 8B's shapes on a mock mesh: built and allocated, their results meaningless."""

from __future__ import annotations


class BlankStore:
    """Takes the place of WeightStore: allocates a chip's part of every weight, and makes no numbers."""

    def __init__(self, mesh, plan):
        self.mesh, self.plan, self.bytes = mesh, plan, 0

    def put(self, name, make, dtype, split, layout="TILE_LAYOUT"):
        import ttnn

        shape = list(make().shape)
        if split is not None:
            assert shape[split] % self.plan.tp == 0, f"{name}: {shape} cannot be split over {self.plan.tp}"
            shape[split] //= self.plan.tp
        if layout == "TILE_LAYOUT":
            shape = [1] * (4 - len(shape)) + shape
        return ttnn.empty(shape, getattr(ttnn, dtype), getattr(ttnn, layout), self.mesh, ttnn.DRAM_MEMORY_CONFIG)


def memory(mesh) -> dict:
    """Bytes a chip has allocated in DRAM, and in L1 on all its cores."""
    import ttnn

    used = {}
    for name, kind in (("dram", ttnn.BufferType.DRAM), ("l1", ttnn.BufferType.L1)):
        view = ttnn.get_memory_view(mesh, kind)
        used[name] = view.total_bytes_allocated_per_bank * view.num_banks
    return used


def build_steps(mesh, precision: str, users: int, capacity: int, chunk: int, layers: int, start: int) -> dict:
    """A model of `layers` layers (the last in its own formats, as in the whole model) at 8B shapes: a decode step, and
    a prefill chunk at position `start`. Shapes of the logits, and DRAM and L1 bytes by what holds them."""
    import torch

    from models.llama31_8b.config import preset
    from models.llama31_8b.tensor_shapes import tensor_shapes
    from models.llama31_8b.tt.mesh import MeshPlan
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.precision import precision_plan
    from models.llama31_8b.tt.weight_map import WeightMap

    plan, config = MeshPlan(*mesh.shape), preset("llama-3.1-8b").with_layers(layers)
    state = {name: torch.empty(shape, device="meta") for name, shape in tensor_shapes(config).items()}
    before = memory(mesh)
    model = TtLlama(
        mesh, plan, config, precision_plan(precision, layers), WeightMap(config, state, plan), BlankStore(mesh, plan),
        users=users, capacity=capacity, zeroed=False,
    )  # fmt: skip
    built = memory(mesh)
    logits = model.decode(model.step_inputs([0] * users, [capacity - 1] * users))
    decoded = tuple(logits.shape)
    del logits
    prefilled = model.prefill([0] * chunk, users - 1, start, last=True)
    return {
        "decode": decoded,
        "prefill": tuple(prefilled.shape),
        "dram": built["dram"] - before["dram"],
        "l1": built["l1"] - before["l1"],
        "programs": mesh.num_program_cache_entries(),
    }
