# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""perf.projections.layers_projection: executed layers taken to 32, by hand."""

from __future__ import annotations

import json

import pytest

from perf.projections import layers_projection

PARTS = {"part_fixed": 100, "part_per_layer": 50, "part_exact": 40, "part_sender": 44, "part_receiver": 10}
BASE = {"context": 65536, "chunk_size": 128} | PARTS
CYCLES = {(1, 1.0): (190, 170), (1, 0.0): (190, 210), (2, 1.0): (281, 235), (2, 0.5): (281, 270), (2, 0.0): (281, 307)}
EXECUTED = [
    BASE | {"layers": layers, "hit_rate": hits, "exact": exact, "cycles": cycles}
    for (layers, hits), (exact, cycles) in CYCLES.items()
]


def test_each_further_layer_adds_what_the_second_did():
    half, full = layers_projection.table_rows(EXECUTED, 4, (0.5, 1.0))
    assert half["exact"] == full["exact"] == 190 + 31 * 91
    assert full["pair"] == 170 + 31 * 65 and full["gain"] == pytest.approx(full["exact"] / full["pair"])
    assert half["pair"] == (170 + 31 * 65 + 210 + 31 * 97) / 2


def test_appendix_f_counts_what_lies_outside_the_layers_once():
    half, full = layers_projection.table_rows(EXECUTED, 4, (0.5, 1.0))
    assert full["formula"] == 100 + 32 * 60 and half["formula"] == 100 + 16 * 60 + 16 * 94
    assert full["formula_gain"] == pytest.approx(2980 / 2020)
    assert 1 < half["estimator_gain"] < full["estimator_gain"] < 2


@pytest.mark.parametrize(
    "left_out, named",
    [
        ((1, 1.0), "1 with hits 1"),
        ((1, 0.0), "1 with hits 0"),
        ((2, 1.0), "2 with hits 1"),
        ((2, 0.0), "2 with hits 0"),
    ],
)
def test_a_step_that_is_missing_is_named(left_out, named):
    given = [row for row in EXECUTED if (row["layers"], row["hit_rate"]) != left_out]
    with pytest.raises(ValueError, match=f"at 65536 cached tokens the steps of these layers are missing: {named}$"):
        layers_projection.table_rows(given, 4)


def test_the_command_writes_its_rows(tmp_path, capsys):
    one, two, written = tmp_path / "one.json", tmp_path / "two.json", tmp_path / "rows.json"
    for path, layers in ((one, 1), (two, 2)):
        rows = [row for row in EXECUTED if row["layers"] == layers]
        path.write_text(json.dumps({"command": "x", "rows": rows}))
    assert layers_projection.main([str(one), str(two), "--write", str(written)]) == 0
    assert "100.0%" in capsys.readouterr().out
    assert [row["hit_rate"] for row in json.loads(written.read_text())["rows"]] == list(layers_projection.HIT_RATES)
