# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the patches need wolfpine, but neither ttnn nor a compiler."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("framework") else ["*test_*.py"]
PROJECT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="session")
def fresh_interpreter():
    """Run Python text in a process of its own, so that a patch cannot reach other tests; returns its output."""

    def run(text: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", text],
            env=os.environ | {"PYTHONPATH": str(PROJECT)} | environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
