# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The real tt-perf-report, in a Python environment of its own: it pins matplotlib and wants another numpy than ttnn."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from runtime_patches.board.runtime_root import project_cache_dir

VERSION = "1.4.1"
INSTALL_TIMEOUT_S = 420


class NotInstalled(RuntimeError):
    """pip could not install it here; the message holds what pip said last."""


def program() -> Path:
    """Path of the command, installed into the project's cache if it is not there. Errors: NotInstalled."""
    folder = project_cache_dir() / "tools" / f"tt-perf-report-{VERSION}-py{sys.version_info[0]}{sys.version_info[1]}"
    command, whole = folder / "bin" / "tt-perf-report", folder / ".installed"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock", timeout=INSTALL_TIMEOUT_S):
        if whole.exists():
            return command
        shutil.rmtree(folder, ignore_errors=True)
        # This environment's pip installs into the new one, which needs none; and modules are compiled when they are
        # first read: of the packages' thousands that is a part.
        pip = [sys.executable, "-m", "pip", "--python", str(folder), "--disable-pip-version-check"]
        for step in (
            [sys.executable, "-m", "venv", "--without-pip", str(folder)],
            [*pip, "install", "--quiet", "--no-compile", f"tt-perf-report=={VERSION}"],
        ):
            try:
                done = subprocess.run(step, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NotInstalled(f"{step[-1]}: {error}") from error
            if done.returncode:
                raise NotInstalled((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
        whole.touch()
    return command


def read(csv: Path, answer: Path, *options: str) -> str:
    """Run it over `csv`; the table goes to `answer` (its --csv). Returns what it printed. Errors: AssertionError with
    that, unless it ended well."""
    command = [str(program()), str(csv), "--csv", str(answer), "--no-color", *options]
    surroundings = {"cwd": answer.parent, "env": {**os.environ, "MPLBACKEND": "Agg"}, "timeout": 120}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **surroundings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
