# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""perf.studies.quality's long parts from end to end, cut short: switches, chains and trees."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from perf.studies.quality import chains, cli, switches, trees

FOLLOWED = ("--quick", "--predictor", "followed", "--parts", "perplexity", "baselines")
OPTIONS = ("--chunk-sizes", "64", "--contexts", "256", "--thresholds", "0.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Steps of 4 tokens, two trees and the follower as it is, on 256 tokens of the project's own story."""
    out = tmp_path_factory.mktemp("long")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "NODES", (1, 4))
        patch.setattr(trees, "SHAPES", {16: trees.SHAPES[16]})
        patch.setattr(trees, "STEPS", 2)
        patch.setattr(switches, "SWITCHES", {"own passes": switches.SWITCHES["own passes"]})
        assert cli.main(["--quick", "--parts", *cli.LONG, "--out", str(out), *OPTIONS]) == 0
    ends = ["--quick", "--parts", "perplexity", "--out", str(out), *OPTIONS]
    assert cli.main(ends) == 0
    assert cli.main([*FOLLOWED, "--out", str(out), *OPTIONS]) == 0
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.model
def test_one_file_holds_both_predictors(folder):
    found = {row["predictor"]: row for row in rows(folder / "perplexity.csv")}
    (switched,) = rows(folder / "switches.csv")
    assert switched["hit_rate"] == found["followed"]["hit_rate"] != found["ends"]["hit_rate"]
    assert 128 <= float(switched["keys_read"]) < 160 and switched["bypassed"] == "0"
    methods = [(row["predictor"], row["method"]) for row in rows(folder / "baselines.csv")]
    assert methods == [("followed", "dynamic"), ("followed", "matched")]


@pytest.mark.model
def test_chains_of_one_are_plain_speculation_and_no_rule_but_the_joint_one_carries(folder):
    found = {(row["nodes"], row["rule"]): row for row in rows(folder / "chains.csv")}
    assert set(found) == {("1", "joint"), ("4", "every node"), ("4", "joint"), ("4", "each node")}
    (plain,) = (row for row in rows(folder / "perplexity.csv") if row["predictor"] == "ends")
    assert float(found["1", "joint"]["hit_rate"]) == pytest.approx(float(plain["hit_rate"]), abs=1e-3)
    assert found["4", "every node"]["carried"] == found["4", "each node"]["carried"] == "0"
    assert float(found["4", "every node"]["hit_rate"]) < float(found["4", "joint"]["hit_rate"])
    assert len(found["4", "joint"]["pass_rate_by_depth"].split()) == 4


@pytest.mark.model
def test_trees_emit_what_they_accept(folder):
    found = {row["rule"]: row for row in rows(folder / "trees.csv")}
    assert set(found) == {"every node", "joint", "likeliest path", "each node"}
    assert len({row["exact_tokens_per_step"] for row in found.values()}) == 1
    for row in found.values():
        assert row["steps"] == "2" and 1 <= float(row["tokens_per_step"]) <= 7
        assert 0 < float(row["hit_rate"]) < 1 and float(row["loss"]) >= 0
    assert float(found["every node"]["hit_rate"]) <= float(found["joint"]["hit_rate"])
