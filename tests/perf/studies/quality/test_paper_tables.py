# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The paper's tables with a tiny model and tiny tasks under the harness's names: resumed, estimated, side by side."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from perf.studies.quality import paper_tables
from perf.studies.quality.paper_tables import TASKS, Remaining, duration, paper_cells
from tests.support.harness_tasks import QUESTIONS, model, tasks  # noqa: F401  fixtures

TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{text}}}}"
generation_kwargs: {{until: [], max_gen_toks: 6}}
filter_list:
  - name: "flexible-extract"
    filter:
      - function: "take_first"
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture
def folder(tasks):  # noqa: F811
    """Two of the tasks, by the harness's names; the others are not in the folder."""
    data = tasks / "paper.json"
    data.write_text("".join(json.dumps({"question": text, "text": "the"}) + "\n" for text in QUESTIONS))
    for name in ("gsm8k_cot", "gpqa_main_cot_n_shot"):
        (tasks / f"{name}.yaml").write_text(TASK.format(name=name, data=data))
    return tasks


def arguments(model: str, folder, *more: str) -> list[str]:  # noqa: F811
    own = [
        "--model",
        model,
        "--include-path",
        str(folder),
        "--out",
        str(folder / "out"),
        "--chunk-size",
        "32",
    ]
    return [
        *own,
        "--dtype",
        "float32",
        "--batch-size",
        "2",
        "--parts",
        "1",
        "2",
        "--torch-device",
        "cpu",
        *more,
    ]


def test_both_tables_beside_the_printed_figures(model, folder, capsys, monkeypatch) -> None:  # noqa: F811
    given = arguments(model, folder, "--thresholds", "0", "0.1", "0.25")
    assert paper_tables.main(given) == 0
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
    with (folder / "out" / "tables.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["task"] for row in rows} == {"gsm8k_cot", "gpqa_main_cot_n_shot"}
    assert {row["requests"] for row in rows} == {"2"}
    by_threshold = {row["threshold"]: int(row["hits"]) for row in rows if row["task"] == "gsm8k_cot"}
    assert by_threshold["0"] == 0 <= by_threshold["0.1"] < by_threshold["0.25"]

    before = (folder / "out" / "tables.csv").read_text()
    load = "models.llama31_8b.huggingface.load.load_transformers"
    monkeypatch.setattr(load, lambda *_: pytest.fail("measured again"))
    assert paper_tables.main(given) == 0
    assert capsys.readouterr().out == out and (folder / "out" / "tables.csv").read_text() == before


def test_a_stopped_run_goes_on(model, folder, capsys) -> None:  # noqa: F811
    assert paper_tables.main(arguments(model, folder, "--thresholds", "0.1", "--tasks", "GSM8K_COT")) == 0
    first = (folder / "out" / "tables.csv").read_text()
    capsys.readouterr()
    assert paper_tables.main(arguments(model, folder, "--thresholds", "0.1")) == 0
    assert (folder / "out" / "tables.csv").read_text().startswith(first)
    assert "left:" in capsys.readouterr().err, "the bar has the estimate"


def test_the_estimate_of_what_is_left() -> None:
    remaining = Remaining({"a": 10, "b": 100})
    assert remaining.seconds(["a"]) is None
    remaining.add("a", 20.0, 10)
    assert remaining.seconds(["a", "a", "b"]) == 20 + 20 + 200, "b as fast as what is known"
    remaining.add("b", 50.0, 100)
    assert remaining.seconds(["a", "b"]) == 20 + 50
    assert [duration(s) for s in (None, 40, 700, 7500)] == [
        "unknown until the first is done",
        "40 s",
        "12 min",
        "2 h 05 min",
    ]


def test_every_printed_task_has_one_of_the_harness() -> None:
    cells = paper_cells(["1", "2"])
    assert {cell.task for cell in cells} == set(TASKS) and len(cells) == 12 * 6 + 3 * 6


@pytest.mark.parametrize("name", sorted({task.name for task in TASKS.values()}))
def test_the_harness_has_the_task(name: str) -> None:
    """By its files: its index takes half a minute."""
    lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install -e perf/studies/quality")
    from pathlib import Path

    folder = Path(lm_eval.__file__).parent / "tasks"
    kinds = ("ifeval", "gpqa", "swde", "fda", "gsm8k", "mmlu_pro", "mgsm", "longbench")
    files = [file for kind in kinds for file in (folder / kind).rglob("*.yaml")]
    wanted = (f"task: {name}", f'task: "{name}"')
    assert any(line.strip() in wanted for file in files for line in file.read_text(encoding="utf-8").splitlines())


@pytest.mark.model
def test_figure_3_with_the_model_at_hand(tmp_path, capsys) -> None:
    data = tmp_path / "texts"
    data.mkdir()
    for name in ("gsm8k_test.jsonl", "spec_bench.jsonl"):
        (data / name).write_text("")
    from perf.studies.quality.texts import Texts

    (data / "tale_of_two_cities.txt").write_text(Texts().book() * 2)
    from models.llama31_8b.checkpoint.load import default_gguf

    given = ["--model", str(default_gguf()), "--parts", "figure3", "--data", str(data), "--context", "768"]
    given += ["--thresholds", "0", "0.1", "--chunk-size", "64", "--dtype", "float32", "--torch-device", "cpu"]
    assert paper_tables.main([*given, "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "768 tokens, S = 64 (paper, 16K: 8 of 10 at threshold 0" in out
    rows = [line for line in out.splitlines() if line.startswith("| 0") or line.startswith("| inf")]
    assert len(rows) == 3 and "of 10" in rows[0] and rows[0].endswith("| 0.0% |")
    (layers,) = [line for line in out.splitlines() if line.startswith("- threshold 0.1:")]
    assert len(layers.split(":")[1].split()) == 30


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
