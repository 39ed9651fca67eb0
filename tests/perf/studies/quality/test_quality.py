# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m perf.studies.quality --quick` from end to end, and that it gives the committed figures again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from models.llama31_8b.checkpoint.load import load_model
from perf.lib.data_file import FOLDER as DATA
from perf.projection.published import read_rows
from perf.studies.quality import baselines, cli, perplexity
from perf.studies.quality.perplexity import split_rates
from perf.studies.quality.study import Study
from perf.studies.quality.texts import Texts

COMMITTED = "quality/quick"
# Digits claimed: rates and losses to three decimals. Sums of another order may turn a decision that was a near tie.
TOLERANCE = {"rel": 5e-3, "abs": 2e-3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("quality")
    assert cli.main(["--quick", "--out", str(out)]) == 0
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def same(column: str, ours: str, theirs: str) -> bool:
    if column == "seconds" or ours == theirs:
        return True
    if column.endswith("by_layer"):
        return split_rates(ours) == pytest.approx(split_rates(theirs), abs=0.01)
    return float(ours) == pytest.approx(float(theirs), **TOLERANCE)


@pytest.mark.model
@pytest.mark.parametrize("part", cli.USUAL)
def test_the_quick_run_gives_the_committed_figures_again(folder, part):
    ours, theirs = rows(folder / f"{part}.csv"), read_rows(f"{COMMITTED}/{part}.csv")
    assert len(ours) == len(theirs) and list(ours[0]) == list(theirs[0])
    wrong = [
        f"row {number}, {column}: {a[column]} here, {b[column]} committed"
        for number, (a, b) in enumerate(zip(ours, theirs))
        for column in a
        if not same(column, a[column], b[column])
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.model
def test_what_must_hold_whatever_the_figures(folder):
    grid = {float(row["threshold"]): row for row in rows(folder / "perplexity.csv")}
    assert float(grid[0]["hit_rate"]) == 0 and float(grid[float("inf")]["hit_rate"]) == 1
    assert float(grid[0]["divergence"]) < 1e-6 and float(grid[0]["agreement"]) == 1
    assert 0 < float(grid[0.1]["hit_rate"]) < 1
    assert float(grid[0.1]["divergence"]) < float(grid[float("inf")]["divergence"])
    compared = {row["method"]: row for row in rows(folder / "baselines.csv") if row["parameter"] != "0.5"}
    assert compared["sink"]["perplexity"] == grid[float("inf")]["perplexity"], "infinity is the sink policy"
    assert float(compared["matched"]["hit_rate"]) == pytest.approx(
        float(compared["dynamic"]["hit_rate"]), abs=1 / 60
    ), "matched to the nearest of 30 layers"
    exact = [row for row in rows(folder / "divergence.csv") if row["threshold"] == "0"]
    assert all(row["first_difference"] == "" for row in exact), "threshold 0 writes the exact text"
    by_predictor = {row["predictor"]: float(row["hit_rate"]) for row in rows(folder / "predictors.csv")}
    assert by_predictor["oracle"] >= by_predictor["last step's mass"]


@pytest.mark.model
def test_shorter_tails_hit_less(folder):
    """S - 31 to S keys, S keys, S to S + 31: the quick run itself, whose exact pass serves all."""
    whole = next(row for row in rows(folder / "perplexity.csv") if row["threshold"] == "0.1")
    hits = {whole["tail_alignment"]: float(whole["hit_rate"])}
    shorter = [
        cli.settings_of(cli.parse_args(["--quick", "--thresholds", "0.1", *options]))
        for options in (("--short-tail",), ("--tail-alignment", "1"))
    ]
    study = Study(load_model(), Texts(None), shorter[0])
    for settings in shorter:
        study.settings = settings
        (cell,) = perplexity.cells(study)
        hits[str(cell.key["tail_alignment"])] = float(cell.measure()["hit_rate"])
    assert hits["32"] < hits["1"] < hits["32+"]


@pytest.mark.model
def test_pictures_are_drawn(folder):
    names = ("layers.png", "thresholds.png", "predictors.png", "heat_map.png")
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in names)
    page = (folder / "generation.html").read_text(encoding="utf-8")
    assert page.count('title="token') == cli.QUICK["new_tokens"]


@pytest.mark.model
def test_a_second_run_measures_nothing_again(folder, monkeypatch):
    before = {path: path.read_bytes() for path in folder.glob("*.csv")}
    monkeypatch.setattr("perf.studies.quality.study.text_pass", lambda *_, **__: pytest.fail("measured again"))
    assert cli.main(["--quick", "--out", str(folder), "--parts", *cli.USUAL]) == 0
    assert before == {path: path.read_bytes() for path in folder.glob("*.csv")}


def test_committed_files_name_their_command():
    files = sorted((DATA / "quality").rglob("*.csv"))
    assert {file.stem for file in files if file.parent.name == "quick"} == set(cli.USUAL)
    assert len(files) > len(cli.USUAL), "those of the long run are beside them"
    for file in files:
        assert file.read_text(encoding="utf-8").startswith("# command: python -m perf.studies.quality"), file


@pytest.mark.parametrize(
    "arguments,why",
    [
        (("--thresholds", "-1"), "must be a number >= 0 or inf, got '-1'"),
        (("--thresholds", "nan"), "must be a number >= 0 or inf, got 'nan'"),
        (("--contexts", "0"), "whole number of at least 1, got '0'"),
        (("--chunk-sizes", "48"), "48 is not a multiple of --tail-alignment 32"),
        (
            ("--short-tail", "--tail-alignment", "1"),
            "--short-tail with --tail-alignment 1 would change nothing",
        ),
        (("--parts", "taste"), "invalid choice: 'taste'"),
    ],
)
def test_options_out_of_range_are_refused(arguments, why, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.parse_args(arguments)
    assert ended.value.code == 2 and why in capsys.readouterr().err


@pytest.mark.model
@pytest.mark.parametrize(
    "arguments,why",
    [
        (("--contexts", "9000"), "9000 tokens is beyond the context of SmolLM2-135M-Instruct: 8192 tokens"),
        (("--contexts", "1024"), "story has 1306 tokens: too few for 2 texts of 1024"),
    ],
)
def test_texts_that_do_not_fit_are_refused(arguments, why, tmp_path, capsys):
    assert cli.main(["--quick", "--parts", "perplexity", "--out", str(tmp_path), *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_folder_without_the_texts_is_refused(tmp_path, capsys):
    assert cli.main(["--data", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "lacks tale_of_two_cities.txt, gsm8k_test.jsonl, spec_bench.jsonl" in capsys.readouterr().err


def test_a_text_of_ones_own_needs_no_questions(tmp_path):
    (tmp_path / "letters.txt").write_text("One letter.\nStill the first.\n\nAnother.\n", encoding="utf-8")
    own = cli.parse_args(["--text", str(tmp_path / "letters.txt")])
    assert "questions" not in own.parts and set(own.parts) == {*cli.USUAL, cli.PICTURES} - {"questions"}
    texts = Texts(None, own.text)
    texts.check(questions=False)
    assert texts.name == "letters" and texts.book() == "One letter. Still the first.\n\nAnother."
    (tmp_path / "tale_of_two_cities.txt").write_text("It was.", encoding="utf-8")
    Texts(tmp_path).check(questions=False)
    with pytest.raises(FileNotFoundError, match="lacks gsm8k_test.jsonl, spec_bench.jsonl"):
        Texts(tmp_path).check(questions=True)
    with pytest.raises(FileNotFoundError, match="no file .*missing.txt"):
        Texts(None, tmp_path / "missing.txt").check(questions=False)


def test_the_readiest_layers():
    assert baselines.readiest([0.1, 0.9, 0.5, 0.9], 0.5) == [1, 3]
    assert baselines.readiest([0.1, 0.9, 0.5, 0.9], 0.25) == [1], "of equal layers the earlier"
    assert baselines.readiest([0.1, 0.2], 0) == []
