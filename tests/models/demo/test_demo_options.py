# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Requests the demo cannot meet: one line on standard error, exit code 2, no model loaded for bad values."""

import io
import subprocess
import sys

import pytest

from models.llama31_8b.demo.__main__ import main as command
from models.llama31_8b.demo.options import DemoOptions, flag_of, parse, table
from tests.support.gguf_files import edit_json, write_hf_folder
from tests.support.machines import refused


@pytest.fixture
def no_model(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("the model was loaded before the options were checked")

    monkeypatch.setattr("models.llama31_8b.reference.load.load_model", refuse)


# Arguments on the CPU, and what the line must hold: the option or parameter, and the value found.
REFUSED = [
    ("--temperature -1", "temperature", "-1.0"),
    ("--top-p 0", "top_p", "0.0"),
    ("--top-k -3", "top_k", "-3"),
    ("--seed -1", "seed", "-1"),
    ("--max-new-tokens 0", "--max-new-tokens", "0"),
    ("--max-context -5", "--max-context", "-5"),
    ("--layers 0", "--layers", "0"),
    ("--threshold -0.1", "--threshold", "-0.1"),
    ("--chunk-size 100", "--chunk-size", "100"),
    (f"--chunk-size {32 * 10**19}", "--chunk-size", f"{32 * 10**19}"),
    ("--predictor budget --budget 1.5", "--budget", "1.5"),
    ("--attention fast", "--attention: no 'fast'", "exact, alspec"),
    ("--device n300", "--device: no 'n300'", "auto, cpu, sim, n150"),
    ("--mesh 3", "--mesh", "'3'"),
    ("--tree 4by2", "--tree 4by2", "DEPTHxWIDTH"),
    ("--draft-length 32", "--draft-length 32", "33 rows"),
    ("--fuzzy 0", "--fuzzy", "got 0"),
    ("--draft none --tree 4x2", "--tree", "--draft none"),
    ("--draft ngram --fuzzy 2", "--fuzzy", "--draft ngram"),
    ("--draft ngram --tree auto", "--tree auto", "--draft ngram"),
    ("--stop \udcff", "--stop", "0xff"),
    ("--stop=", "--stop", "one character"),
    ("--prompt-file x", "--prompt-file", "--prompt"),
    ("--temp 1", "unrecognized arguments", "--temp 1"),
    # What would change nothing.
    ("--attention exact --threshold 0.10", "--threshold", "--attention exact"),
    ("--top-k 5", "--top-k", "--temperature"),
    # What is for chips.
    ("--mesh 1x2", "--mesh", "--device cpu"),
    ("--decode-sharding sharded", "--decode-sharding", "--device cpu"),
]


@pytest.mark.parametrize("arguments, option, value", REFUSED, ids=[line[0] for line in REFUSED])
def test_what_is_refused_names_option_and_value(arguments, option, value, capsys, no_model):
    line = refused(capsys, "--device", "cpu", *arguments.split())
    assert option in line and value in line, line


def test_an_option_of_drafting_alone_means_self():
    assert parse(["--draft-length", "3"]).drafter == "self" and parse(["--draft"]).drafter == "self"
    assert parse(["--draft", "none"]).drafter == parse([]).drafter == "none"


def test_the_command_line_of_options_gives_them_again():
    given = ["--prompt", "-x y", "--prompt=b", "--raw", "--draft", "--threshold", "0.10", "--stop=\n"]
    options = parse(given)
    again = parse(options.arguments())
    assert again == options and again.given == options.given and "threshold" in options.given
    assert {flag_of(name) for name in ("chat_template", "top_k")} == {"--raw", "--top-k"}
    assert len(table()) <= 32 and DemoOptions().arguments() == []


def test_empty_prompts(tmp_path, capsys, no_model, monkeypatch):
    assert refused(capsys, "--prompt", "  \n ", prompt=None) == "the prompt is empty"
    assert refused(capsys, "--prompt", "a", "--prompt", " ", prompt=None) == "prompt 2 is empty"
    assert "got 9" in refused(capsys, *["--prompt", "a"] * 9, prompt=None)
    file = tmp_path / "prompt.txt"
    file.write_text("\n")
    assert f"{file} is empty" in refused(capsys, "--prompt-file", str(file), prompt=None)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    told = "no prompt: give --prompt or --prompt-file, pipe text in, or run in a terminal"
    assert refused(capsys, prompt=None).startswith(told)


def test_prompt_files(tmp_path, capsys, no_model):
    (tmp_path / "prompt.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert parse(["--prompt-file", str(tmp_path / "prompt.txt")]).prompt_texts() == ("hello",)
    absent = tmp_path / "absent.txt"
    assert f"{absent}: No such file" in refused(capsys, "--prompt-file", str(absent), prompt=None)
    assert "Is a directory" in refused(capsys, "--prompt-file", str(tmp_path), prompt=None)
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    assert "latin.txt is not UTF-8 text" in refused(capsys, "--prompt-file", str(tmp_path / "latin.txt"), prompt=None)


def test_a_conversation_gives_no_object(capsys, no_model, terminal):
    terminal()
    assert refused(capsys, "--device", "cpu", "--json", prompt=None).startswith("--json needs a prompt")


def test_requests_the_model_cannot_meet(tmp_path, capsys):
    write_hf_folder(tmp_path)
    for arguments, figures in (
        (("--prompt", "x" * 3000, "--raw"), ("3000 tokens", "is 1024")),
        (("--prompt", "a", "--prompt", "x" * 2000, "--raw"), ("prompt 2 has 2000 tokens", "is 1024")),
        (("--prompt", "y" * 50, "--raw", "--max-context", "40"), ("50 tokens", "is 40")),
        (("--prompt", "y", "--max-context", "4000"), ("max_context", "4000", "1024")),
        (("--prompt", "y", "--layers", "3"), ("2 layers, not 3",)),
        (("--prompt", "y", "--fuzzy", "40"), ("got 40",)),
    ):
        line = refused(capsys, "--device", "cpu", "--model", str(tmp_path), *arguments, prompt=None)
        assert all(figure in line for figure in figures), line
    edit_json(tmp_path / "tokenizer_config.json", pad_token="[PAD]")
    line = refused(capsys, "--device", "cpu", "--model", str(tmp_path), "--prompt", "a [PAD]", "--raw", prompt=None)
    assert "the prompt holds token id 320" in line and line.endswith("has 320")
    assert refused(capsys, "--device", "cpu", "--model", "absent").startswith("no model absent: neither a folder, nor")


def test_a_command_that_is_none(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["llama-alspec", "serv"])
    assert command() == 2
    assert capsys.readouterr().err.startswith("llama-alspec: error: no command 'serv'; did you mean serve? Commands: ")


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_what_options_alone_answer_does_not_wait_for_torch(asked):
    """Which takes a second to import."""
    script = (
        "import sys\nfrom models.llama31_8b.demo.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script, asked], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    if asked == "--help":
        assert all(f" {flag_of(one.name)} " in done.stdout.replace("\n", " ") for one in table())
        assert "{hits,plan,serve}" in done.stdout and "<function" not in done.stdout
