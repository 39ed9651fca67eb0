# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The paper's tables with a tiny model and tiny tasks under the harness's names: continued, side by side."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perf.studies.quality import paper_tables
from perf.studies.quality.inputs import Texts
from perf.studies.quality.paper_tables import TASKS, printed
from tests.support.gguf_files import untied, write_hf_folder


def arguments(model: str, tasks, *more: str) -> list[str]:
    own = ["--model", model, "--include-path", str(tasks), "--out", str(tasks / "out"), "--chunk-size", "32"]
    own += ["--dtype", "float32", "--batch-size", "2", "--torch-device", "cpu", "--parts", "1", "2"]
    return [*own, *more]


def test_both_tables_beside_the_printed_figures(model, tasks, capsys, monkeypatch) -> None:
    one = arguments(model, tasks, "--thresholds", "0.1", "--tasks", "GSM8K_COT")
    assert paper_tables.main(one) == 0
    results = tasks / "out" / "tables.csv"
    first = results.read_text()
    capsys.readouterr()
    given = arguments(model, tasks, "--thresholds", "0", "0.1", "0.25")
    assert paper_tables.main(given) == 0
    assert results.read_text().startswith(first), "a stopped run goes on"
    out = capsys.readouterr().out
    assert f"Table 1 (llama-3.1-8b) beside {Path(model).name} float32" in out and "Table 2 (llama-3.1-70b)" in out
    lines = [line for line in out.splitlines() if line.startswith("| GSM8K_COT")]
    assert [line.split(" | ")[2] for line in lines] == [
        *("0.823", "0.799 / 78.9%", "0.719 / 96.2%"),
        *("0.958", "0.951 / 86.6%", "0.897 / 98.3%"),
    ]
    ours = [line.split(" | ")[3].rstrip(" |") for line in lines]
    assert ours[:3] == ours[3:] and "/" not in ours[0] and ours[1].endswith("%") and ours[2].endswith("%")
    assert "| IFEVAL (inst_level_strict_acc,none) | 0.1 | 0.812 / 89.8% | not run: the harness has no" in out
    rows = pd.read_csv(results)
    assert set(rows.task) == {"gsm8k_cot", "gpqa_main_cot_n_shot"} and set(rows.requests) == {2}
    hits = rows[rows.task == "gsm8k_cot"].groupby("threshold").hits.first()
    assert hits[0] == 0 <= hits[0.1] < hits[0.25]

    before = results.read_text()
    load = "models.llama31_8b.huggingface.load.load_transformers"
    monkeypatch.setattr(load, lambda *_: pytest.fail("measured again"))
    assert paper_tables.main(given) == 0
    assert capsys.readouterr().out == out and results.read_text() == before


def test_every_printed_task_has_one_of_the_harness() -> None:
    assert set(printed().task) == set(TASKS) and len(printed()) == 12 * 6 + 3 * 6
    lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install -e perf/studies/quality")
    folder = Path(lm_eval.__file__).parent / "tasks"
    kinds = ("ifeval", "gpqa", "swde", "fda", "gsm8k", "mmlu_pro", "mgsm", "longbench")
    files = [file for kind in kinds for file in (folder / kind).rglob("*.yaml")]
    lines = {line.strip().replace('"', "") for file in files for line in file.read_text(encoding="utf-8").splitlines()}
    assert {f"task: {name}" for name, _ in TASKS.values()} <= lines


def test_figure_3_with_the_model_at_hand(tmp_path, capsys) -> None:
    (tmp_path / "tale_of_two_cities.txt").write_text(Texts().book() * 2)
    write_hf_folder(tmp_path / "tiny", untied(eos_token_ids=(), max_position_embeddings=2048))
    given = ["--model", str(tmp_path / "tiny"), "--parts", "figure3", "--data", str(tmp_path), "--context", "1600"]
    given += ["--thresholds", "0", "0.1", "--chunk-size", "64", "--dtype", "float32", "--torch-device", "cpu"]
    assert paper_tables.main([*given, "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "1600 tokens, S = 64 (paper, 16K: 8 of 10 at threshold 0" in out
    rows = [line for line in out.splitlines() if line.startswith("| 0") or line.startswith("| inf")]
    assert len(rows) == 3 and "of 10" in rows[0] and rows[0].endswith("| 0.0% |")
    (layers,) = [line for line in out.splitlines() if line.startswith("- threshold 0.1:")]
    assert len(layers.split(":")[1].split()) == 2


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--parts", "figure3"], "figure3 needs --data with the book"),
        (["--parts", "4"], "invalid choice: '4'"),
        (["--parts", "1", "--thresholds", "x"], "must be a number >= 0 or inf, got 'x'"),
    ],
)
def test_wrong_options(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit):
        paper_tables.parse_args(["--model", "x", *arguments])
    assert message in capsys.readouterr().err
