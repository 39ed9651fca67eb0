# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec plan`: the layouts of a machine's chips, and what it refuses."""

from __future__ import annotations

import json

import pytest

from models.llama31_8b.demo import plan
from models.llama31_8b.latency import layouts
from runtime_patches.board import environment as driver


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


def test_other_hits_and_the_other_guess(capsys):
    assert plan.main(["--context", "65536", "--chips", "2", "--predictor", "ends", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["hits"] == 0.19 and found["layouts"][0]["mesh"] == "1x2"
    gains = []
    for hits in ("0.9", "1"):
        assert plan.main(["--context", "131072", "--chips", "8", "--hits", hits, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["layouts"]
        gains += [row["over_tp"] for row in rows if row["mesh"] == "2x4"]
    assert gains[0] < gains[1] < 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--context", "0", "--chips", "2"], "--context must be at least 1, got 0"),
        (["--context", "131073", "--chips", "2"], "--context must be a whole number in 1024..131072, got 131073"),
        (["--context", "4096", "--chips", "0"], "--chips must be at least 1, got 0"),
        (["--context", "4096", "--chips", "2", "--hits", "1.5"], "--hits must be 0 to 1, got 1.5"),
        (["--context", "4096"], "no Tenstorrent board in "),
    ],
)
def test_what_is_refused(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.setattr(driver, "BOARDS", tmp_path / "none")
    assert plan.main(arguments) == 2
    assert words in capsys.readouterr().err
