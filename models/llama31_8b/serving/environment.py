# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The virtual environment of vLLM's server: vLLM for no device of its own, vllm-tt-plugin, ttnn.

vLLM comes from its source distribution with VLLM_TARGET_DEVICE=empty and without its dependencies, since those of its
wheel are CUDA's; they are its requirements/common.txt. opencv is the last that takes ttnn's numpy below 2.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock
from loguru import logger

VLLM = "0.25.1"
PLUGIN_COMMIT = "b95c050"
_TORCH = "torch==2.11.0"
_NUMPY = "numpy<2"
_BUILD = ("wheel", "setuptools<81,>=77", "setuptools-scm", "setuptools-rust", "packaging", "jinja2", "cmake", "ninja")
_DEVICE = ("ttnn==0.81.1", "wolfpine==2.2", "numba>=0.60", "loguru", "gguf", "tblib", "torchvision==0.26.0")
_OPENCV = "opencv-python-headless==4.11.0.86"
_DONE = "complete"


class ServingEnvironmentError(RuntimeError):
    """The environment cannot be made; the message names the step and pip's last line."""


def check_plugin(folder: Path) -> Path:
    """Return a folder's absolute path. Raises ValueError unless it is vllm-tt-plugin's source, or if it takes every
    decode step for a prefill (its issue 66), so that nothing would be decoded or guessed."""
    runner = folder / "src" / "vllm_tt_plugin" / "model_runner.py"
    if not runner.is_file():
        raise ValueError(f"{folder} is not a clone of github.com/tenstorrent/vllm-tt-plugin: no src/vllm_tt_plugin")
    if re.search(r"num_computed_tokens_cpu\[row\]\s*<\s*input_batch\.num_tokens\[row\]", runner.read_text()):
        raise ValueError(
            f"{folder} prefills each token (vllm-tt-plugin's issue 66): check out {PLUGIN_COMMIT} or later"
        )
    return folder.resolve()


def interpreter(root: Path, plugin: Path) -> Path:
    """Return the Python of the environment for a plugin's folder below `root`; made if absent, which downloads two
    gigabytes. Raises ServingEnvironmentError."""
    name = hashlib.sha256("\n".join((VLLM, sys.version, str(plugin), _TORCH, *_BUILD, *_DEVICE)).encode()).hexdigest()
    folder = root / name[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with FileLock(f"{folder}.lock"):
        if not (folder / _DONE).exists():
            logger.info("making vLLM's environment in {} (minutes)", folder)
            venv.create(folder, clear=True, with_pip=True)
            _install(python, plugin)
            (folder / _DONE).touch()
    return python


def _install(python: Path, plugin: Path) -> None:
    _pip(python, "build tools", [*_BUILD])
    _pip(python, "torch and ttnn", [_TORCH, _NUMPY, *_DEVICE])
    source = ["--no-deps", "--no-build-isolation", "--no-binary", "vllm", f"vllm=={VLLM}"]
    # Without the override pip finds the version 0.25.1+empty and refuses it.
    empty = {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": VLLM}
    with tempfile.TemporaryDirectory() as scratch:
        _pip(python, "vLLM's source", [*source, "-d", scratch], empty, command="download")
        _pip(python, "vLLM", source, empty)
        listed = Path(scratch) / "common.txt"
        listed.write_text(common_requirements(next(Path(scratch).glob("vllm-*.tar.gz"))))
        _pip(python, "vLLM's dependencies", ["-r", str(listed), _NUMPY, _TORCH, *_DEVICE])
    _pip(python, "vllm-tt-plugin", ["--no-deps", "-e", str(plugin)])


def common_requirements(sdist: Path) -> str:
    """Return requirements/common.txt of a source distribution of vLLM with an opencv for numpy below 2. Raises
    ServingEnvironmentError for an archive without it."""
    with tarfile.open(sdist) as archive:
        for member in archive:
            if member.name.endswith("/requirements/common.txt"):
                file = archive.extractfile(member)
                if file is not None:
                    return re.sub(r"(?m)^opencv-python-headless.*$", _OPENCV, file.read().decode())
    raise ServingEnvironmentError(f"{sdist.name} has no requirements/common.txt")


def _pip(
    python: Path, step: str, arguments: Sequence[str], variables: dict[str, str] | None = None, command: str = "install"
) -> None:
    line = [str(python), "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **(variables or {})}, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ServingEnvironmentError(f"cannot install {step}: {last}")
