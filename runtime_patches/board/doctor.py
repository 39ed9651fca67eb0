# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tell what a board needs of this machine, what is missing, and the exact line that fixes it.

    python -m runtime_patches.board.doctor [--json]

Nothing here imports ttnn or opens a device, so that it answers in a moment and everywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from . import environment
from .command_line import OneLineParser, run_command
from .command_line import version as installed
from .environment import SYSTEM_SFPI, real_sfpi
from .runtime_root import (
    SUPPORTED_VERSIONS,
    RuntimeRootError,
    find_ttnn_dir,
    project_cache_dir,
    ttnn_version,
)

PYTHONS = ((3, 10), (3, 12))  # ttnn has wheels for these two
SILICON = "silicon"  # what a board's findings are needed for


@dataclass(frozen=True)
class Finding:
    """One part: whether it is present, what was found, the line that fixes it, and the modes that need it."""

    part: str
    ok: bool
    found: str
    fix: str = ""
    needed_for: tuple[str, ...] = (SILICON,)


def findings() -> list[Finding]:
    """Return every part that a board needs, in the order to fix them."""
    return [*software(), cache_folder(), sfpi(), board_nodes()]


def why_not(mode: str = SILICON, found: Sequence[Finding] | None = None) -> str | None:
    """Return why `mode` cannot run here, with the lines that fix it; None when it can."""
    lacking = [f for f in (findings() if found is None else found) if mode in f.needed_for and not f.ok]
    return "; ".join(f"{f.part}: {f.found} ({f.fix})" for f in lacking) or None


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


def as_table(found: Sequence[Finding], modes: Sequence[str] = (SILICON,)) -> str:
    """Return the findings for a terminal: one line per part, below it the line that fixes it, then every mode."""
    width = max(len(f.part) for f in found)
    lines = []
    for f in found:
        mark = "ok" if f.ok else ("MISSING" if set(modes) & set(f.needed_for) else "absent")
        lines.append(f"{mark:<8}{f.part:<{width}}  {f.found}")
        if not f.ok:
            lines.append(f"{'':<8}{'':<{width}}  -> {f.fix}")
    lines += [f"{mode}: {'not ready' if why_not(mode, found) else 'ready'}" for mode in modes]
    return "\n".join(lines)


def as_json(found: Sequence[Finding], modes: Sequence[str] = (SILICON,)) -> dict:
    """Return the findings and, for each mode, None or the reason it cannot run, for programs."""
    return {"findings": [asdict(f) for f in found], "why_not": {mode: why_not(mode, found) for mode in modes}}


def software(needed_for: tuple[str, ...] = (SILICON,)) -> list[Finding]:
    """Return the findings on Python, the machine, ttnn and torch."""
    here = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    fits = sys.version_info[:2] in PYTHONS and sys.implementation.name == "cpython"
    system, machine = platform.system(), platform.machine()
    on_linux = (system, machine) == ("Linux", "x86_64")
    return [
        Finding(
            "Python", fits, here, "use CPython 3.12 or 3.10: make PYTHON=/path/to/python3.12 setup-test", needed_for
        ),
        Finding("machine", on_linux, f"{system} {machine}", "ttnn has wheels for Linux on x86_64 only", needed_for),
        _ttnn(needed_for),
        distribution("torch", None, "pip install torch", needed_for),
    ]


def _ttnn(needed_for: tuple[str, ...]) -> Finding:
    wanted = f"pip install ttnn=={SUPPORTED_VERSIONS[0]}"
    try:
        folder = find_ttnn_dir()
        version = ttnn_version(folder)
    except RuntimeRootError:
        return Finding("ttnn", False, "not installed", wanted, needed_for)
    return Finding("ttnn", version in SUPPORTED_VERSIONS, f"{version} in {folder}", wanted, needed_for)


def distribution(name: str, version: str | None, fix: str, needed_for: tuple[str, ...]) -> Finding:
    """Return the finding on an installed distribution; `version` None takes any."""
    found = installed(name)
    return Finding(name, found is not None and version in (None, found), found or "not installed", fix, needed_for)


def cache_folder(needed_for: tuple[str, ...] = (SILICON,)) -> Finding:
    """Return the finding on the project's cache folder, which is made."""
    folder = project_cache_dir()
    fix = "set LLAMA_ALSPEC_CACHE to a folder that can be written"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ok = os.access(folder, os.W_OK)
    except OSError as error:
        return Finding("cache folder", False, f"{folder}: {error.strerror}", fix, needed_for)
    return Finding("cache folder", ok, str(folder) if ok else f"{folder} cannot be written", fix, needed_for)


def installed_sfpi() -> str | None:
    """Return the folder of the SFPI compiler that the installed ttnn would use, as text; or None."""
    try:
        folder = real_sfpi()
    except RuntimeRootError:  # no ttnn
        return None
    return str(folder) if folder else None


def sfpi(needed_for: tuple[str, ...] = (SILICON,)) -> Finding:
    """Return the finding on Tenstorrent's SFPI compiler."""
    folder = installed_sfpi()
    return Finding(
        "SFPI compiler",
        folder is not None,
        folder or "not installed (only silicon needs it)",
        f"install Tenstorrent's SFPI release to {SYSTEM_SFPI}; its version is in ttnn/tt_metal/sfpi-version",
        needed_for,
    )


def board_nodes() -> Finding:
    """Return the finding on the boards that this process may open."""
    visible, every = environment.visible_boards(), environment.visible_boards(environment={})
    found = f"{len(visible)} in {environment.BOARDS}" if visible else "none"
    fix = "install a board and the tt-kmd driver"
    if every and not visible:
        chosen = os.environ[environment.VISIBLE]
        found = f"none of the {len(every)} in {environment.BOARDS} is named by {environment.VISIBLE}={chosen}"
        fix = f"name some of {', '.join(map(str, every))}, or unset {environment.VISIBLE}"
    return Finding("Tenstorrent boards", bool(visible), found, fix, (SILICON,))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings; return 0 when a board can be used, else 1."""
    parser = OneLineParser(prog="python -m runtime_patches.board.doctor", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    options = parser.parse_args(argv)
    found = findings()
    print(json.dumps(as_json(found), indent=1) if options.json else as_table(found))
    return 1 if why_not(SILICON, found) else 0


if __name__ == "__main__":
    sys.exit(run_command("python -m runtime_patches.board.doctor", main))
