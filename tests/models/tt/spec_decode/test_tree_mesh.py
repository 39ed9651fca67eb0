# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps over token trees at Llama 3.1 8B shapes on mock meshes: decode, verification and commit build, and fit; and so
does a round with Llama 3.2 1B as its layer-parallel draft."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.config import preset
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.spec_decode.tree import TokenTree
from models.llama31_8b.tt.dram_budget import budget
from tt_kernels.speculative_sampling.checks import MAX_NODES

LLAMA = preset("llama-3.1-8b")
CAPACITY = 4096


def built(mesh, users: int, nodes: int, temperature: float | None, chunk_size: int | None = None) -> dict:
    """In the worker: what a step over trees of `nodes` nodes takes beside two layers of the model; with a temperature
    its verification and commit too. chunk_size: of guesses by a budget between the rows of the mesh."""
    import ttnn

    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from perf.footprint.mesh_build import build_model, step_memory

    mesh.clear_program_cache()
    model = build_model(mesh, "performance", users, CAPACITY, 2, chunk_size, predictor="budget")
    if temperature is None:
        chain = TokenTree.chain(nodes)
        enter, leave = (times.expand(users, -1) for times in (chain.enter, chain.leave))
        tokens = torch.zeros(users, nodes, dtype=torch.int64)
        inputs = model.tree_inputs(tokens, [CAPACITY - nodes] * users, enter, leave)
        memory, result = step_memory(lambda: model.decode(inputs))
    else:
        step = TreeStep(model, nodes, SamplingParams(temperature))
        memory, result = step_memory(lambda: step().result)
    view = ttnn.get_memory_view(mesh, ttnn.BufferType.L1)
    return {
        "result": result,
        "memory": memory,
        "programs": mesh.num_program_cache_entries(),
        "l1_peak": view.total_bytes_allocated_per_bank + memory.l1_peak,
        "l1_size": view.total_bytes_per_bank,
    }


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "shape, users, nodes, temperature",
    [
        pytest.param((1, 1), 1, 32, 0.0, marks=pytest.mark.slow),
        ((1, 2), 1, 64, None),
        pytest.param((1, 8), 2, 32, 0.7, marks=pytest.mark.slow),
        # Two rows speculate.
        pytest.param((2, 1), 1, 16, 0.0, marks=pytest.mark.slow),
        ((2, 2), 8, 16, 0.0),
        pytest.param((2, 4), 1, 32, 0.0, marks=pytest.mark.slow),
    ],
    ids=lambda value: str(value).replace(", ", "x"),
)
def test_a_step_over_trees_builds_and_fits(mock_mesh, shape, users, nodes, temperature):
    chunk_size = 128 if shape[0] == 2 else None
    found = mock_mesh(shape).run(built, users, nodes, temperature, chunk_size)
    logger.info("{}x{}, {} users, {} nodes: {}", *shape, users, nodes, found)
    logits, verified = (1, 1, users * nodes, LLAMA.vocab_size), (users, 4 + 2 * nodes)
    assert found["result"] == (logits if temperature is None else verified)
    assert found["programs"] > 20
    assert found["memory"].largest_program > 0 and found["l1_peak"] <= found["l1_size"]


SIZE, DRAFTED = 4, 4  # layers in parallel, and tokens of a chain


def round_built(mesh, layers: int | None, draft_layers: int | None) -> dict:
    """In the worker: bytes of a chip that the models take and should take, and what the steps of a round take beside
    them: a fuzzy draft step, the calibration, and the target's step over a chain with verification and commit."""
    import ttnn

    from models.llama31_8b.tt.sampling.top_k import Sampler
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from perf.footprint.mesh_build import build_model, in_use, step_memory

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
    sampler = Sampler(draft.site, SamplingParams(0.0))
    chain = TokenTree.chain(DRAFTED + 1)
    zeros = torch.zeros(1, len(chain), dtype=torch.int64)
    nodes = draft.tree_inputs(zeros, [CAPACITY - 32], chain.enter[None], chain.leave[None])
    step = TreeStep(target, len(chain), SamplingParams(0.0))
    inputs = draft.step_inputs([0], [CAPACITY - 1])
    steps = {
        "draft": lambda: sampler(draft.decode(inputs, gather_logits=False), None, inputs.tokens),
        "calibrate": lambda: sampler(draft.decode(nodes, gather_logits=False)),
        "verify and commit": lambda: step().result,
    }
    view = ttnn.get_memory_view(mesh, ttnn.BufferType.L1)
    told = {name: step_memory(run) for name, run in steps.items()}
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
    found = mock_mesh(shape).run(round_built, layers, draft_layers, timeout=1700)
    logger.info("{}", found)
    for measured, planned in found["held"].values():
        # The runtime pads small tensors; rotary matrices and page tables are not counted.
        assert planned <= measured * 1.001 and measured - planned < max(0.02 * planned, 8e6)
    assert sum(measured for measured, _ in found["held"].values()) < found["size"]
    for memory, _ in found["steps"].values():
        assert memory.largest_program > 0 and found["l1_held"] + memory.l1_peak <= found["l1_size"]
    assert found["steps"]["draft"][1] == (1, 1) and found["steps"]["calibrate"][1] == (1, DRAFTED + 1)
    assert found["programs"] > 40
