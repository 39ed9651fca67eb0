# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Record what a command prints as a data file, for documents that show it.

`python -m perf.record FILE COMMAND ...`: every printed line is a row, and an `output` marker shows them (perf/docs.py).
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence

from perf.lib.data_file import ROOT, new_file, save
from runtime_patches.board.command_line import OneLineParser, run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or the command's status when it fails, and then write nothing."""
    parser = OneLineParser(prog="python -m perf.record", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=new_file, metavar="FILE", help="the data file, below perf/data for documents")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="run in the checkout's folder")
    options = parser.parse_args(argv)
    if not options.command:
        parser.error("no command to record")
    done = subprocess.run(options.command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        print(f"ended with status {done.returncode}: nothing is recorded", file=sys.stderr)
    else:
        save(options.file, shlex.join(options.command), [{"line": line.rstrip()} for line in done.stdout.splitlines()])
    return done.returncode


if __name__ == "__main__":
    sys.exit(run_command("python -m perf.record", main))
