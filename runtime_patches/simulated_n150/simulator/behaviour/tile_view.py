# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Let the NoC reach a tile's registers as well as its L1.

Rule: a request from the NoC may name any address of a tile's own memory map, registers included, in the same space that
its RISC-V cores see; only what belongs to one core (local data RAM, IRAM) is out of reach. A stream register is written
over the NoC by a worker that tells the dispatch core it is done. Source: tt-isa-documentation,
WormholeB0/NoC/Overlay/AsGeneralUse.md ("accessible from other tiles (or the host system) over the NoC") and
WormholeB0/NoC/MemoryMap.md.

The simulator's network interfaces knew the tile's L1 only, so such a write was an address beyond the memory.
"""

from __future__ import annotations

from framework.memory.mem_mapable import MemMapable

from runtime_patches.simulated_n150.simulator.patch import Patch

REGISTERS = 0xFFB00000


class TileView(MemMapable):
    """The memory a tile's network interfaces serve: L1 below 0xFFB00000, the tile's registers from there on.

    l1: read and write of bytes from address 0. tile_map: the memory map the tile's cores share, whose registers
    take and give words of 4 bytes; a longer request is taken apart, one that is not of whole words is refused.
    """

    def __init__(self, l1: MemMapable, tile_map: MemMapable) -> None:
        self.l1, self.tile_map = l1, tile_map

    def read(self, address: int, size: int) -> bytes:
        if address < REGISTERS:
            return self.l1.read(address, size)
        return b"".join(bytes(self.tile_map.read(word, 4)) for word in _words(address, size))

    def write(self, address: int, value: bytes, size: int | None = None) -> None:
        if address < REGISTERS:
            self.l1.write(address, value, size)
            return
        data = bytes(value)[: len(value) if size is None else size]
        for word in _words(address, len(data)):
            self.tile_map.write(word, data[word - address : word - address + 4])

    def getSize(self) -> int:  # the simulator's name
        return 1 << 32


def _words(address: int, size: int) -> range:
    if address % 4 or size % 4:
        raise ValueError(f"a NoC request of {size} bytes at {address:#x}: registers are reached in words of 4 bytes")
    return range(address, address + size, 4)


def attach(tile, l1: MemMapable, tile_map: MemMapable) -> None:
    """Let both network interfaces of a tile serve its registers besides its L1."""
    view = TileView(l1, tile_map)
    for router in (tile.noc0_router, tile.noc1_router):
        router.attached_memory = view


def _apply() -> None:
    from framework.device.tiles import TensixTile

    build = TensixTile.__init__

    def __init__(self, *arguments, **named):
        build(self, *arguments, **named)
        attach(self, self.L1_mem, self.tensix_mem)

    TensixTile.__init__ = __init__


PATCH = Patch(
    name="registers over the NoC",
    rule="a NoC request reaches the registers of a Tensix tile as well as its L1",
    source="tt-isa-documentation, WormholeB0/NoC/Overlay/AsGeneralUse.md and WormholeB0/NoC/MemoryMap.md",
    targets={"framework.device.tiles.TensixTile": "0ef25b6251001b83"},
    apply=_apply,
)
