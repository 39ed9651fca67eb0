# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Several users, prompt lengths and formats by layer, of a small TT-NN Llama on the simulated chip."""

import json

import pytest
from loguru import logger

from tests.models.tt.batch_programs import formats, one_step, prompts

pytestmark = [pytest.mark.sim, pytest.mark.timeout(1500)]
MIN_PCC = 0.99


def test_eight_users_at_their_own_positions_and_two_skipped(sim_device):
    """The first position, both sides of a tile and of a chunk of keys, the last; a core a user. A skipped
    user's cache, and of the others all but the new row, keep every bit."""
    positions = [0, 31, -1, 32, 127, 128, -1, 255]
    told = sim_device("8x1").run(one_step, positions, timeout=1200)
    logger.info("{}", told)
    assert [len(told[name]) for name in ("logits", "written")] == [6, 6]
    assert all(row["pcc"] >= MIN_PCC for row in told["logits"] + told["written"])
    assert told["changed"] == [[] if position < 0 else [position] for position in positions]


def test_users_on_cores_that_are_no_rectangle(sim_device):
    """Three on two rows of two cores, as nine are on a board: heads are joined by another program of the stock op."""
    positions = [31, 128, 5]
    told = sim_device("2x2").run(one_step, positions, timeout=1200)
    logger.info("{}", told)
    assert all(row["pcc"] >= MIN_PCC for row in told["logits"] + told["written"])
    assert told["changed"] == [[position] for position in positions]


def test_prompts_around_a_tile_and_a_chunk(sim_device):
    """One token, a tile less one, a tile, and one more, a second chunk; test_tt_model.py has 40. And a chunk
    of four tiles, which attention takes at once as it does on boards."""
    chunks = {33: 32, 1: 32, 31: 32, 32: 32, 97: 128}
    told = sim_device("2x1").run(prompts, chunks, timeout=1200)
    assert [row["length"] for row in told] == list(chunks)
    for row in told:
        logger.info("{}", row)
        assert row["logits"]["pcc"] >= MIN_PCC
        assert len(row["cache"]) == 2 and all(part["pcc"] >= MIN_PCC for part in row["cache"])


def test_overrides_decide_what_is_on_the_device(sim_device, tmp_path):
    plan = {
        "layer": {"ff2": "bfloat4_b"},
        "layers": {"0": {"ff1": "bfloat16", "wo": "bfloat4_b"}},
        "lm_head": "bfloat16",
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    told = sim_device("2x1").run(formats, str(tmp_path / "plan.json"))
    logger.info("{}", told)
    assert (told["lm_head"], told["kv_cache"]) == ("bfloat16", "bfloat8_b")
    first, last = told[0], told[1]
    assert [first[name] for name in ("qkv", "wo", "ff1", "ff3", "ff2")] == [
        "bfloat8_b",
        "bfloat4_b",
        "bfloat16",
        "bfloat4_b",
        "bfloat4_b",
    ]
    assert [last[name] for name in ("qkv", "wo", "ff1", "ff3", "ff2")] == ["bfloat8_b"] * 4 + ["bfloat4_b"]
    assert first["error"] < 0.004 < last["error"] < 0.02, "bfloat16, and bfloat8_b, of the largest weight"
