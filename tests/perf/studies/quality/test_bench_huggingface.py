# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of transformers' attention function on the CPU at small size, and what was measured on a GPU."""

from __future__ import annotations

import csv

import pytest

from perf.projection.published import read_rows
from perf.studies.quality import bench_huggingface


def rows(path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_costs_of_a_small_model(tmp_path) -> None:
    given = ["--parts", "scoring", "decode", "--preset", "smollm2-135m", "--layers", "1", "--contexts", "96"]
    given += ["--chunk-size", "32", "--steps", "4", "--repeats", "1", "--out", str(tmp_path)]
    assert bench_huggingface.main(given) == 0
    found = rows(tmp_path / "costs.csv")
    assert [(row["part"], row["attention"]) for row in found] == [
        ("scoring", "sdpa"),
        ("scoring", "alspec, tiles"),
        ("scoring", "alspec, windows"),
        ("decode", "sdpa"),
        ("decode", "alspec"),
    ]
    assert all(float(row["min"]) <= float(row["milliseconds"]) <= float(row["max"]) for row in found)
    exact, tiles = (float(row["milliseconds"]) for row in found[:2])
    assert [row["of_sdpa"] for row in found if row["attention"] == "sdpa"] == ["1", "1"]
    assert float(found[1]["of_sdpa"]) == pytest.approx(tiles / exact, rel=1e-3)
    before = (tmp_path / "costs.csv").read_text()
    assert bench_huggingface.main(given) == 0
    assert (tmp_path / "costs.csv").read_text() == before, "what is there is not measured again"


@pytest.mark.model
def test_decisions_at_once_are_those_of_steps(tmp_path) -> None:
    given = ["--parts", "decisions", "--decision-tokens", "150", "--chunk-size", "32", "--out", str(tmp_path)]
    assert bench_huggingface.main(given) == 0
    found = rows(tmp_path / "decisions.csv")
    assert [row["against"] for row in found] == [
        "windows on the device",
        "step by step on the device",
        "at once on the cpu, float32",
    ]
    for row in found:
        assert (row["decisions"], row["different"]) == (str(30 * (150 - 63)), "0")
        assert 0.1 < float(row["hit_rate"]) < 0.9


@pytest.mark.model
def test_a_text_that_is_too_short(tmp_path, capsys) -> None:
    given = ["--parts", "decisions", "--decision-tokens", "5000", "--out", str(tmp_path)]
    assert bench_huggingface.main(given) == 2
    assert "story has 1306 tokens; --decision-tokens 5000" in capsys.readouterr().err


def test_what_a_gpu_measured() -> None:
    costs = {(row["part"], row["attention"], row["context"]): row for row in read_rows("huggingface/costs.csv")}
    for context, most in (("4096", 1.15), ("16384", 1.10), ("32768", 1.10)):
        exact, tiles = (costs["scoring", name, context] for name in ("sdpa", "alspec, tiles"))
        ratio = float(tiles["milliseconds"]) / float(exact["milliseconds"])
        assert float(tiles["of_sdpa"]) == pytest.approx(ratio, rel=1e-4) and ratio < most
        assert float(tiles["peak_gb"]) < 1.01 * float(exact["peak_gb"])
    decisions = read_rows("huggingface/decisions.csv")
    assert len(decisions) == 3 and {row["different"] for row in decisions} == {"0"}
