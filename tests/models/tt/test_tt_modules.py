# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Each module of the TT-NN model on the simulated chip against the reference."""

import pytest
from loguru import logger

from tests.support.module_programs import modules
from tests.support.tt_programs import TINY


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_every_module_agrees_with_the_reference(sim_device):
    found = sim_device("2x1").run(modules, TINY, "bfloat16", timeout=1200)
    for name, row in found.items():
        logger.info("{}: {}", name, row)
    assert len(found) == 10
    assert {name: row["pcc"] for name, row in found.items() if not row["pcc"] >= 0.99} == {}
