# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed in an environment of its own, holds and runs what the checkout does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("models", "perf", "runtime_patches", "tt_kernels")
TIMEOUT_S = 600
# Imports every package, those without __init__.py too, and says where each was found.
IMPORTS = """
import importlib, pkgutil, sys
packages = sys.argv[1:]
while packages:
    name = packages.pop()
    package = importlib.import_module(name)
    (folder,) = package.__path__
    print(name, folder)
    packages += [f"{name}.{found.name}" for found in pkgutil.iter_modules([folder]) if found.ispkg]
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """A copy of what belongs to the distribution: building leaves folders behind."""
    copy = tmp_path_factory.mktemp("sources")
    for name in (
        "setup.py",
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "constraints.txt",
    ):
        shutil.copy(ROOT / name, copy)
    # The studies below perf are distributions of their own.
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "studies"))
    return copy


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sources)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """The bin folder of an environment that has the wheel and, behind it, the packages the wheel depends on."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    (packages,) = folder.glob("lib/python*/site-packages")
    # The .pth files in a folder that a .pth file names are not read: this checkout's own installation stays out.
    folders = [folder for folder in sys.path if Path(folder).name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join(folders) + "\n", encoding="utf-8")
    return python.parent


def pip(*arguments: object) -> None:
    run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)], ROOT)


def run(command: list, folder: Path, codes: tuple[int, ...] = (0,)) -> str:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode in codes, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_holds_every_file_of_the_packages(sources, wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    files = {
        str(file.relative_to(sources)) for name in PACKAGES for file in (sources / name).rglob("*") if file.is_file()
    }
    assert len(files) > 300
    assert sorted(files - held) == []
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == set(PACKAGES)


def test_every_package_is_imported_from_the_wheel(environment, tmp_path):
    lines = [line.split() for line in run([environment / "python", "-c", IMPORTS, *PACKAGES], tmp_path).splitlines()]
    names = {name for name, _ in lines}
    assert {"models.llama31_8b.tt", "perf.sweep", "tt_kernels.compute_gate", "runtime_patches.simulated_n150"} <= names
    assert [folder for _, folder in lines if not Path(folder).is_relative_to(environment.parent)] == []


def test_the_commands_run_outside_the_checkout(environment, tmp_path):
    assert "--attention" in run([environment / "llama-alspec", "--help"], tmp_path)
    doctor = [environment / "python", "-m", "runtime_patches.simulated_n150", "doctor"]
    assert "simulator: " in run(doctor, tmp_path, codes=(0, 1))  # 1: this machine lacks the RISC-V compiler
