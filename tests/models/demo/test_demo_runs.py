# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's runs: streamed text, the JSON object, seeds, policies, piped prompts, drafts, and the trained model."""

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from models.llama31_8b.checkpoint import load as weights
from models.llama31_8b.demo import cli
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.demo.text import TextPrinter
from models.llama31_8b.reference.load import load_model
from tests.support.gguf_files import edit_json, write_hf_folder
from tests.support.machines import run_json

PROMPT = "the and the in 12 " * 12
# Speculation starts at 64 tokens with this chunk size.
SMALL = ("--chunk-size", "32", "--prompt", PROMPT, "--raw", "--max-new-tokens", "8")


def test_json_schema(model, capsys):
    got = run_json(capsys, model, *SMALL, "--threshold", "0.9")
    tokenizer = load_model(model).tokenizer
    assert got["model"] == model and got["finish_reason"] == "length"
    assert len(got["token_ids"]) == 8 and got["decode_tokens"] == 7
    assert got["text"] == tokenizer.decode(got["token_ids"])
    assert got["prefill_tokens"] == len(tokenizer.encode(PROMPT)) > 64
    assert got["prefill_tokens_per_s"] > 0 and got["decode_tokens_per_s"] > 0
    assert got["time_to_first_token_s"] > 0 and got["warm_up_tokens"] == got["warm_up_s"] == 0
    # Two layers, seven decode steps, all past 2S tokens.
    assert got["hits"] + got["misses"] == 14 and got["bypassed"] == got["bypassed_positions"] == 0
    assert got["hit_rate"] == pytest.approx(got["hits"] / 14)
    assert got["hit_rate"] == pytest.approx(sum(got["hit_rate_per_layer"]) / 2) and len(got["hit_rate_per_layer"]) == 2
    assert got["threads"] == torch.get_num_threads()
    assert got["options"] == {
        **DemoOptions().to_dict(),
        "device": "cpu",
        "attention": "alspec",
        "model": model,
        "json": True,
        "chunk_size": 32,
        "threshold": 0.9,
        "prompt": PROMPT,
        "chat_template": False,
        "max_new_tokens": 8,
    }
    assert {row["context"] for row in got["estimate"]} == {got["prefill_tokens"] + 8, 131072}


def test_text_is_streamed_before_the_report(model, capsys):
    drafted = [*SMALL, "--max-new-tokens", "20", "--draft", "ngram", "--threshold", "0.5"]
    expected = run_json(capsys, model, *drafted)["text"]
    assert cli.main(["--model", model, *drafted]) == 0
    out = capsys.readouterr().out
    assert out.startswith(expected)
    report = out[len(expected) :]
    for word in ("prefill", "decode", "hit rate by layer", "bypassed", "projected tokens/s", "131,072 tokens"):
        assert word in report, word
    assert "mean acceptance length" in report and "tokens per step" in report
    assert re.search(r"time per step +drafting \d+%, (calibrating \d+%, )?verifying \d+%", report)


def test_thresholds_between_exact_attention_and_every_guess(model, capsys):
    """Threshold 0 is exact, inf takes every guess; JSON has no number for inf."""
    exact = run_json(capsys, model, *SMALL, "--attention", "exact")
    assert exact["hit_rate"] is None and exact["estimate"] == [] and exact["hit_rate_per_layer"] == []
    zero, inf = (run_json(capsys, model, *SMALL, "--threshold", value) for value in ("0", "inf"))
    assert zero["hit_rate"] == 0.0 and zero["token_ids"] == exact["token_ids"]
    assert inf["hit_rate_per_layer"] == [1.0, 1.0] and inf["misses"] == 0 and inf["options"]["threshold"] == "inf"
    assert inf["token_ids"] != exact["token_ids"]


def test_several_texts_are_shown_whole_under_their_numbers(model, capsys, tmp_path):
    asked = ["--raw", "--max-new-tokens", "5"]
    for number, prompt in enumerate((PROMPT, "the end")):
        (tmp_path / str(number)).write_text(prompt)
        asked += ["--prompt-file", str(tmp_path / str(number))]
    texts = [text["text"] for text in run_json(capsys, model, *asked)["texts"]]
    assert cli.main(["--model", model, *asked]) == 0
    shown, report = capsys.readouterr().out.split("\nreport ──")
    lines = [f"── text {number} of 2 ──\n{text}" for number, text in enumerate(texts, 1)]
    assert shown == "".join(line + "\n" * (not line.endswith("\n")) for line in lines)
    assert re.search(r"decode .* tokens of 2 users", report)


def test_seeds(model, capsys):
    sampled = (*SMALL, "--temperature", "1.0", "--max-new-tokens", "16")
    first = run_json(capsys, model, *sampled, "--seed", "1")["token_ids"]
    assert run_json(capsys, model, *sampled, "--seed", "1")["token_ids"] == first
    assert run_json(capsys, model, *sampled, "--seed", "2")["token_ids"] != first
    greedy = run_json(capsys, model, *SMALL)["token_ids"]
    assert run_json(capsys, model, *SMALL, "--temperature", "5", "--top-k", "1")["token_ids"] == greedy


def test_prompt_from_a_pipe_and_from_a_file_are_the_same(model, capsys, monkeypatch, tmp_path):
    (tmp_path / "prompt.txt").write_text("the 🎉 end", encoding="utf-8")
    rest = ("--max-new-tokens", "4")
    from_file = run_json(capsys, model, "--prompt-file", str(tmp_path / "prompt.txt"), *rest)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the 🎉 end"))
    assert run_json(capsys, model, *rest)["token_ids"] == from_file["token_ids"]
    # In the chat template unless --raw is given.
    raw = run_json(capsys, model, "--prompt", "the 🎉 end", "--raw", *rest)
    tokenizer = load_model(model).tokenizer
    assert raw["prefill_tokens"] == len(tokenizer.encode("the 🎉 end"))
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "the 🎉 end"}])
    assert from_file["prefill_tokens"] == len(chat) > raw["prefill_tokens"]


