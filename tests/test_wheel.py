# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Each distribution's wheel, installed in an environment of its own, holds and runs what the checkout does."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from runtime_patches.board.runtime_root import SUPPORTED_VERSIONS
from runtime_patches.simulated_n150.doctor import WOLFPINE_VERSION

ROOT = Path(__file__).resolve().parent.parent
SIMULATOR = "runtime_patches/simulated_n150"
# Distribution: (its folder, what of the checkout its wheel holds).
DISTRIBUTIONS = {
    "llama-alspec": (
        ".",
        ("models", "tt_kernels", *(f"runtime_patches/{part}" for part in ("board", "sgdc", "profiling"))),
    ),
    "simulated-n150": (SIMULATOR, (SIMULATOR,)),
}
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "build", "tests", "pyproject.toml")
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


@pytest.fixture(scope="module", params=DISTRIBUTIONS)
def distribution(request) -> tuple[str, tuple[str, ...]]:
    """Its folder, and the folders that its wheel should hold."""
    return DISTRIBUTIONS[request.param]


@pytest.fixture(scope="module")
def wheel(distribution, tmp_path_factory) -> Path:
    """The wheel, built from a copy: building leaves folders behind."""
    copy, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    sources, held = ROOT / distribution[0], distribution[1]
    for inside in held:
        place = copy / (ROOT / inside).relative_to(sources)
        shutil.copytree(ROOT / inside, place, ignore=IGNORED, dirs_exist_ok=True)
    for file in sources.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy)
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


def test_the_wheel_holds_its_files_and_they_run_outside_the_checkout(wheel, distribution, environment, tmp_path):
    files, held = set(), distribution[1]
    for folder in held:
        for place, folders, names in os.walk(ROOT / folder, followlinks=True):
            left_out = IGNORED(place, [*folders, *names])
            folders[:] = [name for name in folders if name not in left_out]
            files |= {str((Path(place) / name).relative_to(ROOT)) for name in names if name not in left_out}
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert len(files) > 100 and sorted(files ^ inside) == []

    top = [folder.replace("/", ".") for folder in held]
    lines = [line.split() for line in run([environment / "python", "-c", IMPORTS, *top], tmp_path).splitlines()]
    assert {name for name, _ in lines} >= {
        str(Path(file).parent).replace("/", ".") for file in files if "__init__" in file
    }
    assert [folder for _, folder in lines if not Path(folder).is_relative_to(environment.parent)] == []

    # 1: this machine lacks a board, or the RISC-V compiler.
    if SIMULATOR in held:
        command = [environment / "python", "-m", "runtime_patches.simulated_n150"]
        assert "simulator: " in run([*command, "doctor"], tmp_path, codes=(0, 1))
        assert "--patch" in run([*command, "run", "--help"], tmp_path)
    else:
        assert "--attention" in run([environment / "llama-alspec", "--help"], tmp_path)
        assert "silicon: " in run(
            [environment / "python", "-m", "runtime_patches.board.doctor"], tmp_path, codes=(0, 1)
        )


def test_pinned_versions_are_those_that_the_patches_were_made_for():
    for folder, _ in DISTRIBUTIONS.values():
        text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
        assert set(re.findall(r'"ttnn==([\d.]+)"', text)) == set(SUPPORTED_VERSIONS)
    assert f'"wolfpine=={WOLFPINE_VERSION}"' in text
