# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Every command line of README and docs names commands and options that exist; `make help` names every variable."""

import importlib
import io
import re
import shutil
import subprocess
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from models.llama31_8b.demo import __main__ as demo

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "perf/README.md")]
PAGES += sorted(path for folder in ("docs", "tt_kernels", "runtime_patches") for path in (ROOT / folder).rglob("*.md"))
# The simulator's own start takes wolfpine's options.
COMMAND = re.compile(
    r"^(?:\.venv/bin/)?(llama-alspec|python -m (?!\S+\.startup)(?:perf|runtime_patches|tests)[\w.]*)(?: +(.*))?$"
)


def commands(page: Path) -> set[str]:
    """Return what stands in blocks of commands, without comments, and between backticks."""
    text = re.sub(r" *\\\n *", " ", page.read_text(encoding="utf-8"))
    lines = [line.split("#")[0] for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.split("\n")]
    inline = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    return {" ".join(line.split()) for line in [*lines, *inline] if COMMAND.match(" ".join(line.split()))}


@cache
def options_of(program: str, first: str) -> frozenset[str]:
    """Return the options that a command's --help names. first: its first word, which may be a command of its own."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), pytest.raises(SystemExit):
        if program == "llama-alspec":
            patch.setattr("sys.argv", [program, *([first] if first in demo.COMMANDS else []), "--help"])
            raise SystemExit(demo.main())
        name = program.removeprefix("python -m ")
        module = importlib.import_module(name)
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{name}.__main__")
        module.main([*([first] if first.isidentifier() else []), "--help"])
    return frozenset(re.findall(r"(?<![\w-])--[a-z][\w-]*", said.getvalue()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_documented_commands_take_the_options_that_they_are_shown_with(page):
    for command in sorted(commands(page)):
        program, rest = COMMAND.match(command).groups()
        own = (rest or "").split(" -- ")[0]  # what follows is another program's
        asked = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", own))
        if asked - {"--help"}:
            assert asked - {"--help"} <= options_of(program, own.split()[0]), command


def test_commands_are_found():
    assert sum(len(commands(page)) for page in PAGES) > 60


MAKEFILE = ROOT / "Makefile"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_help_is_whole_and_names_every_variable():
    command = ["make", "--no-print-directory", "-f", MAKEFILE, "help"]
    said = subprocess.run(command, cwd=MAKEFILE.parent, capture_output=True, text=True).stdout
    variables = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE.read_text("utf-8"), re.M)) - {"VENV"}
    assert said.rstrip().endswith(".") and "#" not in said
    assert variables <= set(re.findall(r"[A-Z_]+", said)) and "make clean" in said
