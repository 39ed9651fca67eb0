# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Values of a layer: a decode step and a prefill of a tiny one, judged; rows; what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loguru import logger

from models.llama31_8b.tiny import BANKED
from perf.step import values as bench
from perf.step.__main__ import main


def tiny_layer(mesh, config):
    from models.llama31_8b.tt.precision import precision_config
    from perf.step.layer_device import judge_layer

    return judge_layer(mesh, config, precision_config("performance", 3), "interleaved", 100, 20)


@pytest.mark.sim
@pytest.mark.timeout(1200)
def test_a_decode_step_and_a_prefill_of_a_tiny_layer_are_judged(sim_device):
    config = replace(BANKED, max_position_embeddings=128)
    found = sim_device("4x2").run(tiny_layer, config, timeout=1100)
    rows = bench.rows_of(found, "performance", "interleaved", 100, 20)
    named = [(row["pass"], row["tokens"], row["of"]) for row in rows]
    assert named == [
        (*work, of) for work in (("decode", "1 after 99"), ("prefill", "20")) for of in ("layer", "logits")
    ]
    for row in rows:
        logger.info("{}", row)
        assert row["pcc_held"] >= 0.998 and row["error_held"] < row["error_given"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--simulator", "none.so"], "none.so: no such file"),
        (["--simulator", "none.so", "--prompt", "2000"], "--prompt must be 1 to 1024, the context, got 2000"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_a_line(arguments, words, capsys, monkeypatch):
    monkeypatch.setattr(bench, "run", lambda *_: pytest.fail("judged"))
    with pytest.raises(SystemExit, match="2"):
        main(["values", *arguments])
    error = capsys.readouterr().err
    assert words in error and len(error.splitlines()) == 1
