# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of machines that lack this or that, and what ``run`` does with a program."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_patches.simulated_n150 import __main__ as command
from runtime_patches.simulated_n150 import doctor
from runtime_patches.simulated_n150.board import environment as board_environment
from runtime_patches.simulated_n150.board import runtime_root
from runtime_patches.simulated_n150.compiler import toolchain

needs_simulator = pytest.mark.skipif(bool(doctor.why_not("simulator")), reason=str(doctor.why_not("simulator")))
needs_ttnn = pytest.mark.skipif(bool(doctor.why_not("mock mesh")), reason=str(doctor.why_not("mock mesh")))


def test_every_finding_can_be_acted_on():
    found = doctor.findings()
    assert len({f.part for f in found}) == len(found) >= 9
    for finding in found:
        assert finding.found and finding.fix and set(finding.needed_for) <= {*doctor.MODES, doctor.LIBRARY}
    assert {mode for f in found for mode in f.needed_for} == {*doctor.MODES, doctor.LIBRARY}


def test_missing_debian_packages(monkeypatch):
    lacking = ["gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf"]
    monkeypatch.setattr(toolchain, "missing_packages", lambda: lacking)
    monkeypatch.setattr(board_environment, "SYSTEM_SFPI", Path("/nonexistent"))
    found = doctor.findings()
    for mode in ("simulator", "mock mesh"):
        reason = doctor.why_not(mode, found)
        assert "apt-get install -y gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf" in reason
    assert "MISSING gcc-riscv64-unknown-elf" in doctor.as_table(found)


def test_another_wolfpine(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    assert doctor._wolfpine() == doctor.Finding("wolfpine", False, "1.0", "pip install wolfpine==2.2", ("simulator",))


def test_it_says_what_the_cache_takes_and_what_is_free(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "jit").mkdir(parents=True)
    (tmp_path / "cache" / "jit" / "kernel.elf").write_bytes(bytes(2_600_000))
    (tmp_path / "cache" / "link").symlink_to(tmp_path)  # not followed
    told = doctor.disk()
    assert told["cache"] == 2_600_000 and told["free"] > 0
    command.main(["doctor"])
    assert "disk: the cache takes 0.0 GB, " in capsys.readouterr().out
    command.main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["disk"]["cache"] == told["cache"]


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="quantum"):
        doctor.why_not("quantum")


class FakeApt:
    """Stands for subprocess.run: the n-th call of `apt-get install` succeeds from `works_from` on."""

    def __init__(self, works_from: int):
        self.works_from, self.commands, self.installs = works_from, [], 0

    def __call__(self, command, **_):
        self.commands.append(command)
        code = 0
        if "install" in command:
            self.installs += 1
            code = 0 if self.installs >= self.works_from else 100
        return subprocess.CompletedProcess(command, code, "", "" if code == 0 else "E: Unable to locate package")


@pytest.mark.parametrize("works_from, commands", [(1, 1), (2, 3), (9, 3)])
def test_install_updates_the_lists_once(monkeypatch, works_from, commands):
    apt = FakeApt(works_from)
    monkeypatch.setattr(doctor.subprocess, "run", apt)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "missing_packages", lambda: [] if apt.installs >= works_from else ["gcc-x"])
    assert doctor.install_packages() is (works_from <= 2)
    assert len(apt.commands) == commands
    assert "gcc-x" in apt.commands[0] and "install" in apt.commands[0] and "sudo" not in apt.commands[0]


def test_install_needs_root_or_sudo(monkeypatch):
    calls = []

    def refused(command, **_):
        calls.append(command)
        return subprocess.CompletedProcess(command, 1, b"", b"a password is required")

    monkeypatch.setattr(doctor, "missing_packages", lambda: ["gcc-x"])
    monkeypatch.setattr(doctor.subprocess, "run", refused)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    assert doctor.install_packages() is False
    assert calls == [["sudo", "-n", "true"]], "nothing is tried without the right to it"
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert doctor.install_packages() is False


