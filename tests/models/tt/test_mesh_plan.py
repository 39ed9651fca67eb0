# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Mesh plans: how they are named, which models they can split, and which boards a machine has."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from models.llama31_8b.config import preset
from models.llama31_8b.tt.mesh import Board, MeshError, MeshShape, check_boards, find_boards
from runtime_patches import sgdc
from runtime_patches.board.runtime_root import find_ttnn_dir
from tests.support.machines import Boards
from tt_kernels.compute_gate import op as compute_gate

LLAMA = preset("llama-3.1-8b")


class MadeUpTtnn(ModuleType):
    """ttnn on a machine with `chips` chips, `on_pcie` of them PCIe devices.

    links: whether a mesh opens; without them it raises RuntimeError, as ttnn does. fabric: every fabric that was set,
    in order, "on" or "off". closed: the meshes that were closed, each as open_mesh_device names it. options: of the
    last one that was opened.
    """

    def __init__(self, chips: int, on_pcie: int, links: bool) -> None:
        super().__init__("ttnn")
        self.get_num_devices, self.get_num_pcie_devices = lambda: chips, lambda: on_pcie
        self.FabricConfig = SimpleNamespace(FABRIC_1D="on", DISABLED="off")
        self.MeshShape = lambda *shape: shape
        self.device = SimpleNamespace(get_max_worker_l1_unreserved_size=lambda: 1 << 20)
        self.links = links
        self.fabric: list[str] = []
        self.closed: list[str] = []
        self.options: dict[str, int] = {}
        self.set_fabric_config, self.close_mesh_device = self.fabric.append, self.closed.append

    def open_mesh_device(self, shape: tuple[int, int], **options) -> str:
        if not self.links:
            raise RuntimeError(f"no links for {shape}")
        self.options = options
        return f"mesh {shape}"


def make_up_ttnn(monkeypatch, chips: int = 1, on_pcie: int | None = None, links: bool = True) -> MadeUpTtnn:
    """Put a made-up ttnn in place of the real one until the test ends. on_pcie: None is all chips."""
    made_up = MadeUpTtnn(chips, chips if on_pcie is None else on_pcie, links)
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
        (0, 0, "has 0"),
    ],
)
def test_what_ttnn_finds_is_checked_before_anything_is_set_or_opened(monkeypatch, chips, on_pcie, words):
    ttnn = make_up_ttnn(monkeypatch, chips, on_pcie)
    with pytest.raises(MeshError, match=words):
        MeshShape(1, 2).open()
    assert ttnn.fabric == []


def test_a_machine_without_boards_is_told_how_to_simulate(monkeypatch):
    def none() -> int:
        raise RuntimeError("TT_FATAL @ tt_cluster.cpp:129\ninfo:\nNo chips detected in the cluster\nbacktrace:\n --- x")

    monkeypatch.setattr(make_up_ttnn(monkeypatch), "get_num_devices", none)
    with pytest.raises(MeshError, match=r"^no board here; .*simulated_n150 run .*--mesh 2x1 --grid 2x2 -- PROGRAM$"):
        MeshShape(2, 1).open()


def test_a_mesh_that_does_not_open_leaves_no_fabric_on(monkeypatch):
    ttnn = make_up_ttnn(monkeypatch, 2, links=False)
    with pytest.raises(RuntimeError, match=r"no links for \(1, 2\)"):
        MeshShape(1, 2).open()
    assert ttnn.fabric == ["on", "off"]


@pytest.mark.parametrize("patched", [True, False])
def test_a_mesh_whose_gate_cannot_be_opened_is_closed_and_one_without_a_gate_opens(monkeypatch, patched):
    def broken(device):
        raise ArithmeticError("no program runs")

    root = sgdc.build_patched_root() if patched else find_ttnn_dir()
    monkeypatch.setenv("TT_METAL_RUNTIME_ROOT", str(root))
    monkeypatch.setattr(compute_gate, "clear_compute_gate", broken)
    ttnn = make_up_ttnn(monkeypatch)
    if patched:
        with pytest.raises(ArithmeticError, match="no program runs"):
            MeshShape().open()
        assert ttnn.closed == ["mesh (1, 1)"]
    else:
        assert MeshShape().open() == "mesh (1, 1)" and ttnn.closed == []


def test_a_mesh_leaves_programs_the_room_they_are_given(monkeypatch):
    ttnn = make_up_ttnn(monkeypatch)
    monkeypatch.setattr(compute_gate, "require_patched", lambda: None)
    monkeypatch.setattr(compute_gate, "clear_compute_gate", lambda mesh: None)
    MeshShape().open(trace_region_size=7)
    assert ttnn.options == {"trace_region_size": 7}
    MeshShape().open(kernel_bytes=1 << 18)
    assert ttnn.options == {"worker_l1_size": (1 << 20) - (1 << 18)}


def test_option_before_environment_before_one_chip():
    environment = {"MESH_DEVICE": "1x4"}
    assert MeshShape.choose("1x2", environment).shape == (1, 2)
    assert MeshShape.choose(None, environment).shape == (1, 4)
    assert MeshShape.choose(None, {}).shape == (1, 1)


@pytest.mark.parametrize(
    "change, mesh, words",
    [
        ({"num_key_value_heads": 4}, "1x8", "num_key_value_heads = 4, which 8 chips"),
        (
            {"num_attention_heads": 36, "num_key_value_heads": 36},
            "1x8",
            "num_attention_heads = 36, which 8 chips",
        ),
        ({"hidden_size": 4096 + 32}, "1x2", "hidden_size = 4128"),
        ({"intermediate_size": 1000}, "1x1", "intermediate_size = 1000"),
        ({"head_dim": 96}, "1x1", "head_dim = 96"),
        ({"num_attention_heads": 64}, "1x1", "64 query heads per chip"),
    ],
)
def test_models_that_cannot_be_split_are_refused(change, mesh, words):
    with pytest.raises(MeshError, match=words):
        MeshShape.parse(mesh).check_model(replace(LLAMA, **change))


def test_plans_import_neither_ttnn_nor_torch():
    code = (
        "import sys, perf.footprint.__main__;"
        "from models.llama31_8b.tt import mesh, precision;"
        "sys.exit(bool({'ttnn', 'torch'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


WORMHOLE, BLACKHOLE = "0x401e", "0xb140"


def machine(folder: Path, *boards: tuple[str | None, str | None]) -> dict[str, Path]:
    """Return what find_boards takes, of boards of these types and PCI device ids."""
    found = Boards(folder)
    for number, board in enumerate(boards):
        found.set(number, *board)
    return {"devices": found.devices, "sysfs": found.sysfs}


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
