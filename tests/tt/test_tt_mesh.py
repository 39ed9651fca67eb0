# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llama 3.1 8B's decode step and prefill chunk, by the real modules, on mock meshes of 1 to 8 chips.

Two layers stand for all: in the performance plan they are the two kinds there are. Nothing executes.
"""

import pytest
from loguru import logger
from mesh_programs import build_steps

from models.llama31_8b.config import preset
from models.llama31_8b.tt.mesh import MeshPlan
from models.llama31_8b.tt.precision import precision_plan
from perf.roofline import budget

LAYERS, USERS, CAPACITY, CHUNK = 2, 32, 1024, 512
VOCAB = 128256
SHAPES = [(1, 1), (1, 2), (1, 4), (2, 4), (1, 8)]
# Every mesh with the performance plan; the accuracy plan differs in weight formats only, so one mesh by default.
CASES = [pytest.param("performance", shape, id=f"performance-{shape[0]}x{shape[1]}") for shape in SHAPES] + [
    pytest.param(
        "accuracy", shape, id=f"accuracy-{shape[0]}x{shape[1]}", marks=() if shape == (1, 2) else pytest.mark.slow
    )
    for shape in SHAPES
]


@pytest.mark.mock_mesh
@pytest.mark.parametrize("precision, shape", CASES)
def test_decode_step_and_prefill_chunk_build(mock_mesh, precision, shape):
    told = mock_mesh(shape).run(build_steps, precision, USERS, CAPACITY, CHUNK, LAYERS, CHUNK, timeout=800)
    assert told["decode"] == (1, 1, USERS, VOCAB) and told["prefill"] == (1, 1, 32, VOCAB)
    assert told["programs"] > 20
    plan = MeshPlan(*shape)
    config = preset("llama-3.1-8b").with_layers(LAYERS)
    expected = budget(config, plan, precision_plan(precision, LAYERS), CAPACITY, USERS)
    logger.info(
        "{} {}: {} layers hold {:.1f} MB DRAM (budget {:.1f}), {:.1f} KB L1 a chip; {} programs",
        plan, precision, LAYERS, told["dram"] / 1e6, expected.held / 1e6, told["l1"] / 1e3, told["programs"],
    )  # fmt: skip
    assert told["l1"] < 64 * 4096 * 2, "what stays in L1 is the rotation matrices of 32 users"
    # Buffers are spread over the banks in whole pages.
    assert expected.held <= told["dram"] < expected.held * 1.02
    whole = budget(preset("llama-3.1-8b"), plan, precision_plan(precision, 32), CAPACITY, 1)
    whole.check(f"{plan} {precision}")
