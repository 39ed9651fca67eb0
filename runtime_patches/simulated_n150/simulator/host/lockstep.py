# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Keep the common clock of a mesh.

Time goes on in windows no longer than the shortest link's latency. What is sent within a window arrives after it, so at
its start every arrival within it is known, and the chips can be run one after the other: each up to the cycle of an
arrival, the packet is handed over, and on. The order of the chips makes no difference. Time goes on only when the host
reads (it polls) and never when it writes, so that what the host writes to several chips takes effect at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime_patches.simulated_n150.simulator.ethernet.link import End, Link


class Clock:
    """The clock. chips: simulated devices (framework TT_Device) by number. links: between them, added once all are
    there."""

    def __init__(self) -> None:
        self.now = 0
        self.chips: list = []
        self.links: list[Link] = []
        self.arrivals: Callable | None = None  # called with (end, packet) as each packet arrives
        self.events: list[tuple[int, int, Callable[[], object]]] = []  # (cycle, order, what a test asked for)
        self.latest_arrival = 0
        self._inbound: list[list[End]] = []
        self._running: list[Callable[[int], None]] = []

    def add_chip(self, device, run: Callable[[int], None] | None = None) -> None:
        """Add a device that has not run; one that comes later starts at the others' time. run: as device.run."""
        pump = device.clocks[0]
        pump.clock_tick_num = pump.current_cycle = self.now
        for tile in device.tile_directory.values():
            tile.clock.clock_tick_num = self.now
        self.chips.append(device)
        self._running.append(run or device.run)
        self._inbound.append([])

    def add_links(self, links: Sequence[Link]) -> None:
        for link in links:
            self.links.append(link)
            for end in link.ends:
                self._inbound[end.other.place.chip].append(end)

    def at(self, cycle: int, action: Callable[[], object]) -> None:
        """Do `action` before the given cycle is simulated; at once when it is past."""
        if cycle <= self.now:
            action()
        else:
            self.events.append((cycle, len(self.events), action))
            self.events.sort(key=lambda event: event[:2])

    def advance(self, cycles: int) -> None:
        """Run every chip for `cycles` cycles."""
        end = self.now + cycles
        while self.now < end:
            until = end
            for link in self.links:
                until = min(until, self.now + link.latency)
            while self.events and self.events[0][0] <= self.now:
                self.events.pop(0)[2]()
            if self.events:
                until = min(until, self.events[0][0])
            for chip, device in enumerate(self.chips):
                self._run(chip, device, until)
            self.now = until

    def _run(self, chip: int, device, until: int) -> None:
        """Bring one chip to cycle `until`, handing it the packets that arrive before."""
        pump, inbound, run = device.clocks[0], self._inbound[chip], self._running[chip]
        while True:
            first, cycle = None, until
            for end in inbound:
                arrives = end.next_arrival()
                if arrives is not None and arrives < cycle:
                    first, cycle = end, arrives
            if first is None:
                break
            if cycle > pump.clock_tick_num:
                run(cycle - pump.clock_tick_num)
            packet = first.deliver(pump.clock_tick_num)
            self.latest_arrival = max(self.latest_arrival, pump.clock_tick_num)
            if self.arrivals is not None:
                self.arrivals(first, packet)
        if until > pump.clock_tick_num:
            run(until - pump.clock_tick_num)

    def link_report(self) -> list[str]:
        """Return a line for each direction of each link: both ends, packets, and where the core at
        either end stands."""
        lines = []
        for link in self.links:
            state = "cut" if link.is_cut(self.now) else f"latency {link.latency}"
            for end in link.ends:
                counter, other = (e.tile.erisc.pc_register.read_uint() for e in (end, end.other))
                lines.append(
                    f"  link {link.number} ({state}): {end.place} (pc {counter:#x}) to {end.other.place} "
                    f"(pc {other:#x}): {end.sent} packets sent, {end.delivered} arrived, {end.lost} lost, "
                    f"{len(end.underway)} on the way"
                )
        return lines
