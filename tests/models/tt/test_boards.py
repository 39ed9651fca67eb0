# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which boards a machine has, on made-up trees of /dev/tenstorrent and sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.llama31_8b.tt.mesh import Board, MeshError, check_boards, find_boards

WORMHOLE, BLACKHOLE = "0x401e", "0xb140"


def machine(folder: Path, *boards: tuple[str | None, str | None]) -> dict[str, Path]:
    """Nodes and sysfs of boards of these types and PCI device ids, as tt-kmd lays them out."""
    devices, sysfs = folder / "dev", folder / "sys"
    devices.mkdir()
    (devices / "by-id").mkdir()
    for number, (kind, pci_device) in enumerate(boards):
        (devices / str(number)).touch()
        pci = folder / "pci" / f"0000:0{number}:00.0"
        pci.mkdir(parents=True)
        own = sysfs / f"tenstorrent!{number}"
        own.mkdir(parents=True)
        (own / "device").symlink_to(pci)
        if pci_device is not None:
            (pci / "device").write_text(f"{pci_device}\n")
        if kind is not None:
            (own / "tt_card_type").write_text(f"{kind}\n")
    return {"devices": devices, "sysfs": sysfs}


def test_n150_cards_pass(tmp_path):
    boards = find_boards(**machine(tmp_path, ("n150", WORMHOLE), ("n150", WORMHOLE)), environment={})
    assert boards == [Board(0, "n150", WORMHOLE), Board(1, "n150", WORMHOLE)]
    assert check_boards(boards) == []


@pytest.mark.parametrize(
    "kind, pci_device, shown",
    [
        ("n300", WORMHOLE, r"1: n300 \(Wormhole\)"),
        ("galaxy-wormhole", WORMHOLE, r"1: galaxy-wormhole \(Wormhole\)"),
        ("p150a", BLACKHOLE, r"1: p150a \(Blackhole\)"),
        ("p150a", None, r"1: p150a \(PCI device unknown\)"),
        (None, BLACKHOLE, r"1: a board of unknown type \(Blackhole\)"),
        ("unknown", BLACKHOLE, r"1: a board of unknown type \(Blackhole\)"),
        (None, "0xfaca", r"1: a board of unknown type \(Grayskull\)"),
        ("n150", "0x1234", r"1: n150 \(PCI device 0x1234\)"),
    ],
)
def test_other_cards_are_refused_with_what_was_found(tmp_path, kind, pci_device, shown):
    found = machine(tmp_path, ("n150", WORMHOLE), (kind, pci_device))
    with pytest.raises(MeshError, match=f"N150 boards are needed, /dev/tenstorrent has {shown};"):
        check_boards(find_boards(**found, environment={}))
    # The other board can be left out.
    assert check_boards(find_boards(**found, environment={"TT_VISIBLE_DEVICES": "0"})) == []


@pytest.mark.parametrize("kind, pci_device", [(None, WORMHOLE), ("unknown", WORMHOLE), (None, None)])
def test_what_sysfs_cannot_tell_is_returned(tmp_path, kind, pci_device):
    boards = find_boards(**machine(tmp_path, ("n150", WORMHOLE), (kind, pci_device)), environment={})
    assert check_boards(boards) == [Board(1, None, pci_device)]


def test_a_node_without_sysfs_and_a_machine_without_boards(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "3").touch()
    assert find_boards(tmp_path / "dev", tmp_path / "sys", {}) == [Board(3, None, None)]
    assert find_boards(tmp_path / "none", tmp_path / "sys", {}) == []


def test_visible_devices_given_as_pci_addresses_choose_nothing_here(tmp_path):
    """Every board is looked at: which one an address means is ttnn's to say."""
    found = machine(tmp_path, ("n150", WORMHOLE), ("n300", WORMHOLE))
    assert len(find_boards(**found, environment={"TT_VISIBLE_DEVICES": "0000:00:00.0"})) == 2
    assert [c.number for c in find_boards(**found, environment={"TT_VISIBLE_DEVICES": " 1 ,7"})] == [1]
