# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Model the transmit and receive queues of an Ethernet tile (tt-isa-documentation, EthernetTile/EthernetTxRx.md).

What firmware and the stock fabric use is modelled: TT-link packets of transmit queue 0, which write the L1 or a
register of the tile at the other end of the link. Refused by name: raw packets, queue 1, reads of the receive queues.

Times are guesses, marked below: nothing public states them. They ensure that packets take time, keep their order and
fill a queue; they forecast nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from framework.memory.mem_mapable import MemMapable

L1_BYTES = 0x40000
MMIO = 0xFFB00000

CONTROL, COMMAND, MAX_PACKET = 0x00, 0x04, 0x0C
START_ADDRESS, SIZE, DESTINATION = 0x14, 0x18, 0x1C
TRANSFERS, STARTED, ENDED, WORDS = 0x30, 0x34, 0x3C, 0x40
REGISTER_DATA, SEQUENCE_TIMEOUT, UPDATE_TIMEOUT = 0x44, 0x48, 0x4C
MAC_ADDRESSES = (0x50, 0x54, 0x58, 0x5C)
ETHERTYPE = 0x60
ACCEPT_AHEAD = 0x6C  # tt-metal's ETH_TXQ_DATA_PACKET_ACCEPT_AHEAD: how many packets are latched ahead of the wire

_NAMES = {
    CONTROL: "CTRL",
    COMMAND: "CMD",
    MAX_PACKET: "MAX_PKT_SIZE_BYTES",
    START_ADDRESS: "TRANSFER_START_ADDR",
    SIZE: "TRANSFER_SIZE_BYTES",
    DESTINATION: "DEST_ADDR",
    TRANSFERS: "TRANSFER_CNT",
    STARTED: "PKT_START_CNT",
    ENDED: "PKT_END_CNT",
    WORDS: "WORD_CNT",
    REGISTER_DATA: "REMOTE_REG_DATA",
    SEQUENCE_TIMEOUT: "REMOTE_SEQ_TIMEOUT",
    UPDATE_TIMEOUT: "LOCAL_SEQ_UPDATE_TIMEOUT",
    ETHERTYPE: "ETH_TYPE",
    ACCEPT_AHEAD: "DATA_PACKET_ACCEPT_AHEAD",
    **dict(zip(MAC_ADDRESSES, ("DEST_MAC_HI", "DEST_MAC_LO", "SRC_MAC_HI", "SRC_MAC_LO"), strict=True)),
}
_COUNTERS = (TRANSFERS, STARTED, ENDED, WORDS)
#: Registers of which a write does no more than keep the word.
KEPT = tuple(sorted(set(_NAMES) - {COMMAND, *_COUNTERS}))
RAW, L1_WRITE, REGISTER_WRITE = 1, 2, 4

FRAME_BYTES = 1500  # firmware's MAX_PKT_SIZE_BYTES
HEADER_BYTES = 48  # a guess: preamble, Ethernet and TT-link headers, checksum, gap
BYTES_A_CYCLE = 12.5  # 100 Gb/s at 1 GHz


class NotModelled(NotImplementedError):
    """Something of the Ethernet tile that this simulator has no rule for."""


@dataclass(frozen=True)
class Packet:
    """A TT-link packet. address: in the receiving tile, below `MMIO` its L1. sent, arrives: cycles."""

    address: int
    data: bytes
    sent: int
    arrives: int


