# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter on simulated chips: continuous batching with traces, sampling on the chips, and steps that overlap."""

import random

import pytest

from models.llama31_8b import tiny
from models.llama31_8b.generation.sampling import SamplingParams
from tests.support.tt_programs import SMALLEST

from .plugin_side import Request, built, drawn_request, prompt_of, served


@pytest.mark.sim
@pytest.mark.parametrize("dispatch", ["fast", pytest.param("slow", marks=pytest.mark.slow)])
def test_requests_that_come_and_go_get_the_text_they_have_alone(sim_device, tmp_path, dispatch):
    """The first is preempted; then both are prefilled together, and steps of a greedy and a drawn text overlap."""
    vocab, drawn = SMALLEST.vocab_size, SamplingParams(1.0, top_k=8, seed=2)
    requests = [Request(prompt_of(33, 0, vocab=vocab), 4), Request(prompt_of(1, 1, vocab=vocab), 3, drawn)]
    found = sim_device("2x1", dispatch=dispatch).run(served, tmp_path, requests, 2, 22, SMALLEST, timeout=1400)
    assert found["together"] == found["alone"] and found["sizes"] == [2, 2, 2]
    replays = found["replays"]
    if dispatch == "slow":
        assert not any(replays.values())
    else:  # of each kind of step the warm-up replays one
        assert replays["drawn"] > 1 and replays["greedy"] > 1 and replays["logits"] == 1


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.sim
def test_a_pair_that_guesses_serves_the_same_texts(sim_mesh, tmp_path):
    """Attention-level speculation of two chips, with sampling on both, against one request at a time. Of the ends:
    chosen tiles would order sums by what the slot had before."""
    requests = [drawn_request(n, random.Random(n), longest=40) for n in (3, 6, 7)]
    guess = {"attention": "alspec", "threshold": 0.0, "chunk_size": 32, "predictor": "ends"}
    worker = sim_mesh((2, 1), "2x2", dispatch="fast")
    found = worker.run(served, tmp_path, requests, 2, 2, tiny.of_bytes().with_layers(1), **guess, timeout=2900)
    assert found["together"] == found["alone"] and max(found["sizes"]) > 1
    assert found["replays"]["drawn"] > 1


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "shape, users, decode_sharding",
    [
        ((1, 1), 4, "sharded"),
        pytest.param((1, 1), 32, "interleaved", marks=pytest.mark.slow),
        pytest.param((1, 2), 8, "interleaved", marks=pytest.mark.slow),
        pytest.param((1, 4), 1, "sharded", marks=pytest.mark.slow),
        pytest.param((1, 8), 32, "interleaved", marks=pytest.mark.slow),
        pytest.param((2, 1), 8, "interleaved", marks=pytest.mark.slow),
        pytest.param((2, 2), 2, "sharded", marks=pytest.mark.slow),
        pytest.param((2, 4), 8, "interleaved", marks=pytest.mark.slow),
    ],
)
def test_steps_of_llama_8b_with_pages_are_built(mock_mesh, shape, users, decode_sharding):
    found = mock_mesh(shape).run(built, users, decode_sharding, timeout=1400)
    assert found["logits"] == (1, 1, users, 128256) and found["greedy"] == found["drawn"] == (1, users)
    assert found["prefill"] == (1, 1, 32, 128256)
    assert found.get("tree", (1, 1, users * 4, 128256)) == (1, 1, users * 4, 128256)
