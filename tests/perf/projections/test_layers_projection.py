# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""perf.projections.layers_projection: executed layers taken to 32, by hand."""

from __future__ import annotations

import json

import pytest

from perf.projections import layers_projection

PARTS = {"part_fixed": 100, "part_per_layer": 50, "part_exact": 40, "part_sender": 44, "part_receiver": 10}
BASE = {"layers": 2, "context": 65536, "chunk_size": 128, "exact": 281, "layer_pitch_exact": 91} | PARTS
EXECUTED = [
    BASE | {"hit_rate": 1.0, "cycles": 235, "layer_pitch": 65},
    BASE | {"hit_rate": 0.5, "cycles": 270, "layer_pitch": 66},
    BASE | {"hit_rate": 0.0, "cycles": 307, "layer_pitch": 97},
]


def test_each_further_layer_adds_a_pitch():
    half, full = layers_projection.table_rows(EXECUTED, 4, (0.5, 1.0))
    assert half["exact"] == full["exact"] == 281 + 30 * 91
    assert full["pair"] == 235 + 30 * 65 and full["gain"] == pytest.approx(full["exact"] / full["pair"])
    assert half["pair"] == (235 + 30 * 65 + 307 + 30 * 97) / 2


def test_appendix_f_counts_what_lies_outside_the_layers_once():
    half, full = layers_projection.table_rows(EXECUTED, 4, (0.5, 1.0))
    assert full["formula"] == 100 + 32 * 60 and half["formula"] == 100 + 16 * 60 + 16 * 94
    assert full["formula_gain"] == pytest.approx(2980 / 2020)
    assert 1 < half["estimator_gain"] < full["estimator_gain"] < 2


@pytest.mark.parametrize("given", [EXECUTED[1:], EXECUTED[:2], [row | {"layers": 1} for row in EXECUTED]])
def test_other_steps_are_refused(given):
    with pytest.raises(ValueError, match="wanted steps of two layers with hits 1 and 0, got hits"):
        layers_projection.table_rows(given, 4)


def test_the_command_writes_its_rows(tmp_path, capsys):
    executed, written = tmp_path / "pair.json", tmp_path / "rows.json"
    executed.write_text(json.dumps({"command": "x", "rows": EXECUTED}))
    assert layers_projection.main([str(executed), "--write", str(written)]) == 0
    assert "100.0%" in capsys.readouterr().out
    assert [row["hit_rate"] for row in json.loads(written.read_text())["rows"]] == list(layers_projection.HIT_RATES)
