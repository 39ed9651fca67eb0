# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Requests the demo cannot meet: one line on standard error, exit code 2, no model loaded for bad values."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from models.llama31_8b.demo.cli import main, parse
from tests.support.gguf_files import TINY, write_gguf, write_hf_folder


@pytest.fixture
def no_model(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("the model was loaded before the options were checked")

    monkeypatch.setattr("models.llama31_8b.checkpoint.load.load_model", refuse)


def fails(capsys, *arguments: str) -> str:
    """Run; check exit code 2, one line on standard error, nothing on standard output. Returns the line."""
    try:
        code = main(list(arguments))
    except SystemExit as stop:
        code = stop.code
    shown = capsys.readouterr()
    lines = [line for line in shown.err.splitlines() if "error:" in line]
    assert code == 2 and not shown.out and len(lines) == 1, shown
    assert shown.err.endswith(lines[0] + "\n") and lines[0].startswith("llama-alspec: error: ")
    return lines[0].removeprefix("llama-alspec: error: ")


NONSENSE = {
    "--temperature -1": "temperature must be finite and at least 0, got -1.0",
    "--temperature nan": "temperature must be finite and at least 0, got nan",
    "--temperature hot": "argument --temperature: invalid float value: 'hot'",
    "--top-p 0": "top_p must be in (0, 1], got 0.0",
    "--top-p 1.5": "top_p must be in (0, 1], got 1.5",
    "--top-k -3": "top_k must be an integer of at least 0 (0 = off), got -3",
    "--top-k 1.5": "argument --top-k: invalid int value: '1.5'",
    "--seed -1": "seed must be an integer of at least 0, got -1",
    "--seed 99999999999999999999": "seed must be below 2**63, got 99999999999999999999",
    "--max-new-tokens 0": "max_new_tokens must be at least 1, got 0",
    "--max-context -5": "max_context must be at least 1, got -5",
    "--threshold -0.1": "threshold must be a number >= 0 (inf accepts every guess), got -0.1",
    "--threshold nan": "threshold must be a number >= 0 (inf accepts every guess), got nan",
    "--chunk-size 0": "chunk_size must be a positive integer, got 0",
    "--chunk-size 100": "chunk_size 100 is not a multiple of tail_alignment 32",
    "--attention fast": "no attention 'fast'; available: exact, sink, static, alspec",
    "--device n300": "no device 'n300'; available: ",
    "--attention static --static-layers 3-1": "--static-layers: '3-1' is not a range of layers",
    "--attention static --static-layers 1,,2": "--static-layers takes layers such as 0,4,10-12; got '1,,2'",
    "--attention static --static-layers all": "--static-layers takes layers such as 0,4,10-12; got 'all'",
    "--attention static --static-layers auto": "--static-layers takes layers such as 0,4,10-12; got 'auto'",
    "--attention static --device cpu": "--attention static needs --static-layers, such as 0,4,10-12",
    "--tree 99x99": "--tree 99x99: a draft of 99 tokens needs 100 rows with its root, a verification pass has 32",
    "--draft-length 32": "--draft-length 32: a draft of 32 tokens needs 33 rows with its root",
    "--stop \udcff": "--stop is not UTF-8 text: byte 0xff after 0 characters",
    "--static-layers 1 --device cpu": "--static-layers needs --attention static, got --attention alspec",
    "--prompt-file x": "argument --prompt-file: not allowed with argument --prompt",
    "--speed 9": "unrecognized arguments: --speed 9",
    "--temp 1": "unrecognized arguments: --temp 1",
}


@pytest.mark.parametrize("arguments", NONSENSE)
def test_nonsense_values(arguments, capsys, no_model):
    assert fails(capsys, "--prompt", "hello", *arguments.split()).startswith(NONSENSE[arguments])


CHANGES_NOTHING = {
    "--draft none --no-adapt": "--no-adapt needs a drafter, got --draft none",
    "--attention exact --threshold 0.3": "--threshold is what --attention alspec accepts a guess by; this run has "
    "exact attention",
    "--attention exact --threshold 0.10": "--threshold is what --attention alspec accepts a guess by",
    "--attention static --static-layers 0 --threshold 0.3": "--threshold is what --attention alspec accepts",
    "--top-k 5": "--top-k needs --temperature above 0",
    "--top-p 0.5": "--top-p needs --temperature above 0",
    "--seed 3": "--seed needs --temperature above 0",
}


@pytest.mark.parametrize("arguments", CHANGES_NOTHING)
def test_options_that_would_change_nothing(arguments, capsys, no_model):
    line = fails(capsys, "--device", "cpu", "--prompt", "hello", *arguments.split())
    assert line.startswith(CHANGES_NOTHING[arguments])


def test_an_option_of_drafting_alone_means_self(no_model):
    assert parse(["--draft-length", "3"]).drafter == "self"


def test_a_byte_order_mark_is_no_part_of_the_prompt(tmp_path):
    (tmp_path / "prompt.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert parse(["--prompt-file", str(tmp_path / "prompt.txt")]).prompt_texts() == ("hello",)


def test_empty_prompts(tmp_path, capsys, no_model, monkeypatch):
    assert fails(capsys, "--prompt", "  \n ") == "the prompt is empty"
    file = tmp_path / "prompt.txt"
    file.write_text("\n")
    assert fails(capsys, "--prompt-file", str(file)) == f"the file {file} is empty"
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert fails(capsys).startswith("no prompt: give --prompt or --prompt-file, pipe text in, or run in a terminal")


def test_prompt_files_that_cannot_be_read(tmp_path, capsys, no_model):
    absent = tmp_path / "absent.txt"
    assert fails(capsys, "--prompt-file", str(absent)) == f"cannot read the file {absent}: No such file or directory"
    assert "Is a directory" in fails(capsys, "--prompt-file", str(tmp_path))
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    assert "latin.txt is not UTF-8 text" in fails(capsys, "--prompt-file", str(tmp_path / "latin.txt"))


def test_prompts_that_are_not_utf8(capsys, no_model, monkeypatch):
    """Python hands over what it cannot decode, of an argument and of standard input by the C locale, as surrogates."""
    assert fails(capsys, "--prompt", "caf\udce9") == "the prompt is not UTF-8 text: byte 0xe9 after 3 characters"
    second = fails(capsys, "--prompt", "x", "--prompt", "\udcff")
    assert second == "prompt 2 is not UTF-8 text: byte 0xff after 0 characters"
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\udcff"))
    assert fails(capsys) == "standard input is not UTF-8 text: byte 0xff after 1 characters"


def test_json_needs_a_prompt(capsys, no_model, monkeypatch):
    terminal = io.StringIO("")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    assert fails(capsys, "--json").startswith("--json needs a prompt")


def test_models_that_cannot_be_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "whole.gguf")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "whole.gguf").read_bytes()[:-1000])
    write_gguf(tmp_path / "qwen.gguf", architecture="qwen2")
    write_hf_folder(tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    write_hf_folder(tmp_path / "foreign")
    (tmp_path / "foreign" / "config.json").write_text(
        json.dumps({**TINY.to_hf_dict(), "architectures": ["GemmaForCausalLM"]})
    )
    for model, message in {
        "absent": "no model {}: neither a folder, nor a .gguf file",
        "absent.gguf": "no GGUF file {}",
        "cut.gguf": "{} is a truncated or damaged GGUF file",
        "qwen.gguf": "{}: GGUF architecture 'qwen2' is not supported",
        "cut": "{}/model.safetensors is a truncated or damaged safetensors file",
        "foreign": "{}/config.json: architecture 'GemmaForCausalLM' is not supported",
    }.items():
        path = str(tmp_path / model)
        assert fails(capsys, "--prompt", "hello", "--model", path).startswith(message.format(path)), model


def test_requests_the_model_cannot_meet(tmp_path, capsys):
    write_hf_folder(tmp_path)
    model = ("--model", str(tmp_path))
    long = fails(capsys, *model, "--prompt", "x" * 3000, "--raw")
    assert long == f"the prompt has 3000 tokens, the context of {tmp_path} is 1024"
    limited = fails(capsys, *model, "--prompt", "y" * 50, "--raw", "--max-context", "40")
    assert limited == f"the prompt has 50 tokens, the context of {tmp_path} is 40"
    above = fails(capsys, *model, "--prompt", "y", "--max-context", "4000")
    assert above == f"max_context must be between 1 and 1024 for {tmp_path}, got 4000"
    layers = fails(capsys, *model, "--prompt", "y", "--attention", "static", "--static-layers", "0,2")
    assert layers == f"--static-layers names layer 2, but {tmp_path} has layers 0 to 1"


def test_the_commands_themselves(tmp_path):
    """`python -m` and the console script's function, in processes of their own."""
    bad = subprocess.run(
        [sys.executable, "-m", "models.llama31_8b.demo", "--prompt", "x", "--top-p", "7"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (bad.returncode, bad.stdout, bad.stderr) == (
        2,
        "",
        "llama-alspec: error: top_p must be in (0, 1], got 7.0\n",
    )
    # Torch takes a second to import: what is asked or refused by the options alone does not wait for it.
    script = (
        "import sys\nfrom models.llama31_8b.demo.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
    )
    help_text = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, timeout=300)
    assert help_text.returncode == 0
    for word in ("--prompt-file", "--static-layers", "HF_MODEL", "--json", "attention of decode steps"):
        assert word in help_text.stdout


@pytest.mark.parametrize("old, new", [("simple", "interleaved"), ("fast", "sharded")])
def test_the_former_name_of_the_decode_sharding_works_and_says_so(capsys, old, new):
    options = parse(["--plan", old, "--prompt", "x"])
    assert options.decode_sharding == new and "decode_sharding" in options.given
    assert capsys.readouterr().err.splitlines() == [
        f"--plan {old} is now --decode-sharding {new}; the old name and values go away after this release"
    ]
    assert parse(["--decode-sharding", new]).decode_sharding == new and not capsys.readouterr().err
