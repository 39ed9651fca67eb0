# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tell what of the simulated N150 is on this machine, what is missing, and the exact line that fixes it.

Nothing here imports ttnn or opens a device, so that it answers in a moment and everywhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from loguru import logger

from runtime_patches.simulated_n150 import library
from runtime_patches.simulated_n150.board import doctor as board
from runtime_patches.simulated_n150.board.doctor import Finding, disk

WOLFPINE_VERSION = "2.2"
MODES = SIMULATOR, MOCK_MESH = ("simulator", "mock mesh")
LIBRARY = "ttsim library"  # a mode of its own where one is named, and the part that names it

__all__ = ["MODES", "Finding", "as_json", "as_table", "disk", "findings", "install_packages", "why_not"]


def findings(simulator: str | None = None) -> list[Finding]:
    """Return every part of the simulated N150 and the mock meshes, in the order to fix them.

    Args:
        simulator: the path of a ttsim library that is to simulate in place of wolfpine; None where none is named.
    """
    modes = (*MODES, LIBRARY)
    return [
        *board.software(modes),
        _wolfpine(),
        board.distribution("numba", None, "pip install numba", (SIMULATOR,)),
        *([] if simulator is None else [_library(simulator)]),
        *_compiler(),
        board.cache_folder(modes),
        board.sfpi(()),
    ]


def why_not(mode: str, found: Sequence[Finding] | None = None) -> str | None:
    """Return why `mode` (one of :data:`MODES`, or LIBRARY) cannot run here, with the lines that fix it, or None."""
    if mode not in (*MODES, LIBRARY):
        raise ValueError(f"unknown mode {mode!r}; there are {', '.join((*MODES, LIBRARY))}")
    return board.why_not(mode, findings() if found is None else found)


def as_table(found: Sequence[Finding]) -> str:
    """Return the findings for a terminal: one line per part, and below it the line that fixes it."""
    return board.as_table(found, _modes(found))


def as_json(found: Sequence[Finding]) -> dict:
    """Return the findings and, for each mode, None or the reason it cannot run, for programs."""
    return board.as_json(found, _modes(found))


def _modes(found: Sequence[Finding]) -> tuple[str, ...]:
    return (*MODES, LIBRARY) if any(f.part == LIBRARY for f in found) else MODES


def missing_packages() -> list[str]:
    """Return the Debian packages of the stand-in compiler that are not installed."""
    from runtime_patches.simulated_n150.compiler import toolchain

    return list(toolchain.missing_packages())


def install_packages() -> bool:
    """Install the missing Debian packages if this user may; return True when none is missing afterwards.

    Needs apt-get, and root or a sudo that asks for no password. Every outcome is logged.
    """
    missing = missing_packages()
    if not missing:
        return True
    line = f"apt-get install -y {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        logger.warning("{} cannot be installed: this machine has no apt-get", ", ".join(missing))
        return False
    if os.geteuid() == 0:
        prefix: list[str] = []
    elif shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        prefix = ["sudo", "-n"]
    else:
        logger.warning("not root and no passwordless sudo; run: sudo {}", line)
        return False
    install = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", *missing]
    for command in (install, [*prefix, "apt-get", "update", "-qq"], install):
        # The package lists of a fresh image are empty or old: one update, then once more.
        done = subprocess.run(command, capture_output=True, text=True)
        if command is install and done.returncode == 0:
            break
    else:
        logger.warning("{} failed: {}", line, (done.stderr or done.stdout).strip()[-800:])
    return not missing_packages()


def _wolfpine() -> Finding:
    return board.distribution("wolfpine", WOLFPINE_VERSION, f"pip install wolfpine=={WOLFPINE_VERSION}", (SIMULATOR,))


def _library(path: str) -> Finding:
    try:
        found = library.check_library(path)
        library.check_chip(found)
    except ValueError as error:
        return Finding(LIBRARY, False, str(error), "get one from the releases of tenstorrent/ttsim", (LIBRARY,))
    return Finding(LIBRARY, True, f"{found}, SHA-256 {library.version(found)}", needed_for=(LIBRARY,))


def _compiler() -> list[Finding]:
    """Return the Debian packages; a mock mesh does without them where a real SFPI compiler is installed."""
    from runtime_patches.simulated_n150.compiler import toolchain

    needed = (SIMULATOR, LIBRARY) if board.installed_sfpi() else (*MODES, LIBRARY)
    missing = set(toolchain.missing_packages())
    every = " ".join(sorted(missing))
    return [
        Finding(
            name,
            name not in missing,
            "missing" if name in missing else proof,
            f"apt-get install -y {every}",
            needed,
        )
        for name, proof in toolchain.PACKAGES.items()
    ]
