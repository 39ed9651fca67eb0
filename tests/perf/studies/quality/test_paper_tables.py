# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The paper's tables with a tiny model and tiny tasks under the harness's names: continued, side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

from perf.studies.quality import paper_tables
from perf.studies.quality.paper_tables import TASKS, printed


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


def test_other_tasks_of_the_harness(model, tasks, capsys) -> None:
    """All metrics of a task by its own name, and those of the paper's tables by lm-eval's."""
    names = ("--tasks", "tiny_choice", "tiny_text", "gsm8k_cot")
    assert paper_tables.main(arguments(model, tasks, *names, "--thresholds", "0", "0.1", "inf")) == 0
    out = capsys.readouterr().out
    assert "| tiny_choice (acc,none) | 0.1 | " in out and "| GSM8K_COT (" in out and "stderr" not in out
    for _, rows in pd.read_csv(tasks / "out" / "tables.csv").groupby("task"):
        never, some, every = (rows[rows.threshold == at].iloc[0] for at in (0, 0.1, float("inf")))
        assert never.hits == 0 < some.hits < every.hits and every.misses == 0
        assert some.task != "tiny_choice" or some.bypassed > 0
    half = arguments(model, tasks, "--tasks", "tiny_text", "--thresholds", "0.1", "--dtype", "bfloat16")
    assert paper_tables.main(half) == 0
    assert "| tiny_text (exact_match,flexible-extract) | 0.1 | " in capsys.readouterr().out


def test_what_cannot_be_run_is_refused(model, tasks, capsys, monkeypatch) -> None:
    assert paper_tables.main(arguments(model, tasks, "--tasks", "no_such_task")) == 2
    assert "no_such_task cannot be run: the harness has no such task" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "perf.studies.quality.harness")
    assert paper_tables.main(arguments(model, tasks, "--tasks", "tiny_text")) == 2
    assert "pip install -e perf/studies/quality" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--parts", "4"], "invalid choice: '4'"),
        (["--parts", "1", "--thresholds", "x"], "must be a number >= 0 or inf, got 'x'"),
    ],
)
def test_wrong_options(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit):
        paper_tables.parse_args(["--model", "x", *arguments])
    assert message in capsys.readouterr().err
