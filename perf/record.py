# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Record what a command prints as a data file, for documents that show it.

`python -m perf.record FILE COMMAND ...`; an `output` marker shows the lines (perf/docs.py). One JSON object on standard
output becomes the file's row, so that figures can name its entries; else every line is a row with the column `line`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from perf.lib.data_file import ROOT, save
from perf.lib.files import new_file


def rows(printed: str) -> list[dict[str, Any]]:
    """Return the rows of a data file for what a command printed."""
    try:
        found = json.loads(printed)
    except json.JSONDecodeError:
        found = None
    return [found] if isinstance(found, dict) else [{"line": line.rstrip()} for line in printed.splitlines()]


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or the command's status when it fails, and then write nothing."""
    parser = argparse.ArgumentParser(prog="python -m perf.record", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=new_file, metavar="FILE", help="the data file, below perf/data for documents")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="run in the checkout's folder")
    options = parser.parse_args(argv)
    if not options.command:
        parser.error("no command to record")
    done = subprocess.run(options.command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        print(f"ended with status {done.returncode}: nothing is recorded", file=sys.stderr)
        return done.returncode
    save(options.file, shlex.join(options.command), rows(done.stdout))
    return 0


if __name__ == "__main__":
    sys.exit(main())
