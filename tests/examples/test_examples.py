# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/ do what they say."""

import pytest

from examples import (
    cpu_attention_speculation,
    flash_decode_on_the_simulated_chip,
    gated_pair,
    huggingface_attention,
    llama_on_a_mesh,
)
from runtime_patches import sgdc


@pytest.mark.model
def test_speculation_on_the_cpu_accepts_some_guesses_and_none_at_threshold_0():
    exact, strict, loose = (
        cpu_attention_speculation.generate(*how) for how in (("exact",), ("alspec", 32, 0.0), ("alspec", 32, 0.2))
    )
    assert strict == (exact[0], 0.0) and exact[1] is None
    assert loose[1] > 0


@pytest.mark.model
def test_a_transformers_model_speculates(capsys):
    found = huggingface_attention.main()
    strict, loose, scored = found.values()
    assert strict[1] == 0 and 0 < loose[1] < 1 and len(strict[0]) == 2
    assert 0 < scored[0] < 3 and 0 < scored[1] < 1, "a text that repeats itself is easy"
    assert "guesses accepted by row: 0 of" in capsys.readouterr().out


@pytest.mark.sim
def test_the_op_in_a_program_of_ones_own(sim_device):
    pcc, distance = sim_device("4x2").run(flash_decode_on_the_simulated_chip.decode).values()
    assert pcc > 0.999
    assert 0 < distance < 2


@pytest.mark.sim
def test_the_chip_of_priority_0_skips(sim_mesh):
    assert sim_mesh((1, 2), overlays=sgdc.overlays()).run(gated_pair.negate) == [1.0, -1.0]


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(1200)
def test_a_tiny_llama_speculates_on_a_pair(sim_mesh):
    result = sim_mesh((2, 1), "2x2", overlays=sgdc.overlays()).run(llama_on_a_mesh.generate, "random", 2, timeout=1100)
    assert len(result.token_ids[0]) == 2 and result.decode_tokens == 1
    counted = result.statistics
    assert counted.hits + counted.misses == 2 and counted.bypassed == 0, "each of two layers verified one guess"
