# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Let the deadlock watch report only what is true.

The watch takes any 50,000 cycles without progress for a deadlock. A chip on which nothing was launched makes none while
the host copies data: each of the host's reads lets the clock go on, and a large tensor takes thousands. So a report
needs a worker of the compute grid whose go message still says GO (tt-metal, hw/inc/hostdev/dev_msgs.h: the host or a
dispatch core writes it, the firmware answers with DONE). In a mesh it needs more: a chip that waits for a busy one is
no deadlock, so nothing may have moved on any chip or link (`elsewhere`); the report then names the chip and the links.
"""

from __future__ import annotations

import sys

from runtime_patches.simulated_n150.simulator.compute_grid import compute_grid, logical_place
from runtime_patches.simulated_n150.simulator.patch import Patch

_GO = 0x80
_SIGNAL_BYTE = 3
go_addresses: set[int] = set()  # where the host has written go messages: the same on all workers


def launched(tiles, grid: tuple[int, int] | None) -> list[tuple[int, int]]:
    """Return the coordinates of the tiles within the grid that still run a program."""
    running = []
    for tile in tiles:
        column, row = logical_place(tile.get_noc_nui(0).get_id_pair())
        if grid is not None and (column >= grid[0] or row >= grid[1]):
            continue
        if any(tile.L1_mem.read(address, 4)[_SIGNAL_BYTE] == _GO for address in go_addresses):
            running.append(tile.get_coord_pair())
    return running


def _apply() -> None:
    from framework.bridge.cores import TensixCore
    from framework.device.deadlock import DeadlockDetector

    grid = compute_grid()
    write, report = TensixCore.write, DeadlockDetector._report

    def noting_write(self, addr, data):
        if len(data) == 4 and data[_SIGNAL_BYTE] == _GO:
            go_addresses.add(addr)
        write(self, addr, data)

    def true_report(self, cycle, active):
        if not launched(self.tensix_tiles, grid):
            return
        elsewhere = self.elsewhere
        if elsewhere is None:
            report(self, cycle, active)
            return
        moved, lines = elsewhere(cycle, self.threshold)
        if not moved:
            print(lines[0], file=sys.stderr)
            report(self, cycle, active)
            print("\n".join(lines[1:]), file=sys.stderr)

    TensixCore.write = noting_write
    DeadlockDetector.elsewhere = None
    DeadlockDetector._report = true_report


PATCH = Patch(
    name="deadlock watch",
    rule="a device that runs no program, or waits for a chip that makes progress, is not deadlocked",
    source="tt-metal, hw/inc/hostdev/dev_msgs.h (go_msg_t)",
    targets={
        "framework.device.deadlock.DeadlockDetector": "179c69eea052029b",
        "framework.bridge.cores.TensixCore": "8396219e35a81b91",
    },
    apply=_apply,
)
