# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A device's cycles with only the tiles in view that are awake or have set themselves an alarm.

The simulator walks all of a device's tiles, two dozen, in each cycle, most of which sleep. A sleeping tile is woken
through ``TileClock.wake`` alone (framework/device/clock.py has a test for that), so the tiles that matter are known:
those that were awake or armed when the host let time go on, and those woken since. They are ticked in the order of all
tiles, as before: a tile that is woken by an earlier one runs in the same cycle, by a later one in the next. The numbers
of cycles slept through are not kept.
"""

from __future__ import annotations

import math

from runtime_patches.simulated_n150.simulator.patch import Patch


def _enter(watched: list, woken: list, following: int) -> int:
    """Put the woken tiles in their places among those in view; return where the one is now that is to
    be ticked next."""
    for clock in woken:
        if clock not in watched:
            place = 0
            while place < len(watched) and watched[place].place < clock.place:
                place += 1
            watched.insert(place, clock)
            if place < following:
                following += 1
    woken.clear()
    return following


def watched_clocks(pump) -> list:
    """Return the tiles' clocks that are to be looked at from now on; `pump.woken` takes those woken meanwhile."""
    pump.woken = []
    return [clock for clock in pump._tile_clocks if clock.awake or clock.wake_at is not None]


def tick(watched: list, pump, cycle: int) -> None:
    """Tick all tiles in view for one cycle, and those that they wake."""
    woken, following = pump.woken, 0
    while following < len(watched):
        clock = watched[following]
        following += 1
        if clock.awake or (clock.wake_at is not None and clock.wake_at <= cycle):
            clock.clock_tick(cycle)
        if woken:
            following = _enter(watched, woken, following)
    if pump.on_tick is not None:
        pump.on_tick(cycle)
        if woken:
            _enter(watched, woken, following)


def _apply() -> None:
    from framework.device.clock import MultiTileClock, TileClock

    wake, add = TileClock.wake, MultiTileClock.add_tile_clock

    def wake_and_note(self):
        pump = self.pump
        if pump is not None and pump.woken is not None and not self.awake:
            pump.woken.append(self)
        wake(self)

    def add_tile_clock(self, tile_clock, *arguments, **named):
        tile_clock.place = len(self._tile_clocks)
        add(self, tile_clock, *arguments, **named)
        if self.woken is not None:  # a worker that is made when it is first spoken to
            self.woken.append(tile_clock)

    def _run_strided(self, num_iterations):
        on_tick_wake = self.on_tick_wake
        cycle, horizon = self.clock_tick_num, None
        end = cycle + num_iterations
        watched = watched_clocks(self)
        while cycle < end:
            self.current_cycle = cycle
            tick(watched, self, cycle)
            horizon, due = None, math.inf
            for clock in watched:
                if clock.awake:
                    due = cycle + 1
                    break
                if clock.wake_at is not None and clock.wake_at < due:
                    due = max(clock.wake_at, cycle + 1)
            else:
                if cycle + 1 < end:
                    if on_tick_wake is not None and (watch := on_tick_wake(cycle)) is not None:
                        due = min(due, watch)
                    if due >= end:
                        due, horizon = end, due
            cycle = due
        self.woken = None
        self.clock_tick_num = self.current_cycle = end
        for clock in self._tile_clocks:
            clock.clock_tick_num = end
        self.quiescent_until = horizon

    MultiTileClock.woken = None  # tiles that were woken since, while time goes on
    TileClock.wake = wake_and_note
    MultiTileClock.add_tile_clock = add_tile_clock
    MultiTileClock._run_strided = _run_strided


PATCH = Patch(
    name="tiles in view",
    rule="sleeping tiles are not looked at in each cycle",
    source="the installed simulator",
    targets={
        "framework.device.clock.MultiTileClock": "b0c292abfcf1a4df",
        "framework.device.clock.TileClock": "910a890a091811c7",
    },
    apply=_apply,
)
