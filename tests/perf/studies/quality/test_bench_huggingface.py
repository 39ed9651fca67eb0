# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of transformers' attention function, on the CPU at small size."""

from __future__ import annotations

import pandas as pd
import pytest

from perf.studies.quality import bench_huggingface


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_costs_of_a_small_model(tmp_path) -> None:
    given = ["--parts", "scoring", "decode", "--preset", "smollm2-135m", "--layers", "1", "--contexts", "96"]
    given += ["--chunk-size", "32", "--steps", "4", "--repeats", "1", "--out", str(tmp_path)]
    assert bench_huggingface.main(given) == 0
    found = pd.read_csv(tmp_path / "costs.csv").set_index(["part", "attention"])
    alspec = [("scoring", "alspec, tiles"), ("scoring", "alspec, windows"), ("decode", "alspec")]
    assert set(found.index) == {("scoring", "sdpa"), ("decode", "sdpa"), *alspec}
    assert (found["min"] <= found.milliseconds).all() and (found.milliseconds <= found["max"]).all()
    for part, attention in alspec:
        ratio = found.milliseconds[part, attention] / found.milliseconds[part, "sdpa"]
        assert found.of_sdpa[part, attention] == pytest.approx(ratio, rel=1e-3) and found.of_sdpa[part, "sdpa"] == 1
    before = (tmp_path / "costs.csv").read_text()
    assert bench_huggingface.main(given) == 0
    assert (tmp_path / "costs.csv").read_text() == before, "what is there is not measured again"


@pytest.mark.model
def test_decisions_at_once_are_those_of_steps(tmp_path, capsys) -> None:
    given = ["--parts", "decisions", "--chunk-size", "32", "--out", str(tmp_path), "--decision-tokens"]
    assert bench_huggingface.main([*given, "110"]) == 0
    found = pd.read_csv(tmp_path / "decisions.csv")
    ways = ("windows on the device", "step by step on the device", "at once on the cpu, float32")
    assert tuple(found.against) == ways and set(found.decisions) == {30 * (110 - 63)} and set(found.different) == {0}
    assert found.hit_rate.between(0.1, 0.9).all() and found.loss_difference.max() < 1e-3
    assert bench_huggingface.main([*given, "5000"]) == 2
    assert "story has 1306 tokens; --decision-tokens 5000" in capsys.readouterr().err
