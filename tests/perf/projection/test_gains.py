# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Gains of speculation: the committed data again, small cases by hand, and the command's refusals."""

import pytest

from models.llama31_8b.latency import token_ns
from perf.lib.data_file import FOLDER, ROOT, read
from perf.projection.__main__ import main
from perf.projection.gains import hit_rows, layer_rows


@pytest.mark.parametrize("name", ["layouts", "hit_projection", "layers_projection", "prefill"])
def test_a_recorded_command_gives_its_rows_again(name, tmp_path, monkeypatch, capsys):
    """To the last digit."""
    monkeypatch.chdir(ROOT)
    facts, rows = read(FOLDER / "projections" / f"{name}.json")
    words = facts["command"].split()
    assert words[:3] == ["python", "-m", "perf.projection"]
    assert main([*words[3:], "--write", str(tmp_path / "again.json")]) == 0
    assert read(tmp_path / "again.json")[1] == rows and capsys.readouterr().out.startswith("| ")


HITS = {"context": 1024, "chunk_size": 128, "predictor": "ends", "threshold": 0.1}


def test_windows_are_averaged_and_tokens_divide_the_step():
    tree = HITS | {"nodes": 4, "rule": "joint", "hit_rate": 0.5, "tokens_per_step": 3.0, "exact_tokens_per_step": 2.0}
    one, tree = hit_rows([HITS | {"hit_rate": 0.25}, HITS | {"hit_rate": 0.75}, tree], (65536,))
    assert (one["hit_rate"], one["tokens_per_step"], one["nodes"], one["rule"]) == (0.5, 1, 1, None)
    assert one["tokens_per_s"] == pytest.approx(1e9 / token_ns(65536, 0.5, 16))
    assert tree["tokens_per_s"] == pytest.approx(3 * one["tokens_per_s"])
    assert tree["over_tp"] == pytest.approx(1.5 * one["over_tp"]) and one["over_misses"] > 1
    (chain,) = hit_rows([HITS | {"nodes": 16, "rule": "every node", "hit_rate": 0.5}], (65536,))
    assert chain["tokens_per_step"] == 16 and chain["over_tp"] == pytest.approx(one["over_tp"])


PARTS = {"part_fixed": 100, "part_per_layer": 50, "part_exact": 40, "part_sender": 44, "part_receiver": 10}
TWO = {"layers": 2, "context": 65536, "chunk_size": 128, "exact": 281, "layer_pitch_exact": 91} | PARTS
TWO_LAYERS = [
    TWO | {"hit_rate": 1.0, "cycles": 235, "layer_pitch": 65},
    TWO | {"hit_rate": 0.5, "cycles": 270, "layer_pitch": 66},
    TWO | {"hit_rate": 0.0, "cycles": 307, "layer_pitch": 97},
]


def test_each_further_layer_adds_a_pitch_and_appendix_f_counts_the_rest_once():
    half, full = layer_rows(TWO_LAYERS, (0.5, 1.0))
    assert half["exact"] == full["exact"] == 281 + 30 * 91
    assert full["pair"] == 235 + 30 * 65 and full["gain"] == pytest.approx(full["exact"] / full["pair"])
    assert half["pair"] == (235 + 30 * 65 + 307 + 30 * 97) / 2
    assert full["formula"] == 100 + 32 * 60 and half["formula"] == 100 + 16 * 60 + 16 * 94
    assert full["formula_gain"] == pytest.approx(2980 / 2020)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: hit_rows([HITS | {"hit_rate": 0.5, "chunk_size": 1024}]), "S up to 512"),
        (lambda: hit_rows([HITS]), "wanted rows with a hit rate"),
        (lambda: layer_rows(TWO_LAYERS[1:]), "two layers with hits 1 and 0, got hits"),
        (lambda: layer_rows([row | {"layers": 1} for row in TWO_LAYERS]), "two layers with hits 1 and 0, got hits"),
    ],
)
def test_rows_that_say_too_little_are_refused(make, why):
    with pytest.raises(ValueError, match=why):
        make()
