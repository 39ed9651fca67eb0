# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The mutations of table.txt.

Whoever moves or rewrites a mutated line, or one of the tests, updates its entry; tests/test_mutations.py says which.
"""

from pathlib import Path
from typing import NamedTuple


class Mutation(NamedTuple):
    """name: for the command line. file: from the root of the repository. tests: ids for pytest; one of them must fail
    once `replacement` stands in the place of `text`."""

    name: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]


def read(table: Path) -> list[Mutation]:
    """Return the entries of a table: a line in brackets for each file, then a name, "- text", "+ replacement" and a
    "> test" for each test."""
    found: list[Mutation] = []
    file = ""
    for line in table.read_text(encoding="utf-8").splitlines():
        kind, value = line[:2], line[2:]
        if line.startswith("["):
            file = line.strip("[]")
        elif kind == "- ":
            found[-1] = found[-1]._replace(text=value)
        elif kind == "+ ":
            found[-1] = found[-1]._replace(replacement=value)
        elif kind == "> ":
            found[-1] = found[-1]._replace(tests=(*found[-1].tests, value))
        elif line and kind != "# ":
            found.append(Mutation(line, file, "", "", ()))
    return found


MUTATIONS = read(Path(__file__).with_name("table.txt"))
