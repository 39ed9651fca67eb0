# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The Ethernet tile against tt-isa-documentation, WormholeB0/EthernetTile; no ttnn, no device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_patches.simulated_n150.simulator.ethernet import boot
from runtime_patches.simulated_n150.simulator.ethernet.link import LATENCY, RESEND_AFTER, Link, Place
from runtime_patches.simulated_n150.simulator.ethernet.queues import (
    NotModelled,
    ReceiveQueue,
    TransmitQueue,
    wire_cycles,
)
from runtime_patches.simulated_n150.simulator.ethernet.tile import ControlRegisters, PlainRegisters
from runtime_patches.simulated_n150.simulator.host.lockstep import Clock

COMMAND, SOURCE, SIZE, DESTINATION, DATA = 0x04, 0x14, 0x18, 0x1C, 0x44


class Memory:
    """Sparse bytes."""

    def __init__(self):
        self.bytes = {}

    def read(self, address, size):
        return bytes(self.bytes.get(address + i, 0) for i in range(size))

    def write(self, address, data, size=None):
        self.bytes.update({address + i: value for i, value in enumerate(data)})


class TileClock:
    current_cycle = 0
    wakes = 0

    def wake(self):
        self.wakes += 1


class Core:
    class pc_register:
        read_uint = staticmethod(lambda: 0x400)


class Tile:
    """What queues and links need of the simulator's Ethernet tile."""

    erisc = Core()

    def __init__(self):
        self.L1_mem, self.eth_memory, self.local_imem_erisc = Memory(), Memory(), Memory()
        self.clock = TileClock()
        self.transmit_queues = TransmitQueue(self, 0), TransmitQueue(self, 1)


class Chip:
    """A device on a clock: one tile, whose clock shows the cycle that would run next."""

    def __init__(self, tile):
        self.tile, self.tile_directory = tile, {}
        self.clock_tick_num = self.current_cycle = 0
        self.clocks = [self]

    def run(self, cycles):
        self.clock_tick_num += cycles
        self.tile.clock.current_cycle = self.clock_tick_num


def word(value: int) -> bytes:
    return value.to_bytes(4, "little")


def pair():
    """Two tiles, the link between them, and the clock that runs both."""
    one, other = Tile(), Tile()
    link = Link(0, (Place(0, 1), one), (Place(1, 7), other))
    clock = Clock()
    for tile in (one, other):
        clock.add_chip(Chip(tile))
    clock.add_links([link])
    return one, other, link, clock


def send(tile, source, size, destination):
    queue = tile.transmit_queues[0]
    for register, value in ((SOURCE, source), (SIZE, size), (DESTINATION, destination), (COMMAND, 2)):
        queue.write(register, word(value))


def send_register(tile, address, value):
    queue = tile.transmit_queues[0]
    for register, content in ((DESTINATION, address), (DATA, value), (COMMAND, 4)):
        queue.write(register, word(content))


def busy(tile) -> bool:
    return tile.transmit_queues[0].read(COMMAND, 4) != bytes(4)


def test_command_2_writes_the_other_l1_after_wire_and_latency():
    one, other, _, clock = pair()
    one.L1_mem.write(0x1000, bytes(range(64)))
    send(one, 0x1000, 64, 0x2000)
    arrival = wire_cycles(64) + LATENCY
    clock.advance(arrival)
    assert other.L1_mem.read(0x2000, 64) == bytes(64), "nothing is there before the cycle of its arrival"
    clock.advance(1)
    assert other.L1_mem.read(0x2000, 64) == bytes(range(64))
    assert other.clock.wakes == 1 and not one.L1_mem.read(0x2000, 64).strip(b"\0")


def test_command_4_writes_a_register_of_the_other_tile():
    one, other, _, clock = pair()
    send_register(other, 0xFFB42088, 0x12345678)
    clock.advance(1000)
    assert one.eth_memory.read(0xFFB42088, 4) == word(0x12345678)
    assert not one.L1_mem.bytes and not other.eth_memory.bytes


