# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of several users from the TT-NN generator on the simulated chip, which has a core for each of two users."""

import pytest
from loguru import logger
from test_tt_model import GRID, NEAR_TIE, prompt
from tt_programs import generate_batch

pytestmark = [pytest.mark.sim, pytest.mark.timeout(1500)]


def test_greedy_texts_of_users_at_different_positions(sim_device):
    """Arg-max on the device is that of the logits read back, and the texts are the reference's up to a near-tie."""
    told = sim_device(GRID).run(generate_batch, [prompt(5, 1), prompt(33, 2)], 3, timeout=1200)
    logger.info("{}", told)
    assert told["device"] == told["host"] == told["argmax"]
    for got, expected, gaps in zip(told["device"], told["reference"], told["gaps"], strict=True):
        differ = next((i for i in range(len(got)) if got[i] != expected[i]), None)
        assert differ is None or gaps[differ] < NEAR_TIE
