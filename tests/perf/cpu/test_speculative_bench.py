# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The speculation benchmark on a tiny model, and its projection to N150 chips worked out from the tables."""

import json

import pytest

from perf.cpu import bench_speculation
from perf.projections.estimator.latency import estimate
from perf.projections.estimator.tables import chip_table
from perf.projections.speculation_projection import attention_share, fuzzy_drafting_speedup, project
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
    plot = tmp_path / "plots" / "speculation.png"
    assert bench_speculation.main([*arguments, "--json", "--only", *DRAFTERS[:3], "--plot", str(plot)]) == 0
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
    assert {row["drafter"].split()[0] for row in report["device"]} == {"ngram", "self"}
    assert report["cost_of_rows"]["1"] == 1.0 and plot.stat().st_size > 10_000
    assert bench_speculation.main([*arguments, "--only", "ngram chain"]) == 0
    text = capsys.readouterr().out
    assert "ngram chain 8" in text and "Projection, not measurement" in text


def test_projection_by_hand():
    plain = estimate(131072, None, 8, "tp").token_latency_ns
    assert project("ngram", 8, 2.5, 131072, 8).gain == pytest.approx(2.5)
    mine = project("self", 4, 3.0, 131072, 8)
    assert mine.plain_ns == plain and mine.gain == pytest.approx(3 * plain / (plain + 4 * mine.level_ns))
    table = chip_table(8)
    floor = table.fixed_ns + 32 * table.per_layer_ns
    assert floor < mine.level_ns < plain, "a drafted level reads all weights, but not the whole cache"
    with pytest.raises(ValueError, match="model drafter"):
        project("model", 4, 3.0, 131072, 8)


def test_fuzzy_projection_by_hand():
    attention, rest = attention_share()
    assert attention + rest == chip_table(1).per_layer_ns + chip_table(1).flash_decode_ns
    fixed = chip_table(1).fixed_ns
    sequential = fixed + 32 * (attention + rest)
    # N = 4: 0, 1-3, six groups of four, 28-30, 31: ten stages.
    fuzzy = fixed + 10 * attention + 32 * rest
    assert fuzzy_drafting_speedup(4, 5) == pytest.approx(5 * sequential / (sequential + 4 * fuzzy))
    assert fuzzy_drafting_speedup(1, 5) == 1.0
    assert [fuzzy_drafting_speedup(n, 4) for n in (2, 3, 4, 5)] == sorted(
        fuzzy_drafting_speedup(n, 4) for n in (2, 3, 4, 5)
    )


def test_bad_requests_are_refused(model, capsys):
    with pytest.raises(SystemExit):
        bench_speculation.main(["--model", model, "--tokens", "1"])
    assert "must be at least 2, got 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench_speculation.main(["--model", model, "--only", "magic"])
    assert "--only magic leaves no drafter" in capsys.readouterr().err
