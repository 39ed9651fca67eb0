# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What pytest does with our markers and options on machines that lack parts: a pytest of its own for each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_patches.simulated_n150.board.environment import real_sfpi

REPOSITORY = Path(__file__).resolve().parents[3]
SAMPLE = """
import pytest

@pytest.mark.{marker}
def test_sample():
    print("ran")
"""
# Loaded before conftest.py: a machine without the RISC-V compiler, or with every part.
WITHOUT_COMPILER = """
from runtime_patches.simulated_n150.compiler import toolchain
toolchain.missing_packages = lambda: ["gcc-riscv64-unknown-elf"]
"""
WITH_EVERYTHING = """
from runtime_patches.simulated_n150 import doctor
doctor.findings = lambda *_: []
"""


def run_pytest(tmp_path: Path, marker: str, *options: str, machine: str = "") -> subprocess.CompletedProcess:
    """pytest on a sample test of that marker, with the plugin."""
    (tmp_path / "machine_under_test.py").write_text(machine)
    sample = tmp_path / "test_sample.py"
    sample.write_text(SAMPLE.format(marker=marker))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider -ra -q\n")
    # Of the installed plugins none: hypothesis takes most of pytest's start.
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    plugins = ["-p", "machine_under_test", "-p", "runtime_patches.simulated_n150.testing.fixtures"]
    line = [sys.executable, "-m", "pytest", *plugins, *options, str(sample)]
    return subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)


@pytest.mark.parametrize("marker", ["sim", "mock_mesh"])
def test_missing_packages_skip_with_the_line_that_fixes_it(tmp_path, marker):
    if real_sfpi() is not None and marker == "mock_mesh":
        pytest.skip("a mock mesh uses the SFPI compiler of this machine")
    done = run_pytest(tmp_path, marker, machine=WITHOUT_COMPILER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 skipped" in done.stdout
    assert "not ready: gcc-riscv64-unknown-elf: missing (apt-get install -y gcc-riscv64" in done.stdout


@pytest.mark.parametrize("marker", ["sim", "mock_mesh"])
def test_marked_tests_run_where_every_part_is(tmp_path, marker):
    done = run_pytest(tmp_path, marker, machine=WITH_EVERYTHING)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


ON_A_LIBRARY = """
import pytest

pytestmark = pytest.mark.sim

@pytest.mark.own_simulator
def test_of_this_simulator(sim_device): pass

def test_that_starts_its_own_process(): pass

def test_of_a_mesh(sim_mesh): sim_mesh((1, 2))

def test_of_cycles(sim_device): sim_device(variables={"TT_SIM_COST_MODEL": "1"})

def test_of_a_command(library): assert library.name == "libttsim_wh.so"

def test_that_fails(library): assert library is None
"""


def test_what_a_library_does_not_run_is_skipped_and_counted_by_reason(tmp_path):
    library, counts = tmp_path / "libttsim_wh.so", tmp_path / "counts.json"
    library.write_bytes(b"\x7fELF libttsim_init")
    (tmp_path / "test_on_a_library.py").write_text(ON_A_LIBRARY)
    options = [
        "--simulator",
        str(library),
        "--count-outcomes",
        str(counts),
        "-m",
        "sim",
        "-k",
        "not sample",
        "--deselect",
        "test_sample.py",
    ]
    shown = run_pytest(tmp_path, "sim", *options, str(tmp_path), machine=WITH_EVERYTHING).stdout
    found = json.loads(counts.read_text())
    (row,) = found["rows"]
    why = row.pop("why").split("; ")
    assert row == {"tests_in": "test_on_a_library.py", "passed": 1, "failed": 1, "skipped": 4}, shown
    assert why == [
        "1 ttsim: a library simulates one chip",
        "1 ttsim: counts no cycles",
        "1 ttsim: is about the project's own simulator",
        "1 ttsim: opens no chip through the fixtures",
    ]
    assert "    1 skipped: ttsim: counts no cycles" in shown
    assert "-m 'sim' -k 'not sample' --simulator libttsim_wh.so --count-outcomes counts.json" in found["command"]
    for option in ("--count-outcomes", "--compare-simulators"):
        refused = run_pytest(tmp_path, "sim", option, str(counts))
        assert refused.returncode == 4 and f"{option} needs --simulator PATH" in refused.stderr


def test_slow_tests_are_left_out_unless_asked_for(tmp_path):
    assert "slow: give --run-slow" in run_pytest(tmp_path, "slow").stdout
    assert "1 passed" in run_pytest(tmp_path, "slow", "--run-slow").stdout


def test_files_of_one_kind_of_device_follow_each_other_and_plain_ones_come_last(tmp_path):
    """Whole files move and keep their order otherwise."""
    for name, fixture in (("a", ""), ("b", "mock_mesh"), ("c", "sim_device"), ("d", "mock_mesh")):
        text = f"def test_{name}1(): pass\n\ndef test_{name}2({fixture}): pass\n"
        (tmp_path / f"test_{name}.py").write_text(text)
    files = [str(tmp_path / f"test_{name}.py") for name in "abcd"]
    shown = run_pytest(tmp_path, "sim", "--collect-only", *files, machine=WITH_EVERYTHING).stdout
    order = [line.partition("::")[2] for line in shown.splitlines() if "::" in line]
    assert order == [f"test_{name}" for name in ("c1", "c2", "b1", "b2", "d1", "d2", "a1", "a2", "sample")]
