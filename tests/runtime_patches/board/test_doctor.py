# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of machines that lack a part of what a board needs, and the environment of a board."""

import json
from pathlib import Path

import pytest

from runtime_patches.board import doctor, environment, runtime_root


def test_every_finding_can_be_acted_on(capsys):
    found = doctor.findings()
    assert len({f.part for f in found}) == len(found) == 7
    for finding in found:
        assert finding.found and finding.fix and finding.needed_for == (doctor.SILICON,)
    code = doctor.main([])
    assert code == (doctor.why_not() is not None)
    assert f"silicon: {'not ready' if code else 'ready'}" in capsys.readouterr().out
    doctor.main(["--json"])
    assert json.loads(capsys.readouterr().out)["why_not"]["silicon"] == doctor.why_not()


def test_missing_ttnn_and_another_version(monkeypatch):
    def absent():
        raise runtime_root.RuntimeRootError("ttnn is not installed")

    monkeypatch.setattr(doctor, "find_ttnn_dir", absent)
    found = {f.part: f for f in doctor.findings()}
    assert not found["ttnn"].ok and found["ttnn"].fix == "pip install ttnn==0.81.1"
    monkeypatch.setattr(doctor, "find_ttnn_dir", lambda: Path("/somewhere/ttnn"))
    monkeypatch.setattr(doctor, "ttnn_version", lambda folder: "0.70.0")
    finding = doctor._ttnn((doctor.SILICON,))
    assert not finding.ok and "0.70.0" in finding.found


def test_boards_that_the_environment_hides_are_said_to_be_hidden(monkeypatch, tmp_path):
    for name in ("0", "2", "by-id"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(environment, "BOARDS", tmp_path)
    told = {}
    for chosen in ("", "2", "7"):
        monkeypatch.setenv("TT_VISIBLE_DEVICES", chosen)
        told[chosen] = doctor.board_nodes()
    assert [told[chosen].found for chosen in ("", "2")] == [f"2 in {tmp_path}", f"1 in {tmp_path}"]
    assert [told[chosen].ok for chosen in told] == [True, True, False]
    assert told["7"].found == f"none of the 2 in {tmp_path} is named by TT_VISIBLE_DEVICES=7"
    assert told["7"].fix == "name some of 0, 2, or unset TT_VISIBLE_DEVICES"


def test_a_board_needs_the_sfpi_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "SYSTEM_SFPI", tmp_path / "opt")
    monkeypatch.setattr(environment, "find_ttnn_dir", lambda: tmp_path / "ttnn")
    assert environment.real_sfpi() is None and not doctor.sfpi().ok
    with pytest.raises(runtime_root.RuntimeRootError, match="SFPI compiler"):
        environment.silicon_environment()
    compiler = tmp_path / "opt" / environment.SFPI_COMPILER
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    assert environment.real_sfpi() == tmp_path / "opt" and doctor.sfpi().ok
    assert environment.silicon_environment() == {}


def test_process_environment_drops_what_keeps_from_boards():
    base = {"PATH": "/bin", "TT_METAL_SIMULATOR": "old", "TT_METAL_DPRINT": "1", "TT_METAL_HOME": "/checkout"}
    made = environment.process_environment({"TT_METAL_CACHE": "/cache"}, base)
    assert made == {"PATH": "/bin", "TT_METAL_DPRINT": "1", "TT_METAL_HOME": "/checkout", "TT_METAL_CACHE": "/cache"}
