# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Registers of NoC Overlay streams as software uses them while the stream is idle.

Rules (tt-isa-documentation, WormholeB0/NoC/Overlay/AsGeneralUse.md; indices from the wheel's
noc_overlay_parameters.h), i from 0 to 31:
    index 3, destination buffer's start: a write also sets index 5, its write pointer, to zero.
    index 4, destination buffer's size: a write also writes the value to all of 64 + i.
    index 34, update of the space available: a write of (j << 6) + i adds j to 64 + i and is not stored.
    index 64 + i, space available: read-only.
Registers 3, 4, 5 and 64 + i have 17 bits; additions wrap there, so that a decrement is a large addend.

The simulator kept every register as plain storage: a worker's "done" was lost and the dispatch core waited for ever. An
Ethernet tile has the same registers (32 streams), so it may hold a :class:`StreamRegisters` too.
"""

from __future__ import annotations

import numpy as np
from framework.memory.mem_mapable import MemMapable

from runtime_patches.simulated_n150.simulator.patch import Patch

STRIDE = 0x1000  # bytes of address space per stream
DESTINATION_START, DESTINATION_SIZE, WRITE_POINTER, SPACE_UPDATE, SPACE_AVAILABLE = 3, 4, 5, 34, 64
DESTINATIONS = 32
_WIDTH = 17
_MASK = (1 << _WIDTH) - 1


def write_register(registers: list[int], index: int, value: int) -> None:
    """Write 32 bits to register `index` of a stream whose registers are `registers`, in place."""
    if index == SPACE_UPDATE:
        destination = value & 63
        if destination < DESTINATIONS:
            available = SPACE_AVAILABLE + destination
            registers[available] = registers[available] + (value >> 6) & _MASK
    elif index == DESTINATION_SIZE:
        value &= _MASK
        registers[index] = value
        registers[SPACE_AVAILABLE : SPACE_AVAILABLE + DESTINATIONS] = [value] * DESTINATIONS
    elif index == DESTINATION_START:
        registers[index] = value & _MASK
        registers[WRITE_POINTER] = 0
    elif index == WRITE_POINTER:
        registers[index] = value & _MASK
    elif not SPACE_AVAILABLE <= index < SPACE_AVAILABLE + DESTINATIONS:
        registers[index] = value


class StreamRegisters(MemMapable):
    """The register space of `streams` streams, by byte offset from its start; words of 4 bytes."""

    def __init__(self, streams: int) -> None:
        self.streams = [[0] * (STRIDE // 4) for _ in range(streams)]

    def read(self, address: int, size: int) -> bytes:
        return int(self.streams[address // STRIDE][address % STRIDE >> 2]).to_bytes(4, "little")

    def write(self, address: int, value: bytes, size: int | None = None) -> None:
        word = int.from_bytes(value, "little")
        write_register(self.streams[address // STRIDE], address % STRIDE >> 2, word)

    def getSize(self) -> int:  # the simulator's name
        return len(self.streams) * STRIDE


class WatchedWords:
    """Stream registers as the memory that a waiting core's loop reads: a load of one changes nothing, and only a store
    changes what the next load gives. Offsets are bytes, as a core sees them; `part` has one list of words per stream.
    """

    def __init__(self, part) -> None:
        self.part = part

    def _rows(self) -> np.ndarray:
        return as_array(self.part)

    def read(self, offset: int, size: int) -> bytes:
        first = offset % STRIDE >> 2
        return self._rows()[offset // STRIDE, first : first + size // 4].astype("<u4").tobytes()

    def words(self, offset: int, size: int) -> tuple[memoryview, int]:
        """Return the stream's registers where they are kept, in words of 8 bytes, and the place of the first one."""
        return memoryview(self._rows()[offset // STRIDE]), offset % STRIDE >> 2


def as_array(part) -> np.ndarray:
    """Return the register words of a tile's streams as an array that compiled code, watchers and Python share."""
    name = "streams" if isinstance(part, StreamRegisters) else "stream_regs"
    rows = getattr(part, name)
    if not isinstance(rows, np.ndarray):
        rows = np.array(rows, dtype=np.int64)
        setattr(part, name, rows)
    return rows


def watched_words(memory, address: int, size: int) -> tuple[WatchedWords, int] | None:
    """Return (words, offset) of whole stream registers of one stream at an address of a core's memory, else None."""
    from framework.network.tt_noc import NoCOverlay

    place, part = memory.memory_map.locate(address)
    if not isinstance(part, (StreamRegisters, NoCOverlay)) or address % 4 or size % 4:
        return None
    offset = address - place.low
    if offset // STRIDE != (offset + size - 1) // STRIDE or offset // STRIDE >= len(as_array(part)):
        return None
    return WatchedWords(part), offset


def _apply() -> None:
    from framework.network.tt_noc import NoCOverlay

    def read(self, addr, size):
        return int(self.stream_regs[addr >> 12][(addr & 0xFFF) >> 2]).to_bytes(4, "little")

    def write(self, addr, value, size=None):
        write_register(self.stream_regs[addr >> 12], (addr & 0xFFF) >> 2, int.from_bytes(value, "little"))

    NoCOverlay.read = read
    NoCOverlay.write = write


PATCH = Patch(
    name="stream registers",
    rule="a write to index 34 adds to the space available, to 4 sets it, to 3 clears the write pointer; 17 bits wrap",
    source="tt-isa-documentation, WormholeB0/NoC/Overlay/AsGeneralUse.md",
    targets={"framework.network.tt_noc.NoCOverlay": "445d25550b2d7c86"},
    apply=_apply,
)
