# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the environment variables with which a process opens real boards.

They must be set before ttnn is imported, so these functions return them and change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from .runtime_root import (
    RuntimeRootError,
    build_runtime_root,
    find_ttnn_dir,
    merge_overlays,
    project_cache_dir,
)

# Any of these that a shell holds would keep the runtime from the boards.
NOT_SILICON = ("TT_METAL_SIMULATOR", "TT_METAL_MOCK_CLUSTER_DESC_PATH", "TT_METAL_EMULE_MODE")
SFPI_COMPILER = "compiler/bin/riscv-tt-elf-g++"
SYSTEM_SFPI = Path("/opt/tenstorrent/sfpi")

Overlays = Mapping[str, "Path | bytes"]


BOARDS = Path("/dev/tenstorrent")
# Numbers of boards, separated by commas; the runtime opens no other.
VISIBLE = "TT_VISIBLE_DEVICES"


def visible_boards(folder: Path | None = None, environment: Mapping[str, str] | None = None) -> list[int]:
    """Return the numbers of the driver's nodes in `folder` (default: BOARDS), only those that $TT_VISIBLE_DEVICES names
    where it is set. An N150 is one node."""
    folder = BOARDS if folder is None else folder
    environment = os.environ if environment is None else environment
    chosen = {part.strip() for part in environment.get(VISIBLE, "").split(",") if part.strip()}
    numbers = sorted(int(node.name) for node in folder.glob("[0-9]*") if node.name.isdecimal())
    if chosen and all(part.isdecimal() for part in chosen):
        numbers = [number for number in numbers if str(number) in chosen]
    return numbers


def real_sfpi(ttnn_dir: Path | None = None) -> Path | None:
    """Return the folder of an installed SFPI compiler: the wheel's ``runtime/sfpi`` or the system's; or None."""
    package = find_ttnn_dir() if ttnn_dir is None else Path(ttnn_dir)
    for folder in (package / "runtime" / "sfpi", SYSTEM_SFPI):
        if os.access(folder / SFPI_COMPILER, os.X_OK):
            return folder
    return None


def silicon_environment(overlays: Overlays | None = None, *, cache_dir: Path | None = None) -> dict[str, str]:
    """Return variables for real boards: none, unless files of the runtime are to be replaced by `overlays`.

    Errors: RuntimeRootError when no SFPI compiler is installed; no other compiler is meant for silicon.
    """
    ttnn_dir, cache = find_ttnn_dir(), project_cache_dir(cache_dir)
    if real_sfpi(ttnn_dir) is None:
        raise RuntimeRootError(
            f"kernels for a real board need Tenstorrent's SFPI compiler in {SYSTEM_SFPI} or "
            f"{ttnn_dir / 'runtime' / 'sfpi'}; the release is in {ttnn_dir / 'tt_metal' / 'sfpi-version'}"
        )
    if not overlays:
        return {}
    return root_variables(
        cache, build_runtime_root(merge_overlays(caller=overlays), ttnn_dir=ttnn_dir, cache_dir=cache)
    )


def process_environment(
    variables: Mapping[str, str],
    base: Mapping[str, str] | None = None,
    *,
    unwanted: Iterable[str] = NOT_SILICON,
) -> dict[str, str]:
    """Return a whole environment for a child process: `base` (default ours) without what is `unwanted`.

    For real boards the user's own choice of root, cache and boards holds.
    """
    base = os.environ if base is None else base
    return {name: value for name, value in base.items() if name not in unwanted} | dict(variables)


def root_variables(cache: Path, root: Path, jit: str = "jit") -> dict[str, str]:
    """Return the variables that name a root and its caches.

    The root's name carries the content of toolchain and patches, so caches of two roots never mix. jit: the folder of
    kernel caches; one that holds empty kernels is never that of what is executed.
    """
    kernels, logs = cache / jit / root.name, cache / "logs"
    kernels.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    return {
        "TT_METAL_RUNTIME_ROOT": str(root),
        "TT_METAL_HOME": str(root),
        "TT_METAL_CACHE": str(kernels),
        "TT_METAL_LOGS_PATH": str(logs),  # the inspector would write into the working directory
        "TT_METAL_INSPECTOR_RPC": "0",  # all processes of a machine would share one port
        "TT_METAL_DISABLE_BACKTRACE": "1",  # addresses in stripped libraries say nothing
        "TT_LOGGER_LEVEL": os.environ.get("TT_LOGGER_LEVEL", "WARN"),
    }
