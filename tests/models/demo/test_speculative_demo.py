# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token-level speculation from the demo's command line: same text, metrics, clear refusals."""

import json
import re

import pytest

from models.llama31_8b.demo import cli
from models.llama31_8b.demo.backends.n150 import chip_tree_nodes
from models.llama31_8b.demo.options import parse

PROMPT = "the and the in 12 " * 12
SMALL = ("--chunk-size", "32", "--prompt", PROMPT, "--raw", "--max-new-tokens", "20")


def run_json(capsys, model, *arguments):
    speculates = () if "exact" in arguments else ("--threshold", "0.5")
    assert cli.main(["--model", model, "--json", *SMALL, *speculates, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


DRAFTS = {
    "self": ["--draft", "self", "--no-adapt"],
    "self by default": ["--draft", "--no-adapt", "--draft-length", "3"],
    "self implied": ["--tree", "3x2", "--no-adapt"],
    "grown": ["--tree", "auto", "--no-adapt"],
    "ngram": ["--draft", "ngram", "--no-adapt"],
    "ngram tree": ["--draft", "ngram", "--tree", "4x2", "--no-adapt"],
    "adaptive": ["--draft", "ngram", "--draft-length", "6"],
}


@pytest.mark.parametrize("attention", ["exact", "alspec"])
@pytest.mark.parametrize("name", DRAFTS)
def test_the_text_is_the_plain_one(model, capsys, attention, name):
    plain = run_json(capsys, model, "--attention", attention)
    drafted = run_json(capsys, model, "--attention", attention, *DRAFTS[name])
    assert drafted["token_ids"] == plain["token_ids"]
    assert plain["speculation"] is None
    figures = drafted["speculation"]
    assert figures["drafter"] == ("ngram" if "ngram" in DRAFTS[name] else "self")
    assert figures["num_output_tokens"] == 19
    if name != "adaptive":
        assert figures["num_drafts"] > 0 and figures["mean_acceptance_length"] >= 1
        assert sum(figures["acceptance_histogram"]) == figures["num_drafts"]
    if attention == "alspec":
        assert drafted["hits"] + drafted["misses"] == plain["hits"] + plain["misses"] > 0


def test_a_draft_model_by_path(model, capsys):
    exact = ("--attention", "exact")
    plain = run_json(capsys, model, *exact)
    drafted = run_json(capsys, model, *exact, "--draft", model, "--draft-length", "3", "--no-adapt")
    assert drafted["token_ids"] == plain["token_ids"]
    figures = drafted["speculation"]
    assert figures["draft_acceptance_rate"] > 0.9, "the draft model is the target itself"
    assert 0 < figures["calibration_seconds"] < figures["draft_seconds"]


def test_a_tree_has_one_shape_on_all_backends(model, capsys):
    """--tree 4x2 is 9 nodes, the root's included, for a draft model as on chips, where a full tree has 31."""
    options = parse(["--prompt", "x", "--draft", model, "--tree", "4x2", "--attention", "exact"])
    assert chip_tree_nodes(options) == options.draft_shape().budget == 9
    drafted = run_json(capsys, model, "--attention", "exact", "--draft", model, "--tree", "4x2", "--no-adapt")
    figures = drafted["speculation"]
    assert figures["num_draft_tokens"] <= 8 * figures["num_drafts"] and figures["num_drafts"] > 1


def test_the_report_shows_the_figures(model, capsys):
    assert cli.main(["--model", model, *SMALL, "--draft", "ngram", "--no-adapt", "--threshold", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "mean acceptance length" in out and "tokens per step" in out
    assert re.search(r"hit rate of steps +\d+\.\d%, of their first tokens without drafts \d+\.\d%", out)
    told = " ".join(out.split())
    alone, tokens, both = (
        float(re.search(pattern, told)[1])
        for pattern in (r"Attention alone: (\S+)x", r"Drafts alone: (\S+) tokens per step", r"Both: (\S+)x")
    )
    assert alone >= 1 and 1 < tokens <= both
    assert re.search(r"time per step +drafting \d+%, (calibrating \d+%, )?verifying \d+%", out)


@pytest.mark.model
def test_the_trained_model_gains_from_look_up(capsys, monkeypatch):
    """A text that repeats its context: fewer target steps than tokens, and the text of plain decoding."""
    monkeypatch.delenv("HF_MODEL", raising=False)
    lines = "The ferry leaves Ansell at seven. The ferry leaves Halloran at nine. "
    arguments = ["--prompt", lines * 4, "--raw", "--json", "--max-new-tokens", "16"]
    assert cli.main(arguments) == 0
    plain = json.loads(capsys.readouterr().out)
    assert cli.main([*arguments, "--draft", "ngram", "--no-adapt"]) == 0
    drafted = json.loads(capsys.readouterr().out)
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["speculation"]["tokens_per_target_step"] > 1.2
