# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A round of Llama 3.1 8B with Llama 3.2 1B as its layer-parallel draft on mock meshes: it builds and fits."""

from __future__ import annotations

import pytest
from loguru import logger

CAPACITY, SIZE, DRAFTED = 4096, 4, 4


def built(mesh, layers: int | None, draft_layers: int | None) -> dict:
    """In the worker: bytes of a chip that the models take and should take, and what the steps of a round take beside
    them: a fuzzy draft step, the calibration, and the target's step over a chain with verification and commit."""
    import torch
    import ttnn

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.spec_decode.tree import TokenTree
    from models.llama31_8b.tt.dram_budget import budget
    from models.llama31_8b.tt.sampling.top_k import Sampler
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from perf.footprint.mesh_build import build_model, in_use, step_memory
    from tt_kernels.speculative_sampling.checks import MAX_NODES

    mesh.clear_program_cache()
    banks = ttnn.get_memory_view(mesh, ttnn.BufferType.DRAM)
    before = in_use(mesh)[0]
    target = build_model(mesh, "performance", 1, CAPACITY, layers)
    between = in_use(mesh)[0]
    draft = build_model(mesh, "performance", 1, CAPACITY, draft_layers, model="llama-3.2-1b", fuzzy=SIZE)
    plan, formats = draft.groups.assignment, draft.precision
    whole = budget(draft.config, draft.mesh_shape, formats, CAPACITY, nodes=MAX_NODES)
    held = {
        "target": (between - before, budget(target.config, target.mesh_shape, target.precision, CAPACITY).held),
        "draft": (in_use(mesh)[0] - between, whole.beside(plan.extra(formats, CAPACITY)).held),
    }
    sampler = Sampler(mesh, draft.mesh_shape, draft.config, SamplingParams(0.0))
    chain = TokenTree.chain(DRAFTED + 1)
    nodes = draft.tree_inputs(
        torch.zeros(1, len(chain), dtype=torch.int64), [CAPACITY - 32], chain.enter[None], chain.leave[None]
    )
    step = TreeStep(target, len(chain), SamplingParams(0.0))
    inputs = draft.step_inputs([0], [CAPACITY - 1])
    steps = {
        "draft": lambda: sampler(draft.decode(inputs, gather_logits=False), None, inputs.tokens),
        "calibrate": lambda: sampler(draft.decode(nodes, gather_logits=False)),
        "verify and commit": lambda: step().result,
    }
    view, told = ttnn.get_memory_view(mesh, ttnn.BufferType.L1), {}
    for name, run in steps.items():
        memory, shape = step_memory(run)
        told[name] = {
            "result": shape,
            "dram_peak": memory.dram_peak * banks.num_banks,
            "l1_peak": memory.l1_peak,
            "largest": (memory.largest_program, memory.largest_op),
        }
    return {
        "held": {name: (size * banks.num_banks, planned) for name, (size, planned) in held.items()},
        "size": banks.total_bytes_per_bank * banks.num_banks,
        "l1_held": view.total_bytes_allocated_per_bank,
        "l1_size": view.total_bytes_per_bank,
        "steps": told,
        "programs": mesh.num_program_cache_entries(),
    }


@pytest.mark.slow  # 140 programs of two models: four CPU minutes where no kernel is cached
@pytest.mark.mock_mesh
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "shape, layers, draft_layers",
    [
        ((1, 4), 1, 8),  # groups 0, 1-3, 4-6, 7
        ((1, 4), None, None),
        ((1, 8), None, None),
    ],
    ids=["1x4 of a few layers", "1x4", "1x8"],
)
def test_a_round_with_a_layer_parallel_draft_builds_and_fits(mock_mesh, shape, layers, draft_layers):
    found = mock_mesh(shape).run(built, layers, draft_layers, timeout=1700)
    logger.info("{}", found)
    for measured, planned in found["held"].values():
        # The runtime pads small tensors; rotary matrices and page tables are not counted.
        assert planned <= measured * 1.001 and measured - planned < max(0.02 * planned, 8e6)
    assert sum(measured for measured, _ in found["held"].values()) < found["size"]
    for step in found["steps"].values():
        assert step["largest"][0] > 0 and found["l1_held"] + step["l1_peak"] <= found["l1_size"]
    assert found["steps"]["draft"]["result"] == (1, 1)
    assert found["steps"]["calibrate"]["result"] == (1, DRAFTED + 1)
    assert found["programs"] > 40
