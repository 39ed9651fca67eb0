# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism by value: a two-layer Llama split over simulated chips, its collectives over the fabric."""

from __future__ import annotations

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams
from tests.models.tt.parallel_programs import CONFIG, prefill_decode_choose
from tt_kernels.token_guard.op import FAILED

GRID = "4x2"  # prefill: with two links reduce_scatter wants eight cores
MIN_PCC, MAX_ERROR = 0.99, 0.15
STEPS, LEAST_GAP = 1, 0.02


@pytest.mark.sim
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "shape", [pytest.param((1, 2), id="1x2"), pytest.param((2, 2), marks=pytest.mark.slow, id="2x2")]
)
def test_the_chips_of_a_row_give_the_reference_and_choose_the_same_tokens(sim_mesh, shape):
    """On 2x2 both rows hold the whole model, and do the same."""
    generator = torch.Generator().manual_seed(5)
    prompt = torch.randint(0, CONFIG.vocab_size, (20,), generator=generator).tolist()
    sampling, chips = SamplingParams(2.0, top_k=8), shape[0] * shape[1]
    told = sim_mesh(shape, GRID).run(prefill_decode_choose, prompt, STEPS, sampling, 0.6, timeout=3500)
    assert len(told["steps"]) == 1 + STEPS
    for step in told["steps"]:
        logger.info("{}", step)
    for step in told["steps"]:
        assert step["pcc"] >= MIN_PCC and step["absolute"] < MAX_ERROR
        assert step["same"] == [True] * chips, "every chip must see the same logits"
        assert step["gap"] > LEAST_GAP, "the prompt was chosen so that no two best logits lie close"
        assert step["token"] == step["wanted"]
    assert len({step["token"] for step in told["steps"]}) > 1
    for name in ("absolute", "relative"):
        logger.info("largest {} error of logits: {:.4f}", name, max(step[name] for step in told["steps"]))
    logger.info("lowest PCC of logits: {:.6f}", min(step["pcc"] for step in told["steps"]))
    for row in told["cache"]:
        logger.info("cache: {}", row)
        assert row["pcc"] >= MIN_PCC
    assert told["rows"] == [True] * 2 * CONFIG.num_hidden_layers, "every row must cache the same"
    assert told["greedy"] == [told["steps"][-1]["wanted"]] * chips
    assert told["drawn"] == [told["host"]] * chips
    well, failed = told["guarded"]
    assert well == ([7] * chips, [[7]]) and failed[0] == [7, FAILED, 7, 7][:chips]
    assert failed[1] == "sum of a TP group: chip (0, 1) gave up in call 0: TP rank 0 sent no rows"
