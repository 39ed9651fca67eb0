# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which boards the driver shows. Only N150 will do: other chips have another grid, memory or link.

Read from sysfs, before a device is opened. tt-kmd names a board's type in
`/sys/class/tenstorrent/tenstorrent!N/tt_card_type` (n150, n300, galaxy-wormhole, p100, p150a and so on; unknown), if
driver and firmware have telemetry; the PCI device id always tells the architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from runtime_patches.board.boards import visible_boards

from .mesh import MeshError

SYSFS = Path("/sys/class/tenstorrent")
N150 = "n150"
WORMHOLE = "0x401e"
ARCHITECTURES = {"0xfaca": "Grayskull", WORMHOLE: "Wormhole", "0xb140": "Blackhole"}


class Board(NamedTuple):
    """number: of its node in /dev/tenstorrent. kind: tt_card_type, None if the driver does not say. pci_device: such as
    0x401e, None if sysfs does not say."""

    number: int
    kind: str | None
    pci_device: str | None

    @property
    def may_be_n150(self) -> bool:
        """Return False if sysfs says that it is another board."""
        return (self.kind or N150) == N150 and (self.pci_device or WORMHOLE) == WORMHOLE

    def __str__(self) -> str:
        architecture = ARCHITECTURES.get(self.pci_device or "", f"PCI device {self.pci_device or 'unknown'}")
        return f"{self.number}: {self.kind or 'a board of unknown type'} ({architecture})"


def find_boards(
    devices: Path | None = None, sysfs: Path | None = None, environment: Mapping[str, str] | None = None
) -> list[Board]:
    """Return the boards this process may open, by number: `visible_boards`, as described by sysfs (default: SYSFS)."""
    folder = SYSFS if sysfs is None else sysfs
    return [_board(number, folder / f"tenstorrent!{number}") for number in visible_boards(devices, environment)]


def _board(number: int, folder: Path) -> Board:
    kind = _text(folder / "tt_card_type")
    return Board(number, None if kind == "unknown" else kind, _text(folder / "device" / "device"))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip().lower() or None
    except (OSError, UnicodeDecodeError):
        return None


def check_boards(boards: list[Board]) -> list[Board]:
    """Return the boards that sysfs does not tell from an N300. Raises MeshError, with what was found, if one is
    certainly not an N150."""
    if others := [str(board) for board in boards if not board.may_be_n150]:
        raise MeshError(
            f"N150 boards are needed, /dev/tenstorrent has {', '.join(others)}; if there are N150 too, choose them by "
            "number with TT_VISIBLE_DEVICES"
        )
    return [board for board in boards if board.kind is None]
