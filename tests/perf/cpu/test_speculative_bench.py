# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The speculation benchmark on a tiny model."""

import json

import pytest

from perf.cpu import bench_speculation
from tests.support.gguf_files import untied, write_hf_folder

DRAFTERS = ["ngram chain 8", "self chain 4", "model chain 4"] + [f"model chain 4 fuzzy {n}" for n in (2, 3)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_hf_folder(folder, untied(num_hidden_layers=5, max_position_embeddings=2048))
    return str(folder)


def test_the_report_of_a_small_run(model, tmp_path, capsys):
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps({"first": "the and the in 12 " * 12, "second": "in the 1 and 2 " * 10}))
    arguments = ["--model", model, "--prompt-file", str(prompts), "--tokens", "6", "--window", "32"]
    data = tmp_path / "speculation.json"
    assert bench_speculation.main([*arguments, "--json", "--only", *DRAFTERS[:3], "--write", str(data)]) == 0
    report = json.loads(capsys.readouterr().out)
    names = [row["drafter"] for row in report["drafters"]]
    assert set(DRAFTERS) <= set(names)
    for row in report["drafters"]:
        assert row["texts_equal_plain"] == row["texts"] == 2
        assert set(row["by_prompt"]) == set(row["wall_clock_ratio_by_prompt"]) == {"first", "second"}
        assert 1 <= row["tokens_per_target_step"] <= 9 and 0 <= row["accepted_share_of_depth"] <= 1
    rows = {row["drafter"]: row for row in report["drafters"]}
    assert rows["model chain 4"]["accepted_share_of_depth"] > 0.7, "the target drafting for itself, exactly"
    for fuzzy in report["fuzzy"]:
        base = rows[fuzzy["drafter"]]["accepted_share_of_depth"]
        mine = rows[f"{fuzzy['drafter']} fuzzy {fuzzy['size']}"]["accepted_share_of_depth"]
        assert fuzzy["loss"] == pytest.approx(base - mine)
    assert report["cost_of_rows"]["1"] == 1.0
    written = json.loads(data.read_text())
    assert (
        written["command"].startswith("python -m perf.cpu.bench_speculation --model")
        and "--write" not in written["command"]
    )
    assert [row["drafter"] for row in written["rows"]] == names
    assert bench_speculation.main([*arguments, "--only", "ngram chain"]) == 0
    text = capsys.readouterr().out
    assert "ngram chain 8" in text


def test_bad_requests_are_refused(model, capsys):
    with pytest.raises(SystemExit):
        bench_speculation.main(["--model", model, "--tokens", "1"])
    assert "must be at least 2, got 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench_speculation.main(["--model", model, "--only", "magic"])
    assert "--only magic leaves no drafter" in capsys.readouterr().err
