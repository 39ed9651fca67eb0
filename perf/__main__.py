# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""List the commands of this folder."""

from __future__ import annotations

import ast
from itertools import groupby
from pathlib import Path

FOLDER = Path(__file__).parent


def commands() -> list[tuple[str, str]]:
    """Return (module, first line of its docstring) of every command, in the order of the folders.

    A command is a module or package that runs as `python -m MODULE`, unless its docstring says what it is "Started
    by". Nothing is imported.
    """
    found = []
    for path in sorted(FOLDER.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__) or '__name__ == "__main__"' not in text:
            continue
        docstring = ast.get_docstring(ast.parse(text)) or ""
        if "Started by" not in docstring:
            parts = path.relative_to(FOLDER.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__main__" else parts)
            found.append((module, docstring.split("\n")[0]))
    return sorted(found, key=lambda command: (command[0].count("."), command[0]))


def by_folder() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (folder, its commands), first those that are a folder of their own."""
    grouped = groupby(commands(), key=lambda command: command[0].rpartition(".")[0])
    return [(folder, list(group)) for folder, group in grouped]


def main() -> int:
    """Print the list; 0."""
    width = max(len(module) for module, _ in commands())
    for _, group in by_folder():
        print("\n".join(f"python -m {module:{width}}  {text}" for module, text in group), end="\n\n")
    print("Each takes --help. perf/README.md says what runs where and what it costs.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
