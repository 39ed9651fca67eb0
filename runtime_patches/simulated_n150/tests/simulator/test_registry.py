# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What makes a patch refuse, the folder for TT_METAL_SIMULATOR, and the diagnosis file."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime_patches.simulated_n150.simulator import patch as registry
from runtime_patches.simulated_n150.simulator import simulator_dir
from runtime_patches.simulated_n150.simulator.diagnosis import Diagnosis
from runtime_patches.simulated_n150.simulator.patch import Patch, PatchRefused, apply_all, check
from runtime_patches.simulated_n150.simulator.registry import all_patches


def _patch(targets, applied):
    return Patch("a patch", "a rule", "a source", targets, lambda: applied.append(True))


def test_every_patch_fits_the_installed_simulator_and_says_its_rule():
    patches = all_patches()
    check(patches)
    assert all(patch.rule and patch.source and patch.targets for patch in patches)
    assert len({patch.name for patch in patches}) == len(patches)


def test_other_code_is_refused_and_nothing_is_applied():
    applied = []
    good = _patch({"framework.util.bits.get_bits": registry.fingerprint("framework.util.bits.get_bits")}, applied)
    bad = _patch({"framework.util.bits.get_bits": "0" * 16, "framework.util.bits.gone": "0"}, applied)
    with pytest.raises(
        PatchRefused, match=r"get_bits has source [0-9a-f]{16}, expected 0{16}(.|\n)*gone cannot be read"
    ):
        apply_all([good, bad])
    assert applied == []
    assert apply_all([good]) == ["a patch"]
    assert applied == [True]


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(registry.importlib.metadata, "version", lambda name: "2.3")
    with pytest.raises(PatchRefused, match="wolfpine 2.2, but 2.3 is installed"):
        check([])


def test_a_missing_simulator_is_refused(monkeypatch):
    def missing(name):
        raise registry.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(registry.importlib.metadata, "version", missing)
    with pytest.raises(PatchRefused, match="pip install wolfpine==2.2"):
        check([])


def test_folder_is_made_once_even_by_many_at_a_time(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(lambda _n: simulator_dir(tmp_path, (2, 2), Path(sys.executable)), range(16)))
    assert len(made) == 1
    folder = made.pop()
    assert sorted(p.name for p in folder.iterdir()) == [
        "cluster_descriptor.yaml",
        "run.sh",
        "soc_descriptor.yaml",
    ]
    assert os.access(folder / "run.sh", os.X_OK)
    assert [p.name for p in tmp_path.iterdir()] == [folder.name]
    assert simulator_dir(tmp_path, (1, 1), Path(sys.executable)) != folder


@pytest.mark.parametrize("grid", [(0, 1), (9, 1), (1, 10)])
def test_impossible_grids_are_named(tmp_path, grid):
    with pytest.raises(ValueError, match=f"got {grid[0]}x{grid[1]}"):
        simulator_dir(tmp_path, grid, Path(sys.executable))


def test_relative_interpreter_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'bin/python'"):
        simulator_dir(tmp_path, (1, 1), Path("bin/python"))


def test_run_sh_starts_the_patched_server(tmp_path):
    folder = simulator_dir(tmp_path / "with space", (1, 1), Path(sys.executable))
    done = subprocess.run([folder / "run.sh", "--list-patches"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    listed = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [line.strip().split(":")[0] for line in listed] == [patch.name for patch in all_patches()]


def test_diagnosis_keeps_exceptions_and_watch_reports(tmp_path, capsys):
    path = tmp_path / "reports" / "diagnosis.txt"
    diagnosis = Diagnosis(path)
    assert path.read_text() == ""

    class Watch:
        def _report(self, cycle):
            print(f"no progress at {cycle}", file=sys.stderr)

        _report_unit_stall = _report_unit_wedged = _report

    diagnosis.listen_to_deadlock_watch(Watch)
    Watch()._report(7)
    assert "no progress at 7" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError), diagnosis.catch():
        1 / 0  # noqa: B018
    text = path.read_text()
    assert text.index("no progress at 7") < text.index("ZeroDivisionError in the simulator")
    assert "Traceback" in text
    for number in range(400):
        diagnosis.report(f"report {number}", "x" * 100)
    text = path.read_text()
    assert "report 399" in text and "report 1\n" not in text and len(text) <= 20_000


def test_diagnosis_lists_the_cores_out_of_reset(tmp_path):
    class Register:
        def read_uint(self):
            return 0x1234

    class Core:
        pc_register, spin_parked = Register(), True

        def __init__(self, active):
            self.soft_active = active

    class Tile:
        brisc, ncrisc = Core(True), Core(False)

        def get_coord_pair(self):
            return 18, 18

    class Device:
        tensix_tiles = [Tile()]

    diagnosis = Diagnosis(tmp_path / "d.txt")
    diagnosis.watch(Device())
    assert diagnosis.cores() == "  tile (18, 18) BRISC pc 0x1234, parked in a poll loop"


def test_without_the_variable_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv("SIMULATED_N150_DIAGNOSIS", raising=False)
    Diagnosis.from_environment().report("title", "text")
    assert list(tmp_path.iterdir()) == []
