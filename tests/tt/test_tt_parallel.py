# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism by value: two chips' parts of a Llama on one simulated chip, the links between them emulated."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.sampling import SamplingParams
from tests.support.virtual_chips import on_chips
from tests.tt.parallel_programs import prefill_decode_choose

LEAST_PCC = 0.99
STEPS = 1


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_two_chips_give_the_reference_and_choose_the_same_tokens(sim_device):
    prompt = torch.randint(0, 96, (20,), generator=torch.Generator().manual_seed(5)).tolist()
    sampling = SamplingParams(2.0, top_k=8)
    told = sim_device("2x1").run(prefill_decode_choose, prompt, STEPS, sampling, 0.6, timeout=1200)
    for chip in told["steps"]:
        assert len(chip) == STEPS + 1
        for row in chip:
            logger.info("{}", row)
            assert row["pcc"] >= LEAST_PCC and row["absolute"] < 0.1
    assert told["same"], "both chips must see the same logits"
    for row in told["cache"]:
        logger.info("cache: {}", row)
        assert row["pcc"] >= LEAST_PCC
    assert len(told["tokens"]) == 3 and len(set(told["tokens"])) == 1, "of the two chips and of the host"
    # A layer gathers and reduces twice; then the last norm, and the logits looked at. A choice gathers twice.
    assert told["collectives"] == (STEPS + 1) * (4 + 1 + 1) + 2


def failing(mesh) -> str:
    def body(chip: int) -> None:
        if chip == 1:
            raise ValueError("the second chip's")
        import ttnn

        ttnn.all_gather(
            ttnn.zeros([1, 1, 32, 32], layout=ttnn.TILE_LAYOUT, device=mesh), dim=3, cluster_axis=1
        )

    try:
        on_chips(2, body)
    except ValueError as error:
        return str(error)
    return "nothing"


@pytest.mark.sim
def test_a_chip_that_fails_ends_the_others(sim_device):
    assert sim_device("2x1").run(failing, timeout=60) == "the second chip's"
