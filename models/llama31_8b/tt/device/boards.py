# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which cards the driver shows: a chip that is not an N150's has another grid, memory or link than all here assumes.

Read from sysfs, before anything opens a device. tt-kmd names a card's type in
`/sys/class/tenstorrent/tenstorrent!N/tt_card_type` (n150, n300, galaxy-wormhole, p100, p150a and so on; unknown),
where driver and firmware have telemetry; the PCI device id tells the architecture everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from runtime_patches.boards import visible_boards

from ..parallel.mesh import MeshError

SYSFS = Path("/sys/class/tenstorrent")
N150 = "n150"
WORMHOLE = "0x401e"
ARCHITECTURES = {"0xfaca": "Grayskull", WORMHOLE: "Wormhole", "0xb140": "Blackhole"}


class Card(NamedTuple):
    """number: of its node in /dev/tenstorrent. kind: tt_card_type, None where the driver does not say.
    pci_device: such as 0x401e, None where sysfs does not say."""

    number: int
    kind: str | None
    pci_device: str | None

    @property
    def may_be_n150(self) -> bool:
        """False when sysfs says that it is not."""
        return (self.kind or N150) == N150 and (self.pci_device or WORMHOLE) == WORMHOLE

    def __str__(self) -> str:
        architecture = ARCHITECTURES.get(self.pci_device or "", f"PCI device {self.pci_device or 'unknown'}")
        return f"{self.number}: {self.kind or 'a card of unknown type'} ({architecture})"


def find_cards(
    devices: Path | None = None, sysfs: Path | None = None, environment: Mapping[str, str] | None = None
) -> list[Card]:
    """The cards this process may open, by number: `visible_boards`, as sysfs (default: SYSFS) describes them."""
    folder = SYSFS if sysfs is None else sysfs
    return [_card(number, folder / f"tenstorrent!{number}") for number in visible_boards(devices, environment)]


def _card(number: int, folder: Path) -> Card:
    kind = _text(folder / "tt_card_type")
    return Card(number, None if kind == "unknown" else kind, _text(folder / "device" / "device"))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip().lower() or None
    except (OSError, UnicodeDecodeError):
        return None


def check_cards(cards: list[Card]) -> list[Card]:
    """Raises MeshError, with what was found, when one is certainly not an N150. Returns those that sysfs does not
    tell from an N300."""
    if others := [str(card) for card in cards if not card.may_be_n150]:
        raise MeshError(
            f"N150 cards are needed, in /dev/tenstorrent is {', '.join(others)}; where there are N150 too, "
            "TT_VISIBLE_DEVICES chooses them by number"
        )
    return [card for card in cards if card.kind is None]
