# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""List the commands of this folder."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from runtime_patches.board.command_line import OneLineParser, run_command

FOLDER = Path(__file__).parent


def commands() -> list[tuple[str, str]]:
    """Return (module, first line of its docstring) of every command, the shallow ones first.

    A command is a module or package that runs as `python -m MODULE`, unless its docstring says what it is "Started
    by". Nothing is imported.
    """
    found = []
    for path in FOLDER.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(text)) or ""
        if path != Path(__file__) and '__name__ == "__main__"' in text and "Started by" not in docstring:
            parts = path.relative_to(FOLDER.parent).with_suffix("").parts
            found.append((".".join(part for part in parts if part != "__main__"), docstring.split("\n")[0]))
    return sorted(found, key=lambda command: (command[0].count("."), command[0]))


def main() -> int:
    OneLineParser(prog="python -m perf", description=__doc__).parse_args()
    width = max(len(module) for module, _ in commands())
    print("\n".join(f"python -m {module:{width}}  {text}" for module, text in commands()))
    print("\nEach takes --help. perf/README.md says what runs where and what it costs.")
    return 0


if __name__ == "__main__":
    sys.exit(run_command("python -m perf", main))
