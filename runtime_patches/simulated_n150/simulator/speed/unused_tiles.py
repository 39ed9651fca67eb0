# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Host writes that go to every worker do not bring unused tiles into being.

The simulator makes a Tensix tile when it is first used: until the core is released from reset it keeps the host's
writes in a journal, and takes any later write for use. Three kinds of write go to all 80 workers of a chip after their
release and use none of them:
    with the fabric, its routing table and connections, [0x7340, 0x8060) (dev_mem_map.h,
    MEM_TENSIX_ROUTING_TABLE_BASE up to the end of MEM_TENSIX_FABRIC_CONNECTIONS);
    with fast dispatch, 4 zero bytes each at 0x1c, 0x4a0 and 0x4d0: the launch message's read pointer, "done" as
    the go message, and the go message's index (dev_msgs.h, mailboxes_t).
They go into the journal, after the release, and are applied in order when something else makes the tile; except for the
"done", which the firmware itself writes there when it has started, and which must not come before. Those of fast
dispatch are a use within the compute grid: there, dispatch cores multicast launch messages and go signals, and a tile
made by that very packet would not have run its firmware's start.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.compute_grid import compute_grid, logical_place
from runtime_patches.simulated_n150.simulator.patch import Patch

READ_POINTER, GO_MESSAGE, GO_MESSAGE_INDEX = 0x1C, 0x4A0, 0x4D0
FABRIC_TABLES = range(0x7340, 0x8060)


def uses_nothing(coordinate: tuple[int, int], address: int, data: bytes, grid: tuple[int, int] | None) -> bool:
    """Return whether a host write to a released worker goes to all workers alike and needs no tile yet.

    coordinate: the worker's NoC 0 coordinate. grid: (columns, rows) of the compute grid, None if unknown.
    """
    if address in FABRIC_TABLES and address + len(data) <= FABRIC_TABLES.stop:
        return True
    if address in (READ_POINTER, GO_MESSAGE, GO_MESSAGE_INDEX) and data == bytes(4) and grid is not None:
        column, row = logical_place(coordinate)
        return column >= grid[0] or row >= grid[1]
    return False


def _apply() -> None:
    from framework.bridge.cores import DeferredTensixCore

    grid = compute_grid()
    write_or_make = DeferredTensixCore.write

    def write(self, addr, data):
        if not self.in_reset and uses_nothing(self.coord, addr, bytes(data), grid):
            if addr != GO_MESSAGE:
                self.journal.append(("w", addr, bytes(data)))
            self.shadow_write(addr, data)
            return
        write_or_make(self, addr, data)

    DeferredTensixCore.write = write


PATCH = Patch(
    name="unused tiles",
    rule="writes that go to every worker alike wait in the journal until the tile is used",
    source="tt-metal, hw/inc/hostdev/dev_msgs.h and hw/inc/internal/tt-1xx/wormhole/dev_mem_map.h",
    targets={
        "framework.bridge.cores.DeferredTensixCore": "8c99e1d0031c5b2a",
        "framework.bridge.materialise.LazyTensixPool": "8dab1905970ed0b5",
    },
    apply=_apply,
)