def test_the_queue_is_busy_until_the_wire_takes_the_packet():
    """CMD reads non-zero after a command until the packet's metadata is latched."""
    one, _, _, clock = pair()
    send(one, 0, 4096, 0x2000)
    assert not busy(one), "the wire was free"
    send(one, 0, 64, 0x3000)
    assert busy(one)
    with pytest.raises(NotModelled, match="while it was busy until cycle"):
        send(one, 0, 64, 0x3000)
    clock.advance(wire_cycles(4096))
    assert not busy(one)
    counters = [int.from_bytes(one.transmit_queues[0].read(r, 4), "little") for r in (0x30, 0x34, 0x3C, 0x40)]
    assert counters == [2, 2, 1, 260]


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 500), st.booleans()), min_size=1, max_size=12))
def test_packets_of_a_link_arrive_in_the_order_they_were_sent(packets):
    one, _, _, clock = pair()
    arrived = []
    clock.arrivals = lambda _end, packet: arrived.append((packet.arrives, packet.address))
    for number, (units, pause, to_register) in enumerate(packets):
        while busy(one):
            clock.advance(1)
        if to_register:
            send_register(one, 0xFFB40000 + 4 * number, number)
        else:
            send(one, 0, 16 * units, 16 * number)
        clock.advance(pause)
    clock.advance(200_000)
    numbers = [(a - 0xFFB40000) // 4 if a >= 0xFFB00000 else a // 16 for _, a in arrived]
    assert numbers == list(range(len(packets)))
    cycles = [cycle for cycle, _ in arrived]
    assert cycles == sorted(set(cycles))


@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(1, 400))
def test_the_window_of_the_clock_changes_nothing(latency, pause, window):
    """Whatever the steps in which time passes, a packet arrives at the same cycle."""
    one, other, link, clock = pair()
    link.latency = latency
    clock.advance(pause)
    one.L1_mem.write(0, b"x" * 16)
    send(one, 0, 16, 0x100)
    arrival = pause + wire_cycles(16) + latency
    while clock.now + window <= arrival:
        clock.advance(window)
        assert not other.L1_mem.bytes
    clock.advance(window)
    assert other.L1_mem.read(0x100, 16) == b"x" * 16
    assert [chip.clock_tick_num for chip in clock.chips] == [clock.now] * 2


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda tile: tile.transmit_queues[0].write(COMMAND, word(1)), "raw packets are not modelled"),
        (lambda tile: tile.transmit_queues[0].write(COMMAND, word(8)), "command 8 is not modelled"),
        (lambda tile: tile.transmit_queues[1].write(COMMAND, word(2)), "only queue 0 is modelled"),
        (lambda tile: tile.transmit_queues[0].read(0x68, 4), "register 0x68 of Ethernet transmit queue 0"),
        (lambda tile: send(tile, 8, 64, 0), "not aligned to 16"),
        (lambda tile: send(tile, 0, 24, 0), "not aligned to 16"),
        (lambda tile: send(tile, 0, 64, 0x3FFF0), "leaves the L1"),
        (lambda tile: send_register(tile, 0x1000, 0), "which is no register"),
        (lambda _: ReceiveQueue(1).read(0x28, 4), "register 0x28 of Ethernet receive queue 1"),
        (lambda tile: ControlRegisters(tile).read(0x10, 4), "Ethernet control register 0x10"),
        (lambda _: send(Tile(), 0, 16, 0), "no cable is plugged into"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(act, message):
    with pytest.raises(NotModelled, match=message):
        act(pair()[0])


def test_the_instruction_ram_is_loaded_from_l1_and_the_counter_adds():
    tile = Tile()
    tile.L1_mem.write(0xA840, bytes(range(256)))
    control = ControlRegisters(tile)
    control.write(0x98, word(0xA840 >> 4))
    assert tile.local_imem_erisc.read(0, 256) == bytes(range(256)) and control.read(0x98, 4) == bytes(4)
    control.write(0x80, word(0xFFFFFFFF))
    control.write(0x80, word(3))
    assert control.read(0x80, 4) == word(2)
    mac = PlainRegisters(0x10000)
    mac.write(4, word(6))
    assert mac.read(4, 4) == word(6) and mac.read(0, 4) == bytes(4)


def test_a_cut_loses_what_is_under_way_and_all_that_follows():
    one, other, link, clock = pair()
    send(one, 0, 16, 0x100)
    assert link.cut(clock.now) == 1
    clock.advance(10)
    send(one, 0, 16, 0x200)
    clock.advance(1000)
    assert not other.L1_mem.bytes and (link.ends[0].sent, link.ends[0].lost) == (2, 2)
    link.mend(clock.now)
    one.L1_mem.write(0, b"y")
    send(one, 0, 16, 0x300)
    clock.advance(1000)
    assert other.L1_mem.read(0x300, 1) == b"y" and link.ends[0].delivered == 1


def test_mending_a_delay_lets_what_is_under_way_arrive_in_order():
    one, _, link, clock = pair()
    arrived = []
    clock.arrivals = lambda _end, packet: arrived.append((packet.arrives, packet.address))
    link.latency = 50_000
    for number in range(3):
        send(one, 0, 16, 16 * number)
        clock.advance(20)
    link.mend(clock.now)
    send(one, 0, 16, 48)
    clock.advance(300)
    assert [address for _, address in arrived] == [0, 16, 32, 48]
    assert [cycle for cycle, _ in arrived][0] == 60 + LATENCY and arrived == sorted(arrived)


def test_a_lossy_link_delivers_all_in_order_and_late():
    one, _, link, clock = pair()
    arrived = []
    clock.arrivals = lambda _end, packet: arrived.append((packet.arrives - packet.sent, packet.address))
    link.lose(0.3, seed=3)
    for number in range(20):
        send(one, 0, 16, 16 * number)
        clock.advance(RESEND_AFTER)
    clock.advance(20 * RESEND_AFTER)
    assert [address for _, address in arrived] == [16 * number for number in range(20)]
    assert min(took for took, _ in arrived) < RESEND_AFTER < max(took for took, _ in arrived)
    with pytest.raises(ValueError, match="below 1, got 1"):
        link.lose(1, seed=0)


def test_events_happen_at_their_cycle():
    one, other, link, clock = pair()
    clock.at(300, lambda: link.cut(clock.now))
    send(one, 0, 16, 0x100)
    clock.advance(299)
    send(one, 0, 16, 0x200)
    clock.advance(1000)
    assert sorted(other.L1_mem.bytes) == list(range(0x100, 0x110)) and link.is_cut(300) and not link.is_cut(299)


def test_the_stub_is_what_an_assembler_makes_of_it():
    """The words of boot.program against an assembler's output for the same lines."""
    code = {
        address: [data[i : i + 4].hex() for i in range(0, len(data), 4)] for address, data in boot.program().items()
    }
    assert code[0] == ["6f000040"]  # j 0x400
    assert code[0x400] == [
        "3711b0ff",
        "130101ff",  # lui sp, 0xffb01; addi sp, sp, -16
        "b7910000",
        "9381013f",  # lui gp, 9; addi gp, gp, 0x3f0
        "b7920000",
        "93824200",  # lui t0, 9; addi t0, t0, 4
        "03a30200",
        "e30e03fe",  # lw t1, 0(t0); beqz t1, . - 4
        "e780c203",
        "6ff0dffe",  # jalr ra, 60(t0); j . - 20
    ]
    assert code[0x4F0] == ["67800000"] and code[0x9020] == ["f0040000"] * 8
