# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Where the result of flash decode may lie, and that it is the same there."""

from __future__ import annotations

import pytest
import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import CHIP, Case, exact_body, guess_body
from tt_kernels.common.tensor_facts import UnsupportedError, check_result_memory

LIMIT_S = 900


def test_results_lie_interleaved_in_dram_or_l1():
    for buffer in ("DRAM", "L1"):
        check_result_memory("INTERLEAVED", buffer)
    for layout in ("HEIGHT_SHARDED", "WIDTH_SHARDED", "BLOCK_SHARDED"):
        with pytest.raises(UnsupportedError, match=f"memory_config must be interleaved, it is {layout}"):
            check_result_memory(layout, "L1")
    with pytest.raises(UnsupportedError, match="memory_config must be in DRAM or L1, it is in L1_SMALL"):
        check_result_memory("INTERLEAVED", "L1_SMALL")


@pytest.mark.sim
@pytest.mark.parametrize("body", [exact_body, guess_body], ids=["exact", "guess"])
def test_a_result_in_l1_is_the_one_in_dram(sim_device, body):
    """Two users, one of them skipped in the second call, whose rows are zeros in either memory."""
    case = Case(6, 2, 64, 128, 32, users=2, workers=3, grid=(4, 2))
    calls = [
        {"positions": positions, "memory": memory} for positions in ([127, 40], [70, -1]) for memory in ("DRAM", "L1")
    ]
    results, _ = sim_device(CHIP).run(body, case, *case.random(3), calls, timeout=LIMIT_S)
    for in_dram, in_l1 in (results[:2], results[2:]):
        assert torch.equal(in_dram, in_l1) and in_dram.any()
    assert not results[3][0, 1].any()
