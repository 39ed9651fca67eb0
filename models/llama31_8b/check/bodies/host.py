# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The host: software, driver and cards. Nothing here imports ttnn."""

from __future__ import annotations

from pathlib import Path

from models.llama31_8b.tt.boards import check_boards, find_boards
from models.llama31_8b.tt.mesh import MeshError
from runtime_patches.board import boards, doctor
from runtime_patches.board.runtime_root import ttnn_version

from ..context import Context
from ..findings import Check, CouldNotRun

DRIVER = Path("/sys/module/tenstorrent/version")
HUGEPAGES = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
IOMMU = Path("/sys/class/iommu")


def host(context: Context) -> list[Check]:
    """Check the software, and with boards driver and hugepages. Errors: CouldNotRun if software is missing."""
    findings = doctor.software() if context.simulated else [*doctor.software(), doctor.cache_folder(), doctor.sfpi()]
    if lacking := [one for one in findings if not one.ok]:
        raise CouldNotRun("; ".join(f"{one.part}: {one.found} ({one.fix})" for one in lacking))
    checks = [Check("ttnn", ttnn_version())]
    return checks if context.simulated else checks + driver_checks()


def driver_checks(driver: Path = DRIVER, hugepages: Path = HUGEPAGES, iommu: Path = IOMMU) -> list[Check]:
    """Check the driver's files: it must be loaded, and there must be hugepages or an IOMMU."""
    version, pages = _text(driver), _text(hugepages)
    translated = iommu.is_dir() and any(iommu.iterdir())
    ready = translated or (pages or "0") != "0"
    return [
        Check("driver", version or f"no {driver}", "a version of tt-kmd", version is not None),
        Check("hugepages of 1 GB or IOMMU", f"{pages or 'no'} hugepages, IOMMU {'on' if translated else 'off'}",
              "one of them", ready),
    ]  # fmt: skip


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def cards(context: Context) -> list[Check]:
    """Check that there are cards, and that all of them are N150."""
    if context.simulated:
        return [Check("cards", "simulated")]
    found = find_boards()
    try:
        check_boards(found)
        why = ""
    except MeshError as error:
        why = str(error)
    shown = ", ".join(map(str, found)) or f"none in {boards.BOARDS}"
    return [Check("cards", why or shown, "N150 boards", bool(found) and not why)]
