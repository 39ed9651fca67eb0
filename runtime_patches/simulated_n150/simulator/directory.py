# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Make the folder that TT_METAL_SIMULATOR names: a run.sh that starts the patched simulator, and the
chip's descriptor."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

from runtime_patches.simulated_n150.simulator.patch import SIMULATOR_PACKAGE

_TEMPLATE = Path(__file__).with_name("run.sh.template")
_LARGEST_GRID = (8, 9)
NUMBA_FOLDER = "numba"  # beside the simulators: what numba has compiled for them


def _chip_files() -> Path:
    from framework.sim import simulator_dir as installed_dir

    return installed_dir("wormhole")


def simulator_dir(cache_dir: Path, grid: tuple[int, int], python: Path) -> Path:
    """Return the folder to export as TT_METAL_SIMULATOR; it is made once for each content and then found again.

    cache_dir: where the folder (and numba's compiled kernels) are kept.
    grid: (width, height) of the chip's compute grid, 1x1 to 8x9; run.sh tells it to the server. The size tt-metal
        sees is set by the core descriptor of the runtime root.
    python: the interpreter that has wolfpine; absolute.

    The folder holds run.sh, soc_descriptor.yaml and cluster_descriptor.yaml. Safe under concurrent calls: the folder is
    filled beside its place and renamed.
    """
    width, height = grid
    if not (1 <= width <= _LARGEST_GRID[0] and 1 <= height <= _LARGEST_GRID[1]):
        raise ValueError(f"grid must be between 1x1 and {_LARGEST_GRID[0]}x{_LARGEST_GRID[1]}, got {width}x{height}")
    python = Path(python)
    if not python.is_absolute():
        raise ValueError(f"python must be an absolute path, got {str(python)!r}")
    cache_dir = Path(cache_dir).absolute()
    project = Path(__file__).resolve().parents[3]
    script = _TEMPLATE.read_text()
    for name, value in (
        ("@PROJECT@", project),
        ("@NUMBA_CACHE@", cache_dir / NUMBA_FOLDER),
        ("@PYTHON@", python),
        ("@GRID@", f"{width}x{height}"),
    ):
        script = script.replace(name, shlex.quote(str(value)))
    descriptors = {
        name: (_chip_files() / name).read_bytes() for name in ("soc_descriptor.yaml", "cluster_descriptor.yaml")
    }
    key = hashlib.sha256(script.encode() + b"".join(descriptors.values())).hexdigest()[:12]
    target = cache_dir / f"simulator-{version(SIMULATOR_PACKAGE)}-{width}x{height}-{key}"
    if (target / "run.sh").is_file():
        return target

    cache_dir.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=cache_dir))
    try:
        for name, content in descriptors.items():
            (building / name).write_bytes(content)
        (building / "run.sh").write_text(script)
        os.chmod(building / "run.sh", 0o755)
        os.chmod(building, 0o755)
        os.rename(building, target)
    except OSError:
        shutil.rmtree(building, ignore_errors=True)
        if not (target / "run.sh").is_file():
            raise
    return target
