# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Add to an Ethernet tile what it has besides its L1, core and NoC interfaces, and let the NoC see it.

tt-isa-documentation, WormholeB0/EthernetTile/BabyRISCV/README.md, "Memory map"; InstructionRAM.md; CycleCounters.md.
"""

from __future__ import annotations

from framework.memory.mem_mapable import MemMapable
from framework.memory.memory_map import AddressRange

from runtime_patches.simulated_n150.simulator.behaviour import tile_view
from runtime_patches.simulated_n150.simulator.behaviour.stream_registers import StreamRegisters
from runtime_patches.simulated_n150.simulator.ethernet.queues import NotModelled, ReceiveQueue, TransmitQueue

STREAMS = 32
_STREAM_REGISTERS = 0xFFB40000
_TRANSMIT, _RECEIVE = 0xFFB90000, 0xFFB92000
_CONTROL, _MAC = 0xFFB94000, 0xFFBA0000
_IRAM_LOAD, _TEST_SUM = 0x98, 0x80
IRAM_BYTES = 16 * 1024


class ControlRegisters(MemMapable):
    """0xFFB94000: the instruction RAM's loader (+0x98) and the software-driven counter (+0x80)."""

    def __init__(self, tile):
        self.tile = tile
        self._sum = 0

    def read(self, addr: int, size: int) -> bytes:
        if addr == _IRAM_LOAD:
            return bytes(size)  # bit 0: a load is under way; here it is done at once
        if addr == _TEST_SUM:
            return self._sum.to_bytes(4, "little")[:size]
        raise NotModelled(f"Ethernet control register {addr:#x} is not modelled")

    def write(self, addr: int, value: bytes, size=None) -> None:
        word = int.from_bytes(value[:4], "little")
        if addr == _IRAM_LOAD:
            self.tile.local_imem_erisc.write(0, self.tile.L1_mem.read(word << 4, IRAM_BYTES))
        elif addr == _TEST_SUM:
            self._sum = self._sum + word & 0xFFFFFFFF
        else:
            raise NotModelled(f"Ethernet control register {addr:#x} is not modelled")

    def getSize(self) -> int:
        return 0x1000


class PlainRegisters(MemMapable):
    """Registers that hold what was written; the Ethernet MAC's, of which firmware writes two around an IRAM load."""

    def __init__(self, size: int):
        self._size = size
        self._words: dict[int, bytes] = {}

    def read(self, addr: int, size: int) -> bytes:
        return self._words.get(addr, bytes(4))[:size]

    def write(self, addr: int, value: bytes, size=None) -> None:
        self._words[addr] = bytes(value[:4])

    def getSize(self) -> int:
        return self._size


def equip(tile) -> None:
    """Give a new EthTile of the simulator its registers, visible to its core and to the NoC."""
    tile.stream_registers = StreamRegisters(STREAMS)
    tile.transmit_queues = TransmitQueue(tile, 0), TransmitQueue(tile, 1)
    parts = {
        _STREAM_REGISTERS: tile.stream_registers,
        **{_TRANSMIT + 0x1000 * i: queue for i, queue in enumerate(tile.transmit_queues)},
        **{_RECEIVE + 0x1000 * i: ReceiveQueue(i) for i in range(2)},
        _CONTROL: ControlRegisters(tile),
        _MAC: PlainRegisters(0x10000),
    }
    # The core's map is a merged copy of the tile's, so both take the parts.
    for memory in (tile.eth_memory, tile.erisc.visible_memory):
        for base, part in parts.items():
            memory.memory_map[AddressRange(base, part.getSize())] = part
    tile_view.attach(tile, tile.L1_mem, tile.eth_memory)
