# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`make help` says what the Makefile does, to the end."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_help_is_whole_and_names_every_variable():
    command = ["make", "--no-print-directory", "-f", MAKEFILE, "help"]
    said = subprocess.run(command, cwd=MAKEFILE.parent, capture_output=True, text=True).stdout
    variables = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE.read_text("utf-8"), re.M)) - {"VENV"}
    assert said.rstrip().endswith(".") and "#" not in said
    assert variables <= set(re.findall(r"[A-Z_]+", said)) and "make clean" in said
