# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec hits FILE` and `llama-alspec plan`: what they report, and what they refuse."""

import json

import pytest

from models.llama31_8b.demo import hits, plan
from models.llama31_8b.latency import layouts
from runtime_patches.board import environment as driver

TEXT = "the and the in 12 " * 30


@pytest.fixture
def file(tmp_path):
    (tmp_path / "mine.txt").write_text(TEXT, encoding="utf-8")
    return str(tmp_path / "mine.txt")


def test_the_command_reports_a_file(model, file, capsys):
    arguments = [file, "--model", model, "--chunk-size", "32", "--threshold", "0.9", "--tokens", "150"]
    assert hits.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == 150 < found["tokens_of_file"] and found["bypassed_positions"] == 63
    assert found["hits"] + found["misses"] == 2 * (150 - 63) and len(found["hit_rate_per_layer"]) == 2
    assert hits.main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"150 of {found['tokens_of_file']} tokens" in shown and "hit rate by layer" in shown
    assert f"hit rate {found['hit_rate']:.1%} ({found['hits']} hits, {found['misses']} misses" in shown
    assert "over the fastest mesh of one row" in shown


def test_a_text_that_is_too_short_to_speculate(model, file, capsys):
    assert hits.main([file, "--model", model, "--tokens", "200"]) == 0
    assert "No guess was verified: speculation starts at 256 tokens, 2S." in capsys.readouterr().out


@pytest.mark.parametrize(
    "change, words",
    [
        (["--tokens", "0"], "--tokens must be at least 1, got 0"),
        (["--threshold", "-1"], "--threshold must be 0 or more"),
        (["--model", "absent"], "no model absent"),
        (["--chunk-size", "5"], "got 5"),
        (["--budget", "0.9", "--predictor", "ends"], "--budget needs --predictor budget, got --predictor ends"),
        (["--budget", "1"], "--budget must be a number between 0 and 1, got 1.0"),
    ],
)
def test_bad_requests_are_one_line(model, file, capsys, change, words):
    assert hits.main([file, "--model", model, *change]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("llama-alspec hits: error: ") and words in shown.err and not shown.out


def test_the_table_and_the_object_show_the_layouts_in_order(capsys):
    asked = ["--context", "65536", "--chips", "8"]
    assert plan.main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = layouts(8, 65536)
    assert [row["mesh"] for row in found["layouts"]] == [str(one) for one in expected] and found["hits"] == 0.95
    tp = max(one.tokens_per_s for one in expected if one.rows == 1)
    for row, one in zip(found["layouts"], expected, strict=True):
        assert row["over_tp"] == pytest.approx(one.tokens_per_s / tp)
        assert row["attention"] == ("alspec" if one.rows == 2 else "exact")
    assert plan.main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [str(one) for one in expected]
    assert lines[2].split()[1:] == ["exact", f"{expected[0].tokens_per_s:.1f}", "1.00x"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--context", "0", "--chips", "2"], "--context must be at least 1, got 0"),
        (["--context", "131073", "--chips", "2"], "--context must be a whole number in 1024..131072, got 131073"),
        (["--context", "4096", "--chips", "0"], "--chips must be at least 1, got 0"),
        (["--context", "4096"], "no Tenstorrent board in "),
    ],
)
def test_what_is_refused(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.setattr(driver, "BOARDS", tmp_path / "none")
    assert plan.main(arguments) == 2
    assert words in capsys.readouterr().err
