# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What all command lines share: one line for a mistake, for standard output that takes no more, and for a full disk."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perf.__main__ import commands
from runtime_patches.board.command_line import run_command

ROOT = Path(__file__).resolve().parents[3]
FULL = Path("/dev/full")
# Commands whose options are torch's own devices and number formats read it.
OF_TORCH = "perf.studies"
COMMANDS = [
    ["models.llama31_8b.demo"],
    *(["models.llama31_8b.demo", name] for name in ("cache", "hits", "plan", "serve")),
    ["perf"],
    *([module] for module, _ in commands() if not module.startswith(OF_TORCH)),
    ["runtime_patches.board.doctor"],
    ["runtime_patches.sgdc"],
    ["runtime_patches.simulated_n150"],
    ["tests.mutations"],
]


# Runs each command line of a list in this process; prints its status, what it said, and what it has read.
TRIED = """
import contextlib, io, json, runpy, sys
for module, *arguments in json.loads(sys.argv[1]):
    said, sys.argv = io.StringIO(), [module, *arguments, "--no-such-option"]
    status = None
    with contextlib.redirect_stderr(said):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            status = ended.code
    print(json.dumps([status, said.getvalue(), sorted({"torch", "transformers", "ttnn"} & set(sys.modules))]))
"""


def test_a_mistake_is_one_line_and_imports_neither_torch_nor_transformers():
    command = [sys.executable, "-W", "ignore", "-c", TRIED, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for module, (status, said, read) in zip(COMMANDS, told, strict=True):
        assert (status, said.count("\n"), read) == (2, 1, []) and ": error: " in said, (module, said)


@pytest.mark.parametrize(
    "arguments",
    [
        "--model /absent --device cpu --prompt x",
        "--draft /absent --device cpu --prompt x",
        "--model /absent --device sim --layers 1 --prompt x",
        "hits README.md --model /absent.gguf",
    ],
)
def test_a_model_that_is_not_there_is_refused_without_torch(arguments):
    command = [sys.executable, "-X", "importtime", "-m", "models.llama31_8b.demo", *arguments.split()]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 2 and "/absent" in done.stderr.splitlines()[-1]
    assert not re.search(r"\| +torch$", done.stderr, re.M)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("module", ["perf", "perf.docs --check", "models.llama31_8b.demo --help"])
def test_output_that_cannot_be_written_is_one_line_and_one_that_nobody_reads_none(module):
    command = [sys.executable, "-m", *module.split()]
    with FULL.open("w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "standard output: No space" in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "variable", "wanted"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "FOLDER/gguf/a"), "LLAMA_ALSPEC_CACHE", "FOLDER/gguf/a"),
        (PermissionError(errno.EACCES, "Permission denied", "FOLDER/a"), "TMPDIR", "FOLDER/a"),
        (PermissionError(errno.EACCES, "Permission denied", "/elsewhere"), "TMPDIR", None),
    ],
)
def test_what_the_system_refused_is_named_with_the_variable_that_moves_it(
    error, variable, wanted, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    folder = tmp_path / ("cache" if variable == "LLAMA_ALSPEC_CACHE" else "scratch")
    error.filename = error.filename.replace("FOLDER", str(folder))

    def failing() -> int:
        raise error

    assert run_command("a-command", failing) == 2
    told = f"a-command: error: {error.filename}: {error.strerror}"
    assert capsys.readouterr().err == f"{told}; {variable} names another folder\n" if wanted else f"{told}\n"
