# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Mesh plans: how they are named, which models they can split, and which boards a machine has."""

import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from models.llama31_8b.config import preset
from models.llama31_8b.tt.mesh import Board, MeshError, MeshShape, check_boards, find_boards
from tests.support.machines import Boards
from tt_kernels.compute_gate import op as compute_gate

LLAMA = preset("llama-3.1-8b")


@pytest.fixture
def ttnn(monkeypatch) -> mock.MagicMock:
    """A ttnn in place of the real one, on a machine with two boards whose mesh opens."""
    made_up = mock.MagicMock()
    made_up.get_num_devices.return_value = made_up.get_num_pcie_devices.return_value = 2
    made_up.device.get_max_worker_l1_unreserved_size.return_value = 1 << 20
    monkeypatch.setitem(sys.modules, "ttnn", made_up)
    return made_up


@pytest.mark.parametrize(
    "text, shape",
    [
        ("1x1", (1, 1)),
        ("1X8", (1, 8)),
        (" 2x4 ", (2, 4)),
        ("N150", (1, 1)),
        ("n150x4", (1, 4)),
        ("(1, 2)", (1, 2)),
    ],
)
def test_names(text, shape):
    plan = MeshShape.parse(text)
    assert plan.shape == shape and plan.chips == shape[0] * shape[1]
    assert MeshShape.parse(str(plan)) == plan


@pytest.mark.parametrize("text", ["", "8", "3x1", "1x16", "T3K", "1x2x4", "0x1"])
def test_meshes_that_do_not_exist_are_refused(text):
    with pytest.raises(MeshError, match="mesh"):
        MeshShape.parse(text)


@pytest.mark.parametrize("text, same", [("N300", "N150x2"), ("t3k", "N150x8")])
def test_machines_of_other_cards_are_told_the_mesh_of_as_many_chips(text, same):
    with pytest.raises(MeshError, match=f"'{text}' is of other boards than N150.*as many chips: {same}$"):
        MeshShape.parse(text)
    with pytest.raises(MeshError, match="'P150' is of other boards than N150, the only ones this runs on$"):
        MeshShape.parse("P150")


def test_a_choice_that_cannot_be_read_says_where_it_comes_from():
    with pytest.raises(MeshError, match="^MESH_DEVICE: cannot read the mesh 'banana'"):
        MeshShape.choose(None, {"MESH_DEVICE": "banana"})
    with pytest.raises(MeshError, match="^--mesh: no mesh 3x3"):
        MeshShape.choose("3x3", {"MESH_DEVICE": "banana"})


@pytest.mark.parametrize(
    "chips, on_pcie, words",
    [
        (1, 1, "mesh 1x2 needs 2 chips, this machine has 1"),
        (2, 1, "2 chips on 1 PCIe devices"),
        (
            RuntimeError("TT_FATAL @ tt_cluster.cpp:129\ninfo:\nNo chips detected in the cluster\nbacktrace:\n --- x"),
            0,
            r"^no board here; .*simulated_n150 run .*--mesh 1x2 --grid 2x2 -- PROGRAM$",
        ),
    ],
)
def test_what_ttnn_finds_is_checked_before_anything_is_set_or_opened(ttnn, chips, on_pcie, words):
    ttnn.get_num_devices.side_effect = [chips]
    ttnn.get_num_pcie_devices.return_value = on_pcie
    with pytest.raises(MeshError, match=words):
        MeshShape(1, 2).open()
    assert not ttnn.set_fabric_config.called and not ttnn.open_mesh_device.called


def test_a_mesh_that_does_not_open_leaves_no_fabric_on(ttnn):
    ttnn.open_mesh_device.side_effect = RuntimeError("no links")
    with pytest.raises(RuntimeError, match="no links"):
        MeshShape(1, 2).open()
    assert ttnn.set_fabric_config.call_args_list == [
        mock.call(ttnn.FabricConfig.FABRIC_1D),
        mock.call(ttnn.FabricConfig.DISABLED),
    ]


def test_collectives_have_l1_of_their_own_where_there_are_any(ttnn, monkeypatch):
    monkeypatch.setattr(compute_gate, "require_patched", mock.Mock(side_effect=RuntimeError("no gate")))
    for shape, options in (((1, 2), {"l1_small_size": 32768}), ((2, 1), {})):
        MeshShape(*shape).open()
        assert ttnn.open_mesh_device.call_args.kwargs == options


@pytest.mark.parametrize("patched", [True, False])
def test_a_mesh_whose_gate_cannot_be_opened_is_closed_and_one_without_a_gate_opens(monkeypatch, ttnn, patched):
    required = mock.Mock(side_effect=None if patched else RuntimeError("no gate"))
    monkeypatch.setattr(compute_gate, "require_patched", required)
    monkeypatch.setattr(compute_gate, "clear_compute_gate", mock.Mock(side_effect=ArithmeticError("no program runs")))
    if patched:
        with pytest.raises(ArithmeticError, match="no program runs"):
            MeshShape().open()
        ttnn.close_mesh_device.assert_called_once_with(ttnn.open_mesh_device.return_value)
    else:
        assert MeshShape().open(kernel_bytes=1 << 18) is ttnn.open_mesh_device.return_value
        assert not ttnn.close_mesh_device.called
        assert ttnn.open_mesh_device.call_args.kwargs == {"worker_l1_size": (1 << 20) - (1 << 18)}


def test_option_before_environment_before_one_chip():
    environment = {"MESH_DEVICE": "1x4"}
    assert MeshShape.choose("1x2", environment).shape == (1, 2)
    assert MeshShape.choose(None, environment).shape == (1, 4)
    assert MeshShape.choose(None, {}).shape == (1, 1)


@pytest.mark.parametrize(
    "change, mesh, words",
    [
        ({"num_key_value_heads": 4}, "1x8", "num_key_value_heads = 4, which 8 chips"),
        ({"num_attention_heads": 36, "num_key_value_heads": 36}, "1x8", "num_attention_heads = 36, which 8 chips"),
        ({"hidden_size": 4096 + 32}, "1x2", "hidden_size = 4128"),
        ({"intermediate_size": 1000}, "1x1", "intermediate_size = 1000"),
        ({"head_dim": 96}, "1x1", "head_dim = 96"),
        ({"num_attention_heads": 64}, "1x1", "64 query heads per chip"),
    ],
)
def test_models_that_cannot_be_split_are_refused(change, mesh, words):
    with pytest.raises(MeshError, match=words):
        MeshShape.parse(mesh).check_model(replace(LLAMA, **change))


WORMHOLE, BLACKHOLE = "0x401e", "0xb140"


def machine(folder: Path, *boards: tuple[str | None, str | None]) -> dict[str, Path]:
    """Return what find_boards takes, of boards of these types and PCI device ids."""
    found = Boards(folder)
    for number, board in enumerate(boards):
        found.set(number, *board)
    return {"devices": found.devices, "sysfs": found.sysfs}


@pytest.mark.parametrize(
    "kind, pci_device, shown",
    [
        ("n300", WORMHOLE, r"1: n300 \(Wormhole\)"),
        ("p150a", BLACKHOLE, r"1: p150a \(Blackhole\)"),
        ("p150a", None, r"1: p150a \(PCI device unknown\)"),
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
    assert boards == [Board(0, "n150", WORMHOLE), Board(1, None, pci_device)]
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