def wire_cycles(data_bytes: int, frame_bytes: int = FRAME_BYTES) -> int:
    """Return the cycles for which `data_bytes`, cut into frames, take the wire."""
    frames = max(1, -(-data_bytes // frame_bytes))
    return -int(-(data_bytes + frames * HEADER_BYTES) // BYTES_A_CYCLE)


class _Words:
    """Words by byte address."""

    def __init__(self, values: np.ndarray):
        self._values = memoryview(values)

    def __getitem__(self, address: int) -> int:
        return self._values[address >> 2]

    def __setitem__(self, address: int, value: int) -> None:
        self._values[address >> 2] = value


class TransmitQueue(MemMapable):
    """One transmit queue. `link` takes its packets (see link.End); None, for a tile with no cable, refuses them.

    A command latches its registers and the data. CMD reads 1 until the wire is free for the packet, then 0. A second
    command before that is refused: the documentation asks software to wait.
    """

    def __init__(self, tile, number: int):
        self.tile, self.number, self.link = tile, number, None
        # An array because compiled code reads and writes it too (burst/interpreter.py): the first cycle at which CMD
        # reads 0, which is when the latest packet's transmission starts, and the registers.
        self.state = np.zeros(1 + (max(_NAMES) + 4) // 4, np.int64)
        self._registers = _Words(self.state[1:])
        self._registers[MAX_PACKET] = FRAME_BYTES
        self._free = 0  # when the wire is free
        self._ends: list[int] = []

    @property
    def cycle(self) -> int:
        return self.tile.clock.current_cycle

    @property
    def busy_until(self) -> int:
        return int(self.state[0])

    @busy_until.setter
    def busy_until(self, cycle: int) -> None:
        self.state[0] = cycle

    def read(self, addr: int, size: int) -> bytes:
        if addr not in _NAMES:
            raise NotModelled(f"register {addr:#x} of Ethernet transmit queue {self.number} is not modelled")
        if addr == COMMAND:
            value = int(self.cycle < self.busy_until)
        elif addr == ENDED:
            value = sum(end <= self.cycle for end in self._ends)
        elif addr in (TRANSFERS, STARTED):
            value = self._registers[addr] - int(self.cycle < self.busy_until)
        else:
            value = self._registers[addr]
        return (value & 0xFFFFFFFF).to_bytes(4, "little")[:size]

    def write(self, addr: int, value: bytes, size=None) -> None:
        if addr not in _NAMES:
            raise NotModelled(f"register {addr:#x} of Ethernet transmit queue {self.number} is not modelled")
        word = int.from_bytes(value[:4], "little")
        if addr == COMMAND:
            self._send(word)
        elif addr not in _COUNTERS:
            self._registers[addr] = word

    def _send(self, command: int) -> None:
        where = f"Ethernet transmit queue {self.number}"
        if command == 0:
            return
        if command not in (L1_WRITE, REGISTER_WRITE):
            kind = "raw packets are" if command == RAW else f"command {command} is"
            raise NotModelled(f"{where}: {kind} not modelled")
        if self.number != 0:
            raise NotModelled(f"{where}: only queue 0 is modelled")
        if self.link is None:
            raise NotModelled(f"{where} of a tile that no cable is plugged into was given a packet")
        if self.cycle < self.busy_until:
            raise NotModelled(f"{where} was given a command while it was busy until cycle {self.busy_until}")
        address = self._registers[DESTINATION]
        if command == L1_WRITE:
            source, length = self._registers[START_ADDRESS], self._registers[SIZE]
            if source % 16 or length % 16 or address % 16 or address + length > L1_BYTES:
                raise NotModelled(
                    f"{where}: an L1 write of {length} bytes from {source:#x} to {address:#x} is not aligned to 16 "
                    f"bytes or leaves the L1 of {L1_BYTES:#x} bytes"
                )
            data = self.tile.L1_mem.read(source, length)
        else:
            if address % 4 or address < MMIO:
                raise NotModelled(f"{where}: a register write to {address:#x}, which is no register")
            data = self._registers[REGISTER_DATA].to_bytes(4, "little")
        self.busy_until = starts = max(self.cycle, self._free)
        self._free = starts + wire_cycles(len(data), self._registers[MAX_PACKET] or FRAME_BYTES)
        self._ends = [end for end in self._ends if end > self.cycle] + [self._free]
        for counter in (TRANSFERS, STARTED):
            self._registers[counter] += 1
        self._registers[WORDS] += -(-len(data) // 16)
        self.link.send(address, data, self.cycle, self._free)

    def getSize(self) -> int:
        return 0x1000


class ReceiveQueue(MemMapable):
    """A receive queue in TT-link mode: packets are written by the link; its registers only take configuration."""

    def __init__(self, number: int):
        self.number = number

    def read(self, addr: int, size: int) -> bytes:
        raise NotModelled(f"register {addr:#x} of Ethernet receive queue {self.number} is not modelled")

    def write(self, addr: int, value: bytes, size=None) -> None:
        raise NotModelled(f"register {addr:#x} of Ethernet receive queue {self.number} is not modelled")

    def getSize(self) -> int:
        return 0x1000
