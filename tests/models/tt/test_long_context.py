# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Long contexts of Llama 3.1 8B on one N150: what the demo chooses is allocated and built on a mock board, beside its
traces' room, with a whole prompt in chunks."""

from __future__ import annotations

import pytest
from loguru import logger

from models.llama31_8b.config import preset
from models.llama31_8b.demo.backends import n150
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.simulated import BOARD_TRACE_BYTES
from models.llama31_8b.tt.mesh import MeshShape

LLAMA = preset("llama-3.1-8b")
PROMPT = 32768  # what users asked one N150 for
FAR_TOO_MANY = 16384  # positions, of 69632 bytes each: more than the budget keeps back


def build_and_fill(mesh, users: int, capacity: int, prompt: int, decode_sharding: str) -> dict:
    """In the worker: all layers, a decode step at the last position and a prompt of the last user, chunk by chunk."""
    import ttnn

    from models.llama31_8b.tt.model import cache_prompt
    from models.llama31_8b.tt.prefill import PREFILL_CHUNK
    from perf.footprint.mesh_build import build_model, in_use

    model = build_model(mesh, n150.PRECISION, users, capacity, decode_sharding=decode_sharding)
    held = in_use(mesh)
    decoded = tuple(model.decode(model.step_inputs([0] * users, [capacity - 1] * users)).shape)
    prefilled = cache_prompt(model, [0] * prompt, users - 1, PREFILL_CHUNK, logits=True)
    dram, l1 = (ttnn.get_memory_view(mesh, kind) for kind in (ttnn.BufferType.DRAM, ttnn.BufferType.L1))
    return {
        "dram": held[0] * dram.num_banks,
        "dram_size": dram.total_bytes_per_bank * dram.num_banks,
        "l1": held[1],
        "l1_size": l1.total_bytes_per_bank,
        "decoded": decoded,
        "prefilled": tuple(prefilled.shape),
    }


def allocate(mesh, capacity: int) -> None:
    """In the worker: the model alone."""
    from perf.footprint.mesh_build import build_model

    build_model(mesh, n150.PRECISION, 1, capacity)


@pytest.fixture
def board(mock_mesh):
    """One N150 as the demo opens it."""
    return mock_mesh((1, 1), options={"trace_region_size": BOARD_TRACE_BYTES})


@pytest.mark.mock_mesh
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "users, prompt, decode_sharding",
    [
        (1, PROMPT, "sharded"),
        (1, PROMPT, "interleaved"),
        (1, None, "sharded"),
        (8, None, "sharded"),
        (8, None, "interleaved"),
    ],
    ids=["32K-sharded", "32K-interleaved", "longest-sharded", "eight users-sharded", "eight users-interleaved"],
)
def test_contexts_that_the_demo_chooses_build_with_a_whole_prompt(board, users, prompt, decode_sharding):
    """prompt: its tokens, 256 more follow; None is the longest prompt that the longest context takes, or 32K."""
    options = DemoOptions(decode_sharding=decode_sharding, max_new_tokens=256)
    run = n150.plan_run(LLAMA, options, MeshShape(), prompt, users=users)
    assert (run.notice is None) == (prompt is not None)
    tokens = min(prompt or run.limit - 1, PROMPT)
    found = board.run(build_and_fill, users, run.capacity, tokens, decode_sharding, timeout=580)
    logger.info("{} users, {} positions, {}: {}", users, run.capacity, decode_sharding, found)
    assert run.capacity >= (PROMPT if users == 1 else 8192)
    assert found["decoded"] == (1, 1, users, LLAMA.vocab_size) and found["prefilled"][3] == LLAMA.vocab_size
    assert found["dram"] < found["dram_size"] and found["l1"] < found["l1_size"]


@pytest.mark.mock_mesh
@pytest.mark.timeout(600)
def test_ttnn_refuses_what_is_far_too_long(board):
    """The test above can fail."""
    longest = n150.plan_run(LLAMA, DemoOptions(decode_sharding="interleaved"), MeshShape(), None).capacity
    with pytest.raises(RuntimeError, match="Out of Memory"):
        board.run(allocate, longest + FAR_TOO_MANY, timeout=580)
