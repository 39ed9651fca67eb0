# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""One chip of a mesh as the host program sees it: the simulator's own parts, on the mesh's clock."""

from __future__ import annotations

import os
from collections.abc import Callable

from framework.bridge import (
    DramCore,
    EthCore,
    Fabric,
    LazyTensixPool,
    install_convention_guard,
    install_worker_guards,
)
from framework.bridge.device import Device
from framework.sim.wormhole.coords import (
    CLUSTER_DESCRIPTOR_PATH,
    DRAM_COORD_MAP,
    ETH_COORD_MAP,
    TENSIX_COORD_MAP,
    wire_conventions,
)
from framework.sim.wormhole.wh_device import wormhole_factory

from runtime_patches.simulated_n150.simulator.compute_grid import compute_grid, logical_place
from runtime_patches.simulated_n150.simulator.ethernet import boot
from runtime_patches.simulated_n150.simulator.host.lockstep import Clock
from runtime_patches.simulated_n150.simulator.speed.burst import BURST_VARIABLE
from runtime_patches.simulated_n150.simulator.speed.burst.engine import Burst

FIRST_WORKER = (1, 1)


def workers_at_start(chips: int) -> list[tuple[int, int]]:
    """Return the NoC 0 coordinates of the workers that exist from the start on each of `chips` chips.

    Any other is made by its first use, and time goes on while its firmware starts. On a mesh that would come between
    writes that the host has sent to several chips at once: one chip's program would run, and write to another, while
    what the host wrote there before is still to come. So all workers of a mesh's compute grid exist from the start.
    """
    grid = compute_grid()
    if chips == 1 or grid is None:
        return [FIRST_WORKER]
    places = {worker: logical_place(worker) for worker in TENSIX_COORD_MAP}
    return [worker for worker, (column, row) in places.items() if column < grid[0] and row < grid[1]]


class LockstepDevice(Device):
    """The simulator's device wrapper, except that the whole mesh goes on when the host reads, and only then."""

    def __init__(self, clock: Clock, translated: bool):
        super().__init__(lambda diagnostics: wormhole_factory(diagnostics, translated), TENSIX_COORD_MAP)
        self._clock = clock

    def write(self, unified, addr, data):
        self.tt_device.write(unified, addr, data)

    def deassert_reset(self, unified):
        self.deassert_reset_without_pump(unified)

    def settle_go_message(self, unified, addr):
        start = self._clock.now
        done = self.run_until(lambda: self.tt_device.read(unified, addr, 4)[3] == 0, Device._SETTLE_CAP)
        return self._clock.now - start if done else None

    def run_until(self, happened: Callable[[], bool], cycles: int) -> bool:
        """Let the mesh go on until something has happened, for `cycles` cycles at most; return whether it has."""
        end = self._clock.now + cycles
        while not happened():
            if self._clock.now >= end:
                return False
            self._clock.advance(Device._SETTLE_CHUNK)
        return True

    def _maybe_pump(self):
        self._clock.advance(self.cycles_per_poll)


class LinkedEthCore:
    """An Ethernet tile with a cable: its firmware answers go messages itself, unlike the simulator's EthCore.

    When tt-metal opens a mesh again, it takes the application off each core by clearing its launch flag, and goes on at
    once: on a board the routers have long ended by then. Here no time has passed since they were told to, so it passes
    at this point, until the core is back in the base firmware.
    """

    _RETURN_CYCLES = 100_000

    def __init__(self, device: LockstepDevice, unified: tuple[int, int]):
        self._device, self._unified = device, unified

    def write(self, addr, data):
        self._device.write(self._unified, addr, data)
        if addr == boot.LAUNCH_FLAG and not any(data):
            tile = self._device.tt_device.tile_directory[self._unified]
            if not self._device.run_until(lambda: boot.is_waiting(tile), self._RETURN_CYCLES):
                raise RuntimeError(
                    f"the application on Ethernet tile {self._unified} did not return to the base firmware within "
                    f"{self._RETURN_CYCLES} cycles"
                )

    def read(self, addr, size):
        return self._device.read(self._unified, addr, size)

    def assert_reset(self):
        """Do nothing: the host never resets the core of an active link."""

    def deassert_reset(self):
        """Do nothing, as assert_reset."""


class Chip:
    """A chip. number: as in the cluster descriptor, of `chips`. address: where the host program waits for this chip."""

    def __init__(self, number: int, chips: int, clock: Clock, translated: bool, why: str, address: str):
        self.number = number
        self.fabric = Fabric()
        self.device = LockstepDevice(clock, translated)
        alias, translated_only, untranslated_only = wire_conventions()
        install_convention_guard(
            self.fabric,
            translated=translated,
            wire_alias=alias if translated else {},
            foreign_coords=untranslated_only if translated else translated_only,
            reason=why,
            descriptor_hint=CLUSTER_DESCRIPTOR_PATH,
            wire_addr=address,
        )
        for place, unified in DRAM_COORD_MAP.items():
            self.fabric.register(place, DramCore(self.device, unified))
        for place, unified in ETH_COORD_MAP.items():
            self.fabric.register(place, EthCore(self.device, unified))
        workers = workers_at_start(chips)
        self.pool = LazyTensixPool(
            self.fabric,
            self.device,
            TENSIX_COORD_MAP,
            eager=workers,
            noc_alias=alias if translated else None,
        )
        install_worker_guards(self.fabric, workers, TENSIX_COORD_MAP, wire_addr=address, lazy=True)
        simulated = self.device.tt_device
        compiled = os.environ.get(BURST_VARIABLE) != "0"
        clock.add_chip(simulated, Burst(simulated).run if compiled else simulated.run)

    def ethernet_tile(self, channel: int):
        """Return the tile of an Ethernet channel: the entry of that number in the SoC descriptor's list."""
        place = list(ETH_COORD_MAP)[channel]
        return self.device.tt_device.tile_directory[ETH_COORD_MAP[place]]

    def connect(self, channel: int) -> None:
        """Start the core of a channel whose cable is plugged in."""
        place = list(ETH_COORD_MAP)[channel]
        self.fabric.register(place, LinkedEthCore(self.device, ETH_COORD_MAP[place]))
        boot.start(self.ethernet_tile(channel))