def test_a_model_without_a_template_gets_plain_text(tmp_path, capsys):
    write_hf_folder(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", chat_template=None)
    assert cli.main(["--model", str(tmp_path), "--json", "--prompt", "the end", "--max-new-tokens", "2"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["prefill_tokens"] == 5
    assert "has no chat template: continuing the prompt as plain text" in shown.err


@pytest.mark.parametrize("terminal", [True, False])
def test_printer_shows_whole_characters_and_no_escape_sequences(model, terminal):
    loaded, stream = load_model(model), io.StringIO()
    stream.isatty = lambda: terminal
    printer, writes = TextPrinter(loaded, stream), []
    for token in loaded.tokenizer.encode("a🎉\x1b[2Jé👩‍🚀\n\tz"):
        before = len(stream.getvalue())
        printer.push(token)
        writes.append(stream.getvalue()[before:])
    printer.finish()
    assert not any("\ufffd" in piece for piece in writes) and "🎉" in writes
    escape = "" if terminal else "\x1b"
    assert stream.getvalue() == f"a🎉{escape}[2Jé👩‍🚀\n\tz\n"


def test_output_that_cannot_show_every_character(model, monkeypatch):
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    assert cli.main(["--model", model, *SMALL, "--threshold", "inf"]) == 0
    plain.flush()
    shown = plain.buffer.getvalue().decode("ascii")
    assert "100.0%" in shown and "  0 --------------------" in shown


def test_ctrl_c_in_a_text_still_gives_its_report(model, capsys, monkeypatch):
    def interrupt(self, token):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TextPrinter, "push", interrupt)
    assert cli.main(["--model", model, "--json", *SMALL]) == 130
    got = json.loads(capsys.readouterr().out)
    assert got["finish_reason"] == "interrupted" and len(got["token_ids"]) == 1
    assert cli.main(["--model", model, *SMALL]) == 130
    assert "report ──" in capsys.readouterr().out


def test_a_second_ctrl_c_ends_at_once_and_quietly(model):
    """In a process of its own: the handlers of Python's end count too."""
    script = f"""
import os, signal, sys
from models.llama31_8b.demo import cli
from models.llama31_8b.demo.text import TextPrinter
def twice(self, token):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
TextPrinter.push = twice
code = cli.main({["--model", model, *SMALL]!r})
os.kill(os.getpid(), signal.SIGINT)
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 130 and "Traceback" not in done.stderr
    assert done.stderr.endswith("interrupted\n")


def test_a_reader_that_leaves_ends_the_command_quietly(model):
    command = [sys.executable, "-m", "models.llama31_8b.demo", "--model", model, *SMALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(300) == 0 and "Traceback" not in errors


@pytest.mark.model
def test_the_default_run_speculates(capsys):
    """The sample prompt on the trained model: two chunks long, hits in some layers, misses in others."""
    sample = Path(cli.__file__).with_name("sample_prompt.txt")
    assert cli.main(["--prompt-file", str(sample), "--json", "--max-new-tokens", "12"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["model"] == weights.DEFAULT_MODEL_NAME
    assert 700 <= got["prefill_tokens"] <= 950 and got["bypassed"] == 0
    assert 0.05 < got["hit_rate"] < 0.95 and len(got["hit_rate_per_layer"]) == 30
    assert max(got["hit_rate_per_layer"]) > 0.5 and math.isclose(got["hits"] + got["misses"], 30 * 11)
    assert got["text"].isprintable() and len(got["text"].split()) > 3


def run_drafted(capsys, model, *arguments):
    speculates = () if "exact" in arguments else ("--threshold", "0.5")
    return run_json(capsys, model, *SMALL, "--max-new-tokens", "20", *speculates, *arguments)


DRAFTS = {
    "self": ["--draft", "self"],
    "self by default": ["--draft", "--draft-length", "3"],
    "self implied": ["--tree", "3x2"],
    "grown": ["--tree", "auto"],
    "ngram": ["--draft", "ngram"],
    "ngram tree": ["--draft", "ngram", "--tree", "4x2"],
}


@pytest.mark.parametrize("attention", ["exact", "alspec"])
@pytest.mark.parametrize("name", DRAFTS)
def test_the_text_is_the_plain_one(model, capsys, attention, name):
    plain = run_drafted(capsys, model, "--attention", attention)
    drafted = run_drafted(capsys, model, "--attention", attention, *DRAFTS[name])
    assert drafted["token_ids"] == plain["token_ids"]
    assert plain["speculation"] is None
    figures = drafted["speculation"]
    assert figures["drafter"] == ("ngram" if "ngram" in DRAFTS[name] else "self")
    assert figures["num_output_tokens"] == 19
    assert figures["num_drafts"] > 0 and figures["mean_acceptance_length"] >= 1
    assert sum(figures["acceptance_histogram"]) == figures["num_drafts"]
    if attention == "alspec":
        assert drafted["hits"] + drafted["misses"] == plain["hits"] + plain["misses"] > 0


def test_a_draft_model_by_path(model, capsys):
    exact = ("--attention", "exact")
    plain = run_drafted(capsys, model, *exact)
    drafted = run_drafted(capsys, model, *exact, "--draft", model, "--draft-length", "3")
    assert drafted["token_ids"] == plain["token_ids"]
    figures = drafted["speculation"]
    assert figures["draft_acceptance_rate"] > 0.9, "the draft model is the target itself"
    assert 0 < figures["calibration_seconds"] < figures["draft_seconds"]
