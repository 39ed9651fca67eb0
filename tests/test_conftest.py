# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What --device n150, the marker silicon and a collection need: a pytest of its own for each, on a sample test."""

import os
import subprocess
import sys
from pathlib import Path

from runtime_patches.board import doctor

ROOT = Path(__file__).resolve().parent.parent
WITH_A_BOARD = "from runtime_patches.board import doctor\ndoctor.findings = lambda: []\n"


def run_pytest(tmp_path: Path, marker: str, *options: str, machine: str = "") -> subprocess.CompletedProcess:
    (tmp_path / "machine_under_test.py").write_text(machine)
    (tmp_path / "test_sample.py").write_text(f"import pytest\n\n@pytest.mark.{marker}\ndef test_sample(): pass\n")
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    fixtures = "runtime_patches.simulated_n150.testing.fixtures"
    plugins = ["-p", "machine_under_test", "-p", fixtures, "-p", "tests.conftest"]
    line = [sys.executable, "-m", "pytest", "-ra", "-q", "-p", "no:cacheprovider", *plugins, *options, str(tmp_path)]
    return subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)


def test_silicon_needs_the_option_and_the_board(tmp_path):
    assert "give --device n150" in run_pytest(tmp_path, "silicon", machine=WITH_A_BOARD).stdout
    assert "1 passed" in run_pytest(tmp_path, "silicon", "--device", "n150", machine=WITH_A_BOARD).stdout
    if doctor.why_not() is not None:
        refused = run_pytest(tmp_path, "sim", "--device", "n150")
        assert refused.returncode == 4 and "--device n150: " in refused.stdout + refused.stderr
        skipped = run_pytest(tmp_path, "silicon")
        assert skipped.returncode == 0 and "silicon not ready" in skipped.stdout


def test_a_module_that_imports_ttnn_ends_the_collection(tmp_path):
    (tmp_path / "ttnn.py").touch()
    refused = run_pytest(tmp_path, "silicon", machine=f"{WITH_A_BOARD}import ttnn\n")
    assert refused.returncode == 4 and "imports ttnn when it is collected" in refused.stdout + refused.stderr
