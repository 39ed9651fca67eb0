# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stream registers against the ISA document's table, and how the NoC reaches them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_patches.simulated_n150.simulator.behaviour import stream_registers, tile_view
from runtime_patches.simulated_n150.simulator.behaviour.stream_registers import (
    STRIDE,
    StreamRegisters,
    WatchedWords,
)
from runtime_patches.simulated_n150.simulator.behaviour.tile_view import TileView
from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.speed.burst import interpreter
from runtime_patches.simulated_n150.simulator.speed.burst.cores import watched_words


def word(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(4, "little")


def place(stream: int, index: int) -> int:
    return stream * STRIDE + 4 * index


def value(registers: StreamRegisters, stream: int, index: int) -> int:
    return int.from_bytes(registers.read(place(stream, index), 4), "little")


@given(st.integers(0, 31), st.integers(0, 2**17 - 1), st.lists(st.integers(-(2**17), 2**17), max_size=8))
def test_space_available_counts_modulo_2_to_the_17(destination, size, increments):
    registers = StreamRegisters(32)
    registers.write(place(5, 4), word(size))
    for increment in increments:
        registers.write(place(5, 34), word(increment << 6 | destination))
    assert value(registers, 5, 64 + destination) == (size + sum(increments)) % 2**17
    assert value(registers, 5, 34) == 0, "an update is not stored"
    assert value(registers, 5, 64 + (destination + 1) % 32) == size
    assert value(registers, 4, 64 + destination) == 0, "streams have their own"


def test_each_write_does_what_the_table_says():
    registers = StreamRegisters(2)
    registers.write(place(1, 5), word(77))
    registers.write(place(1, 3), word(0xFFFFFFFF))
    assert value(registers, 1, 3) == 2**17 - 1 and value(registers, 1, 5) == 0
    registers.write(place(1, 64), word(9))
    assert value(registers, 1, 64) == 0, "the space available is read-only"
    registers.write(place(1, 34), word(3 << 6 | 63))
    assert [value(registers, 1, 64 + i) for i in range(64)] == [0] * 64, "there is no destination 63"
    registers.write(place(1, 8), word(0x12345))
    assert value(registers, 1, 8) == 0x12345


class Words:
    """A memory map of words."""

    def __init__(self):
        self.words = {}

    def read(self, address, size):
        assert size == 4
        return self.words.get(address, bytes(4))

    def write(self, address, data):
        assert len(data) == 4
        self.words[address] = data


def test_a_tile_serves_l1_below_its_registers():
    from framework.memory.memory import DRAM

    l1, tile_map = DRAM(64), Words()
    view = TileView(l1, tile_map)
    view.write(8, b"12345")
    assert view.read(8, 5) == b"12345" and tile_map.words == {}
    view.write(0xFFB70088, b"abcdefgh")
    assert tile_map.words == {0xFFB70088: b"abcd", 0xFFB7008C: b"efgh"}
    assert view.read(0xFFB70088, 8) == b"abcdefgh"
    with pytest.raises(ValueError, match=r"2 bytes at 0xffb70088"):
        view.write(0xFFB70088, b"ab")
    with pytest.raises(ValueError, match=r"4 bytes at 0xffb70089"):
        view.read(0xFFB70089, 4)


def test_a_workers_done_reaches_another_tile_of_the_chip(fresh_interpreter):
    """An inline write over the NoC to index 34 of stream 48, as a worker tells the dispatch core it is done."""
    fresh_interpreter(
        """
from framework.device.tt_device import DeviceTileDiagnostics
from framework.device.wormhole import Wormhole
from runtime_patches.simulated_n150.simulator.behaviour import noc, stream_registers, tile_view
for patch in (noc, tile_view, stream_registers):
    patch.PATCH.apply()
chip = Wormhole(DeviceTileDiagnostics(), tensix_coords=[(18, 18), (19, 18)])
worker, dispatch = (chip.tile_directory[c] for c in ((18, 18), (19, 18)))
router = worker.noc0_router
initiator = router.request_initiators[0]
x, y = dispatch.noc0_router.get_id_pair()
initiator.target_addr_low, initiator.target_addr_mid = 0xFFB70088, x << 4 | y << 10
initiator.ctrl, initiator.at_len_be, initiator.at_data = 0x2 | 1 << 3 | 1 << 4, 0xF, 1 << 6
for count in range(1, 4):
    noc.send_inline_write(initiator)
    chip.run(10)
    assert dispatch.read(0xFFB71000 + 4 * 64, 4) == bytes(4)
    assert dispatch.read(0xFFB70000 + 4 * 64, 4) == count.to_bytes(4, "little"), count
assert worker.read(0xFFB70000 + 4 * 64, 4) == bytes(4)
"""
    )


def test_watched_words_are_those_that_a_core_reads():
    """Also while a value is there that was stored in between, and in more than one register at once."""
    registers = StreamRegisters(3)
    for index in (9, 10, 64):
        registers.write(place(2, index), word(index))
    watched = WatchedWords(registers)
    assert watched.read(place(2, 9), 8) == word(9) + word(10)
    rows = watched_words([(watched, place(2, 9), 8, watched.read(place(2, 9), 8))])

    def unchanged():
        return interpreter.unchanged(rows.ctypes.data, len(rows))

    assert len(rows) == 2 and unchanged()
    registers.write(place(2, 10), word(11))
    assert not unchanged() and watched.read(place(2, 10), 4) == word(11)
    registers.write(place(2, 10), word(10))
    registers.write(place(1, 9), word(7))
    assert unchanged()


def test_targets_are_the_installed_code():
    check([stream_registers.PATCH, tile_view.PATCH])
