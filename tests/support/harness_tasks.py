# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Make tiny tasks of the LM Evaluation Harness from local files, and a tiny model to run them, without network.

The fixtures are imported by the tests that use them.
"""

from __future__ import annotations

import json

import pytest

from perf.studies.quality import lm_eval as command
from tests.support.gguf_files import untied, write_hf_folder

CHOICE = """task: tiny_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: [" the", " and"]
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
TEXT = """task: tiny_text
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{text}}}}"
generation_kwargs: {{until: ["12"], max_gen_toks: 6}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""
PERPLEXITY = """task: tiny_perplexity
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{question}}}}"
metric_list: [{{metric: word_perplexity}}]
"""
QUESTIONS = ["the and the in 12 " * 12, "and in the " * 20]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    write_hf_folder(folder, untied())
    return str(folder)


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install -e perf/studies/quality")
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    data = tmp_path / "data.json"
    data.write_text("".join(json.dumps({"question": q, "answer": 0, "text": "the"}) + "\n" for q in QUESTIONS))
    for name, task in (("choice", CHOICE), ("text", TEXT), ("perplexity", PERPLEXITY)):
        (tmp_path / f"{name}.yaml").write_text(task.format(data=data))
    return tmp_path


def run_tasks(model: str, tasks, *arguments: str) -> dict[str, dict]:
    """Return by task what `perf.studies.quality.lm_eval` gives for the tiny tasks."""
    path = tasks / "results.json"
    names = ("tiny_choice", "tiny_text", "tiny_perplexity")
    given = ["--model", model, "--tasks", *names, "--include-path", str(tasks), "--json", str(path)]
    assert command.main([*given, "--chunk-size", "32", *arguments]) == 0
    return {result["task"]: result for result in json.loads(path.read_text())}
