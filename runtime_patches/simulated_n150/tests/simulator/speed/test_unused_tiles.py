# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Writes that go to every worker make no tile, and are there when something else makes it."""

import pytest

from runtime_patches.simulated_n150 import doctor
from runtime_patches.simulated_n150.board.runtime_root import find_ttnn_dir
from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.speed.unused_tiles import (
    FABRIC_TABLES,
    GO_MESSAGE,
    GO_MESSAGE_INDEX,
    PATCH,
    READ_POINTER,
    uses_nothing,
)

ZEROS = bytes(4)


@pytest.mark.parametrize(
    ("coordinate", "address", "data", "kept"),
    [
        ((9, 11), READ_POINTER, ZEROS, True),  # last column, last row
        ((1, 1), READ_POINTER, ZEROS, False),  # within 2x1
        ((2, 1), READ_POINTER, ZEROS, False),
        ((3, 1), READ_POINTER, ZEROS, True),
        ((2, 2), READ_POINTER, ZEROS, True),
        ((9, 11), READ_POINTER, b"\1\0\0\0", False),
        ((9, 11), READ_POINTER, bytes(8), False),
        ((9, 11), READ_POINTER + 4, ZEROS, False),
        ((9, 11), GO_MESSAGE, ZEROS, True),
        ((1, 1), GO_MESSAGE, ZEROS, False),
        ((9, 11), GO_MESSAGE_INDEX, ZEROS, True),
        ((9, 11), GO_MESSAGE, b"\0\0\0\x80", False),  # go
        (
            (1, 1),
            0x7340,
            bytes(2704),
            True,
        ),  # a worker of the grid too: it is not launched by multicast alone
        ((9, 11), 0x7DD0, b"\1" * 656, True),
        ((9, 11), 0x805C, bytes(8), False),
        ((9, 11), 0x733C, bytes(8), False),
    ],
)
def test_which_writes_use_nothing(coordinate, address, data, kept):
    assert uses_nothing(coordinate, address, data, (2, 1)) is kept


def test_without_a_grid_the_read_pointer_is_a_use():
    assert not uses_nothing((9, 11), READ_POINTER, ZEROS, None)


@pytest.mark.skipif(bool(doctor.why_not("mock mesh")), reason=str(doctor.why_not("mock mesh")))
def test_the_addresses_are_those_of_the_runtime():
    import re

    headers = find_ttnn_dir() / "tt_metal" / "hw" / "inc"
    text = (headers / "internal" / "tt-1xx" / "wormhole" / "dev_mem_map.h").read_text()
    named = dict(re.findall(r"^#define (MEM_\w+) \\?\n?\s*(.+?)(?:\s*//.*)?$", text, re.MULTILINE))
    # Sizes of structures that another header holds.
    named |= {"MEM_TENSIX_ROUTING_PATH_SIZE": "1160"}

    def resolve(name: str) -> int:
        expression = re.sub(r"\b(MEM_\w+)\b", lambda match: str(resolve(match[1])), named[name])
        return int(eval(expression, {"__builtins__": {}}))  # sums of numbers

    end = resolve("MEM_TENSIX_FABRIC_CONNECTIONS_BASE") + resolve("MEM_TENSIX_FABRIC_CONNECTIONS_SIZE")
    assert range(resolve("MEM_TENSIX_ROUTING_TABLE_BASE"), end) == FABRIC_TABLES
    halt_and_sync = 12  # ncrisc_halt and subordinate_sync come first in mailboxes_t
    assert resolve("MEM_MAILBOX_BASE") + halt_and_sync == READ_POINTER


def test_the_tile_finds_them_when_it_is_made(fresh_interpreter):
    fresh_interpreter(
        """
import struct
from framework.bridge.device import Device
from framework.bridge.fabric import Fabric
from framework.bridge.materialise import LazyTensixPool
from framework.device.wormhole import Wormhole
from framework.sim.wormhole.coords import TENSIX_COORD_MAP
from runtime_patches.simulated_n150.simulator.speed.unused_tiles import PATCH
PATCH.apply()
device = Device(Wormhole, TENSIX_COORD_MAP)
fabric = Fabric()
pool = LazyTensixPool(fabric, device, TENSIX_COORD_MAP, eager=[(1, 1)])
FIRMWARE = struct.pack("<2I", 0x4A0001A3, 0x6F)  # store 0 as the go signal; stay here
table, connections = b"t" * 2704, b"c" * 656
for coordinate in TENSIX_COORD_MAP:
    if coordinate != (1, 1):
        fabric.write(coordinate, 0, FIRMWARE)
        fabric.write(coordinate, 0x1C, b"\\5\\0\\0\\0")  # in reset: the journal as it was
        fabric.write(coordinate, 0x4A0, b"\\0\\0\\0\x40")  # start
        fabric.deassert_reset(coordinate)
        fabric.write(coordinate, 0x1C, bytes(4))
        fabric.write(coordinate, 0x4A0, bytes(4))
        fabric.write(coordinate, 0x4D0, bytes(4))
        fabric.write(coordinate, 0x7340, table)
        fabric.write(coordinate, 0x7DD0, connections)
        assert fabric.read(coordinate, 0x7340, 4) == b"tttt", "the host reads what it wrote"
# 2x2 cores: three besides the one there is from the start.
assert sorted(pool.materialised) == [(1, 1), (1, 2), (2, 1), (2, 2)], pool.materialised
pool.materialise((3, 3))
tile = device.tt_device.tile_directory[TENSIX_COORD_MAP[3, 3]]
for made in (tile, device.tt_device.tile_directory[TENSIX_COORD_MAP[2, 2]]):
    assert made.read(0x1C, 4) == bytes(4) and made.read(0x4A0, 4) == bytes(4)
    assert made.brisc.pc_register.read_uint() == 4, "its firmware has done its start"
    assert made.read(0x7340, len(table)) == table and made.read(0x7DD0, len(connections)) == connections
fabric.write((4, 4), 0x20000, b"kernel")
assert (4, 4) in pool.materialised, "any other write makes the tile"
""",
        SIMULATED_N150_GRID="2x2",
    )


def test_targets_are_the_installed_code():
    check([PATCH])
