# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""perf.projections.predictor_choice: expected cycles of both guesses by measured hits."""

from __future__ import annotations

import json

import pytest

from perf.projections import predictor_choice

SIZE = {"chunk_size": 128, "context": 1024}
HITS = [
    SIZE | {"threshold": 0.1, "predictor": "ends", "hit_rate": 0.25},
    SIZE | {"threshold": 0.1, "predictor": "followed", "hit_rate": 0.25},
    SIZE | {"threshold": 0.1, "predictor": "followed", "hit_rate": 0.75},
    SIZE | {"threshold": 0.2, "predictor": "followed", "hit_rate": 1.0},
]
OP = SIZE | {"context": 1025, "workers": 7, "whole_tail": True}
ATTENTION = [
    OP | {"tiles": 0, "masses": False, "sender": 1000, "receiver": 600, "selection": 0},
    OP | {"tiles": 3, "masses": False, "sender": 1, "receiver": 1, "selection": 0},
    OP | {"tiles": 3, "masses": True, "sender": 1016, "receiver": 616, "selection": 320},
    OP | {"tiles": 0, "masses": False, "sender": 1, "receiver": 1, "selection": 0, "workers": 1},
]


def steps(predictor: str, *cycles: int) -> list[dict]:
    rates = zip((0.0, 1.0, 0.5), cycles, strict=False)
    return [SIZE | {"workers": 1, "predictor": predictor, "hit_rate": rate, "cycles": each} for rate, each in rates]


def test_hits_weigh_what_a_hit_and_a_miss_cost():
    measured = [*HITS, *ATTENTION, *steps("ends", 2000, 1000, 5), *steps("followed", 2100, 1100)]
    attention, step = predictor_choice.table_rows(measured)
    assert (attention["part"], attention["context"], attention["workers"]) == ("attention", 1025, 7)
    assert (attention["ends_hits"], attention["followed_hits"]) == (0.25, 0.5)
    assert (attention["ends"], attention["followed"]) == (900, 826)
    assert (step["part"], step["ends"], step["followed"]) == ("step", 1750, 1600)
    assert step["gain"] == pytest.approx(1750 / 1600)
    with pytest.raises(ValueError, match="no hit rate of ends at 1024 tokens"):
        predictor_choice.table_rows(ATTENTION)


def test_the_command_writes_its_rows(tmp_path, capsys):
    measured, written = tmp_path / "m.json", tmp_path / "w.json"
    measured.write_text(json.dumps({"rows": [*HITS, *ATTENTION]}))
    assert predictor_choice.main([str(measured), "--write", str(written)]) == 0
    assert "1.090x" in capsys.readouterr().out and len(json.loads(written.read_text())["rows"]) == 1
    measured.write_text(json.dumps({"rows": HITS}))
    with pytest.raises(SystemExit):
        predictor_choice.main([str(measured)])
    assert "no cycles of both predictors" in capsys.readouterr().err