def test_doctor_command(monkeypatch, capsys):
    monkeypatch.setattr(toolchain, "missing_packages", lambda: ["gcc-riscv64-unknown-elf"])
    assert command.main(["doctor"]) == 1
    assert "-> apt-get install -y gcc-riscv64-unknown-elf" in capsys.readouterr().out
    assert command.main(["doctor", "--json"]) == 1
    assert "apt-get" in json.loads(capsys.readouterr().out)["why_not"]["simulator"]
    assert command.main(["run", "--", "true"]) == 1
    assert "apt-get" in capsys.readouterr().err


@needs_simulator
def test_doctor_command_on_a_whole_machine(capsys):
    assert command.main(["doctor", "--install", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["why_not"]["simulator"] is None


def run_command(*arguments: str, **named) -> subprocess.CompletedProcess:
    line = [sys.executable, "-m", "runtime_patches.simulated_n150", "run", *arguments]
    repository = Path(runtime_root.__file__).resolve().parents[2]
    return subprocess.run(line, cwd=repository, capture_output=True, text=True, timeout=600, **named)


@needs_simulator
def test_run_sets_the_environment_and_passes_the_exit_code():
    show = "import os, sys; print(os.environ['TT_METAL_SIMULATOR']); sys.exit(7)"
    done = run_command("--grid", "2x2", "--", sys.executable, "-c", show)
    assert done.returncode == 7
    assert "2x2" in Path(done.stdout.strip()).name


@needs_ttnn
def test_run_on_a_mock_mesh_and_timeout():
    show = "import os; print(os.environ['TT_MESH_GRAPH_DESC_PATH'], 'TT_METAL_SIMULATOR' in os.environ)"
    stale = dict(os.environ, TT_METAL_SIMULATOR="/stale")
    done = run_command("--mock", "1x2", "--", sys.executable, "-c", show, env=stale)
    assert done.returncode == 0 and "1x2" in done.stdout and done.stdout.strip().endswith("False")
    show = "import os; print(os.environ['TT_METAL_CACHE'])"
    by_default, compiled = (
        run_command("--mock", "1x2", *options, "--", sys.executable, "-c", show).stdout.strip()
        for options in ((), ("--stock-kernels", "compiled"))
    )
    folders = [Path(cache).parent.name for cache in (by_default, compiled)]
    assert folders == (["jit_of_empty_kernels", "jit"] if board_environment.real_sfpi() is None else ["jit", ""])
    slow = run_command("--mock", "1x2", "--timeout", "0.5", "--", "sleep", "60")
    assert slow.returncode == 124 and "sleep 60 did not end within 0.5 s" in slow.stderr


@needs_ttnn
@pytest.mark.parametrize(
    "arguments, code, text",
    [
        (("--grid", "9x1", "--", "true"), 1, "9x1"),
        (("--grid", "3x2", "--", "true"), 1, "3x2 has 6 cores"),
        (("--mock", "3x3", "--", "true"), 1, "3x3"),
        (("--mock", "1x2"), 2, "name the program"),
        (("--mock", "1x2", "--timeout", "-1", "--", "true"), 2, "above 0"),
        (("--mock", "1x2", "--", "no-such-program-here"), 127, "no-such-program-here"),
        (("--mock", "1x2", "--grid", "1x1", "--", "true"), 2, "--grid is for simulated ones"),
        (("--stock-kernels", "empty", "--", "true"), 2, "--stock-kernels is for a mock mesh"),
        (("--dispatch", "quick", "--", "true"), 2, "invalid choice: 'quick'"),
        (
            ("--mock", "1x2", "--dispatch", "fast", "--", "true"),
            2,
            "--dispatch fast is for the simulated chip",
        ),
    ],
)
def test_run_refuses_bad_input(capsys, arguments, code, text):
    try:
        returned = command.main(["run", *arguments])
    except SystemExit as ended:
        returned = ended.code
    assert returned == code and text in capsys.readouterr().err
