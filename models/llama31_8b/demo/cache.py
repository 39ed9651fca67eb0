# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec cache`: list what the project's cache holds, by kind, with sizes and days since the last use; or remove
entries. What is removed is made again when it is needed. End runs of the project first: one in progress may fail."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from runtime_patches.board.command_line import OneLineParser, run_command
from runtime_patches.board.runtime_root import project_cache_dir

# The folders of the cache. Nothing else in it is counted or removed: it may be a folder that others use too.
KINDS = {
    "gguf": "models converted from GGUF files",
    "tiny": "tiny random models of simulated chips",
    "tt_weights": "weights in the formats of chips",
    "jit": "kernels compiled for boards and simulated chips",
    "jit_of_empty_kernels": "empty kernels of mock meshes",
    "toolchain": "the stand-in compiler and its objects",
    "runtime_roots": "folders that ttnn reads its kernels from",
    "simulators": "simulated chips",
    "clusters": "descriptions of simulated meshes",
    "tools": "tt-perf-report",
    "workers": "logs of the tests' device processes",
    "logs": "logs of ttnn",
}
DAY = 24 * 3600.0
PROG = "llama-alspec cache"


class Entry(NamedTuple):
    """A file or folder directly below a kind. size: bytes of disk; used: when a file of it was last read or written, as
    far as the file system tells (Linux notes the first reading of a day)."""

    path: Path
    size: int
    used: float

    @classmethod
    def of(cls, path: Path) -> Entry:
        """Add up a file or a tree. Folders' own times do not count: listing changes them. Links are not followed."""
        files = [path]
        if path.is_dir() and not path.is_symlink():
            below = [Path(folder, name) for folder, folders, names in os.walk(path) for name in (*names, *folders)]
            files = [one for one in below if one.is_symlink() or not one.is_dir()]
        size, used = 0, 0.0
        for file in files or [path]:  # an empty folder has no other time than its own
            try:
                facts = file.lstat()
            except FileNotFoundError:  # another process has removed it
                continue
            size += facts.st_blocks * 512
            used = max(used, facts.st_atime, facts.st_mtime)
        return cls(path, size, used)

    def remove(self) -> None:
        """Remove it; a link is removed, not followed. Raises OSError."""
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    """List the cache, or remove entries; return the exit code."""
    parser = OneLineParser(prog=PROG, description=__doc__, allow_abbrev=False)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--prune", type=_days, metavar="DAYS", help="remove the entries not used for DAYS days")
    group.add_argument("--clear", action="store_true", help="remove all entries")
    return run_command(PROG, lambda: _run(parser.parse_args(argv)))


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 < days < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days above 0; --clear removes everything")
    return days


def _run(args: argparse.Namespace) -> int:
    folder, now = project_cache_dir(), time.time()
    print(f"cache: {folder}")
    total = 0
    for kind, what in KINDS.items():
        home = folder / kind
        kept = sorted(home.glob("[!.]*")) if home.is_dir() and not home.is_symlink() else []  # no lock file
        found = [Entry.of(path) for path in kept]
        if args.clear or args.prune:
            found = [entry for entry in found if args.clear or now - entry.used > args.prune * DAY]
            for entry in found:
                entry.remove()
        if found:
            size = sum(entry.size for entry in found)
            days = (now - max(entry.used for entry in found)) / DAY
            print(f"{size / 1e6:9.1f} MB  {len(found):4d}  used {max(days, 0):.0f} days ago  {kind}: {what}")
            total += size
    print(f"{total / 1e6:9.1f} MB  {'removed' if args.clear or args.prune else 'in all'}")
    return 0
