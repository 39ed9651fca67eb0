# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tell what of the simulated N150 is on this machine, what is missing, and the exact line that fixes it.

Nothing here imports ttnn or opens a device, so that it answers in a moment and everywhere.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass

from loguru import logger

from runtime_patches import boards
from runtime_patches.runtime_root import (
    SUPPORTED_VERSIONS,
    RuntimeRootError,
    find_ttnn_dir,
    project_cache_dir,
    ttnn_version,
)
from runtime_patches.simulated_n150.environment import SYSTEM_SFPI, real_sfpi

WOLFPINE_VERSION = "2.2"
PYTHONS = ((3, 10), (3, 12))  # ttnn has wheels for these two
MODES = ("simulator", "mock mesh", "silicon")


@dataclass(frozen=True)
class Finding:
    """One part: whether it is present, what was found, the line that fixes it, and the modes that need it."""

    part: str
    ok: bool
    found: str
    fix: str = ""
    needed_for: tuple[str, ...] = ("simulator", "mock mesh")


def findings() -> list[Finding]:
    """Return every part of the simulated N150, the mock meshes and silicon, in the order to fix them."""
    return [
        _interpreter(),
        _machine(),
        _ttnn(),
        _torch(),
        _wolfpine(),
        _distribution("numba", None, "pip install numba", ("simulator",)),
        *_compiler(),
        _cache(),
        _sfpi(),
        _boards(),
    ]


def why_not(mode: str, found: list[Finding] | None = None) -> str | None:
    """Return why `mode` (one of :data:`MODES`) cannot run here, with the lines that fix it; None when it can."""
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; there are {', '.join(MODES)}")
    lacking = [f for f in (findings() if found is None else found) if mode in f.needed_for and not f.ok]
    return "; ".join(f"{f.part}: {f.found} ({f.fix})" for f in lacking) or None


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


def disk() -> dict[str, int]:
    """Return the bytes that the project's cache takes and that are free on its disk: {"cache": ..., "free": ...}.

    Walks the cache, which takes up to a second.
    """
    folder, taken = project_cache_dir(), 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a process at work has removed it
                taken += os.lstat(os.path.join(place, name)).st_size
    existing = next(place for place in (folder, *folder.parents) if place.is_dir())
    return {"cache": taken, "free": shutil.disk_usage(existing).free}


def as_table(found: list[Finding]) -> str:
    """Return the findings for a terminal: one line per part, and below it the line that fixes it."""
    width = max(len(f.part) for f in found)
    lines = []
    for f in found:
        required = any(mode in f.needed_for for mode in ("simulator", "mock mesh"))
        mark = "ok" if f.ok else ("MISSING" if required else "absent")
        lines.append(f"{mark:<8}{f.part:<{width}}  {f.found}")
        if not f.ok:
            lines.append(f"{'':<8}{'':<{width}}  -> {f.fix}")
    for mode in MODES:
        lines.append(f"{mode}: {'not ready' if why_not(mode, found) else 'ready'}")
    return "\n".join(lines)


def as_json(found: list[Finding]) -> dict:
    """Return the findings and, for each mode, None or the reason it cannot run, for programs."""
    return {"findings": [asdict(f) for f in found], "why_not": {mode: why_not(mode, found) for mode in MODES}}


def _interpreter() -> Finding:
    here = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    ok = sys.version_info[:2] in PYTHONS and sys.implementation.name == "cpython"
    return Finding("Python", ok, here, "use CPython 3.12 or 3.10: make PYTHON=/path/to/python3.12 setup-test", MODES)


def _machine() -> Finding:
    system, machine = platform.system(), platform.machine()
    ok = (system, machine) == ("Linux", "x86_64")
    return Finding("machine", ok, f"{system} {machine}", "ttnn has wheels for Linux on x86_64 only", MODES)


def _ttnn() -> Finding:
    wanted = f"pip install ttnn=={SUPPORTED_VERSIONS[0]}"
    try:
        folder = find_ttnn_dir()
        version = ttnn_version(folder)
    except RuntimeRootError:
        return Finding("ttnn", False, "not installed", wanted, MODES)
    return Finding("ttnn", version in SUPPORTED_VERSIONS, f"{version} in {folder}", wanted, MODES)


def _torch() -> Finding:
    return _distribution("torch", None, "pip install torch", MODES)


def _wolfpine() -> Finding:
    return _distribution("wolfpine", WOLFPINE_VERSION, f"pip install wolfpine=={WOLFPINE_VERSION}", ("simulator",))


def _distribution(name: str, version: str | None, fix: str, needed_for: tuple[str, ...]) -> Finding:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", fix, needed_for)
    return Finding(name, version is None or found == version, found, fix, needed_for)


def _compiler() -> list[Finding]:
    """Return the Debian packages; a mock mesh does without them where a real SFPI compiler is installed."""
    from runtime_patches.simulated_n150.compiler import toolchain

    sfpi = _ttnn().ok and real_sfpi()
    needed = ("simulator",) if sfpi else ("simulator", "mock mesh")
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


def _cache() -> Finding:
    folder = project_cache_dir()
    fix = "set LLAMA_ALSPEC_CACHE to a folder that can be written"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ok = os.access(folder, os.W_OK)
    except OSError as error:
        return Finding("cache folder", False, f"{folder}: {error.strerror}", fix)
    return Finding("cache folder", ok, str(folder) if ok else f"{folder} cannot be written", fix)


def _sfpi() -> Finding:
    folder = real_sfpi() if _ttnn().ok else None
    return Finding(
        "SFPI compiler",
        folder is not None,
        str(folder) if folder else "not installed (only silicon needs it)",
        f"install Tenstorrent's SFPI release to {SYSTEM_SFPI}; its version is in ttnn/tt_metal/sfpi-version",
        ("silicon",),
    )


def _boards() -> Finding:
    visible, every = boards.visible_boards(), boards.visible_boards(environment={})
    found = f"{len(visible)} in {boards.BOARDS}" if visible else "none"
    fix = "install a board and the tt-kmd driver"
    if every and not visible:
        chosen = os.environ[boards.VISIBLE]
        found = f"none of the {len(every)} in {boards.BOARDS} is named by {boards.VISIBLE}={chosen}"
        fix = f"name some of {', '.join(map(str, every))}, or unset {boards.VISIBLE}"
    return Finding("Tenstorrent boards", bool(visible), found, fix, ("silicon",))
