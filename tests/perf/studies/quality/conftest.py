# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny tasks of the LM Evaluation Harness from local files, and a tiny model to run them, without network."""

import json

import pytest

from tests.support.gguf_files import untied, write_hf_folder

TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
{more}"""
CHOICE = """doc_to_choice: [" the", " and"]
doc_to_target: "{{answer}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
TEXT = """doc_to_target: "{{text}}"
generation_kwargs: {until: ["12"], max_gen_toks: 6}
filter_list: [{name: "flexible-extract", filter: [{function: "take_first"}]}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
QUESTIONS = ("the and the in 12 " * 12, "and in the " * 20)


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> str:
    """The folder of a tiny model with random weights that never ends a text."""
    folder = tmp_path_factory.mktemp("tiny")
    write_hf_folder(folder, untied(eos_token_ids=()))
    return str(folder)


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A folder with two tasks of our own."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install -e perf/studies/quality")
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    data = tmp_path / "data.json"
    data.write_text("".join(json.dumps({"question": q, "answer": 0, "text": "the"}) + "\n" for q in QUESTIONS))
    kinds = {"tiny_choice": ("multiple_choice", CHOICE), "tiny_text": ("generate_until", TEXT)}
    for name, (kind, more) in kinds.items():
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, data=data, kind=kind, more=more))
    return tmp_path
