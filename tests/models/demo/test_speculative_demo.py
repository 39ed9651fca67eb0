# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token-level speculation from the demo's command line: same text, metrics, clear refusals."""

import json
import re

import pytest

from models.llama31_8b.demo import cli
from models.llama31_8b.demo.backends.n150 import chip_tree_nodes
from models.llama31_8b.demo.options import parse
from tests.support.gguf_files import untied, write_reciting_folder

PROMPT = "the and the in 12 " * 12
SMALL = ("--chunk-size", "32", "--prompt", PROMPT, "--raw", "--max-new-tokens", "20")


def run_json(capsys, model, *arguments):
    # Guesses of trees read the ends, so those of single tokens must.
    speculates = () if "exact" in arguments else ("--threshold", "0.5", "--predictor", "ends")
    assert cli.main(["--model", model, "--json", *SMALL, *speculates, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


BY_BUDGET = ("--predictor", "budget", "--threshold", "0")
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


@pytest.mark.parametrize("name", ["self", "grown", "ngram tree"])
def test_trees_are_guessed_by_a_budget(model, capsys, name):
    """At threshold 0 the text is the plain one; above it more guesses hit than by the ends."""
    plain, never = (
        run_json(capsys, model, *given) for given in (["--attention", "exact"], [*BY_BUDGET, *DRAFTS[name]])
    )
    assert never["token_ids"] == plain["token_ids"] and never["hits"] == 0 < never["misses"]
    runs = {
        kind: run_json(capsys, model, "--threshold", "0.05", "--predictor", kind, *DRAFTS[name])
        for kind in ("ends", "budget")
    }
    assert runs["budget"]["options"]["predictor"] == "budget"
    rates = {kind: run["hits"] / (run["hits"] + run["misses"]) for kind, run in runs.items()}
    assert rates["budget"] > rates["ends"], runs


@pytest.mark.parametrize("name", ["self", "grown", "ngram tree", "adaptive"])
def test_texts_side_by_side_are_the_plain_ones(model, capsys, name):
    """Prompts have three lengths, and attention speculates too."""
    more = ("--prompt", "the end " * 9, "--prompt", "12 in")
    plain, drafted = (run_json(capsys, model, *more, *drafts) for drafts in ([], DRAFTS[name]))
    assert drafted["texts"] == plain["texts"] and len(plain["texts"]) == 3
    assert drafted["speculation"]["num_output_tokens"] == 3 * 19
    # A tree starts to speculate where its root does, so only the sum of the counts is that of single tokens.
    counted = [sum(run[count] for count in ("hits", "misses", "bypassed")) for run in (plain, drafted)]
    assert counted == [2 * 3 * 19] * 2 and drafted["hits"] > 0


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


RECITED = ["the", "<|im_start|>", "an", " the", "in"]  # and again: "thean thein"


@pytest.mark.parametrize("drafts", [[], DRAFTS["ngram"], DRAFTS["self implied"]], ids=["plain", "ngram", "self tree"])
@pytest.mark.parametrize(
    "stop, tokens",
    [("<|im_start|>", 2), ("<|im_start|>an", 3), ("he<|im_start|>a", 3), ("n thein", 5), ("inthe<|", 7), ("thean", 12)],
)
def test_a_special_token_stops_a_text_and_text_across_it_does_not(tmp_path, capsys, stop, tokens, drafts):
    """The last one is in the text as it is shown, but not in what the model wrote."""
    ids = write_reciting_folder(tmp_path / "m", RECITED, untied(eos_token_ids=()))
    given = ["--prompt", "in", "--raw", "--max-new-tokens", "12", "--stop", "#", "--stop", stop, *drafts]
    assert cli.main(["--model", str(tmp_path / "m"), "--device", "cpu", "--json", *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["token_ids"] == (ids * 3)[:tokens]
    assert found["finish_reason"] == ("length" if stop == "thean" else "stop")
    assert "thean thein".startswith(found["text"][:11])


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
