# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The longer the host waits, the more cycles go by at once.

After each of the host's messages the simulator lets 100 cycles go by, and a host that waits for a program asks again
and again: every 100 cycles with a round trip. Here reads of a few bytes that follow each other let twice as many cycles
go by each time, up to MAX; a write, or a read of data, ends that. What cores do, and in how many cycles, depends on
none of it; only how far they are when the host looks, as on a board.
"""

from __future__ import annotations

import time

from runtime_patches.simulated_n150.simulator.patch import Patch

MIN, MAX = 100, 1600  # cycles that go by at a message
FEW = 16  # bytes: a go message, a queue's pointers
PAUSE_S = 0.002


def is_at_rest(device) -> bool:
    """Return whether no tile of a simulated device (framework TT_Device) does anything before the host does."""
    return all(not clock.awake and clock.wake_at is None for clock in device.clocks[0]._tile_clocks)


def _apply() -> None:
    from framework.bridge.device import Device

    installed, installed_write = Device.read, Device.write

    def read(self, unified, addr, size):
        asks = size <= FEW
        if asks and self._waiting:
            if self.cycles_per_poll == MAX and self.is_at_rest():
                time.sleep(PAUSE_S)
            self.cycles_per_poll = min(2 * self.cycles_per_poll, MAX)
        else:
            self.cycles_per_poll = MIN
        self._waiting = asks
        return installed(self, unified, addr, size)

    def write(self, unified, addr, data):
        self._waiting, self.cycles_per_poll = False, MIN
        installed_write(self, unified, addr, data)

    Device._waiting = False  # whether the host's last message asked for a few bytes
    Device.is_at_rest = lambda self: is_at_rest(self.tt_device)
    Device.read, Device.write = read, write


PATCH = Patch(
    name="polling",
    rule="twice as many cycles go by at each small read that follows another; at rest there is a pause",
    source="the installed simulator",
    targets={"framework.bridge.device.Device": "9074fb9c2e8b024f"},
    apply=_apply,
)
