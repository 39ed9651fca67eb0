# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tensix tiles that read DRAM channels at the same time, on the patched network alone: no core executes anything.

The experiment of tt-isa-documentation, WormholeB0/DRAMTile/README.md, Performance.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

# The channels in tt-metal's order of banks: (grid cell of the interface, channel of its group).
BANKS = (
    ((0, 11), 0), ((0, 1), 1), ((0, 5), 0), ((0, 7), 1), ((5, 1), 0), ((5, 11), 1),
    ((5, 2), 0), ((5, 9), 1), ((5, 8), 0), ((5, 3), 1), ((5, 5), 0), ((5, 7), 1),
)  # fmt: skip
# Of Device::get_optimal_dram_bank_to_logical_worker_assignment on a chip of 8x8 workers, as grid cells, by bank.
OPTIMAL = (
    (4, 9), (1, 1), (1, 5), (1, 7), (6, 1), (9, 4), (6, 2), (6, 9), (6, 8), (6, 3), (6, 5), (6, 7)
)  # fmt: skip
GRID = (10, 12)
WORKERS = [(x, y) for x in (1, 2, 3, 4, 6, 7, 8, 9) for y in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)]
Pairs = Sequence[tuple[tuple[int, int], tuple[tuple[int, int], int]]]


def beside(noc: int) -> Pairs:
    """Return each bank with the tile that its data reaches in one hop, on a chip without harvested rows."""
    step = 1 if noc == 0 else -1
    return [(((x + step) % GRID[0], y), ((x, y), channel)) for (x, y), channel in BANKS]


def at_random(readers: int, seed: int) -> Pairs:
    """Return `readers` random workers, dealt evenly to the 12 banks."""
    chosen = random.Random(seed).sample(WORKERS, readers)
    return [(worker, BANKS[index % len(BANKS)]) for index, worker in enumerate(chosen)]


class Reader:
    """A worker that keeps reads of a bank in flight until it has got all bytes."""

    def __init__(self, device, worker, bank, noc: int) -> None:
        tile = next(tile for tile in device.tensix_tiles if tile.noc0_router.id_pair == worker)
        (x, y), channel = bank
        self.interface = (tile.noc0_router, tile.noc1_router)[noc]
        own = (x, y) if noc == 0 else (GRID[0] - 1 - x, GRID[1] - 1 - y)
        self.end, self.address, self.in_flight = self.interface.resolve_destination(own), channel << 30, 0

    def read(self, page: int) -> None:
        from framework.network.tt_noc import NUI

        number = self.interface.next_request_seq()
        request = NUI.NoCDataRequest(
            self.address,
            NUI.NoCDataRequest.DataRequestAction.READ,
            page,
            self.interface.id_pair,
            0,
            reply_to=self.interface,
            seq=number,
        )
        self.interface.add_outstanding_noc_request(0, 0x20000, number)
        self.interface.send_to(self.end, request)
        self.in_flight += 1


def bytes_per_cycle(pairs: Pairs, *, noc: int, page: int, pages: int, in_flight: int) -> float:
    """Return the rate at which all readers together get `pages` pages each. page: bytes of one read."""
    os.environ["TT_SIM_COST_MODEL"] = "1"
    from framework.device.wormhole import Wormhole
    from framework.network.tt_noc import NUI

    step = 4
    device = Wormhole(tensix_coords=[(18 + x, 16 + y) for x in range(8) for y in range(10)])
    readers = [Reader(device, worker, bank, noc) for worker, bank in pairs]
    answered = {reader.interface: reader for reader in readers}
    take = NUI.take_outstanding_noc_request

    def taken(self, *arguments, **named):
        answered[self].in_flight -= 1
        return take(self, *arguments, **named)

    NUI.take_outstanding_noc_request = taken
    left, cycles = dict.fromkeys(readers, pages), 0
    try:
        while any(left[reader] or reader.in_flight for reader in readers):
            for reader in readers:
                while left[reader] and reader.in_flight < in_flight:
                    reader.read(page)
                    left[reader] -= 1
            device.run(step)
            cycles += step
    finally:
        NUI.take_outstanding_noc_request = take
        device.shutdown()
    return len(readers) * pages * page / cycles
