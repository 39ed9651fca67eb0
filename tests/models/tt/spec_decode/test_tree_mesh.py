# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps over token trees at Llama 3.1 8B shapes on mock meshes: decode, verification and commit build, and fit."""

from __future__ import annotations

import pytest
from loguru import logger

from models.llama31_8b.config import preset

LLAMA = preset("llama-3.1-8b")
CAPACITY, LAYERS, CHUNK_SIZE = 4096, 2, 128


def built(mesh, users: int, nodes: int, temperature: float | None, chunk_size: int | None = None) -> dict:
    """In the worker: what a step over trees of `nodes` nodes takes beside two layers of the model; with a temperature
    its verification and commit too. chunk_size: of guesses by a budget between the rows of the mesh."""
    import torch
    import ttnn

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.spec_decode.tree import TokenTree
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from perf.footprint.mesh_build import build_model, step_memory

    mesh.clear_program_cache()
    model = build_model(mesh, "performance", users, CAPACITY, LAYERS, chunk_size, predictor="budget")
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
        "programs": mesh.num_program_cache_entries(),
        "l1_peak": view.total_bytes_allocated_per_bank + memory.l1_peak,
        "l1_size": view.total_bytes_per_bank,
        "largest": (memory.largest_program, memory.largest_op),
    }


@pytest.mark.mock_mesh
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "shape, users, nodes, temperature",
    [
        pytest.param((1, 1), 1, 32, 0.0, marks=pytest.mark.slow),
        ((1, 2), 1, 64, None),
        pytest.param((1, 8), 2, 32, 0.7, marks=pytest.mark.slow),
    ],
    ids=lambda value: str(value).replace(", ", "x"),
)
def test_a_step_over_trees_builds_and_fits(mock_mesh, shape, users, nodes, temperature):
    check(mock_mesh(shape), shape, users, nodes, temperature)


@pytest.mark.mock_mesh
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "shape, users, nodes",
    [
        pytest.param((2, 1), 1, 16, marks=pytest.mark.slow),
        ((2, 2), 8, 16),
        pytest.param((2, 4), 1, 32, marks=pytest.mark.slow),
    ],
    ids=lambda value: str(value).replace(", ", "x"),
)
def test_a_step_over_trees_that_speculates_builds_and_fits(mock_mesh, shape, users, nodes):
    check(mock_mesh(shape), shape, users, nodes, 0.0, CHUNK_SIZE)


def check(
    worker, shape: tuple[int, int], users: int, nodes: int, temperature: float | None, chunk_size: int | None = None
) -> None:
    found = worker.run(built, users, nodes, temperature, chunk_size, timeout=880)
    logger.info("{}x{}, {} users, {} nodes: {}", *shape, users, nodes, found)
    assert found["result"] == (
        (1, 1, users * nodes, LLAMA.vocab_size) if temperature is None else (users, 4 + 2 * nodes)
    )
    assert found["programs"] > 20
    assert found["largest"][0] > 0 and found["l1_peak"] <= found["l1_size"]
