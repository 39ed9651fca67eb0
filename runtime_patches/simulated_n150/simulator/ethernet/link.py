# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Model a cable between the Ethernet tiles of two chips, and what can go wrong with it.

Packets arrive in the order they were sent, `latency` cycles after the last byte has left. A test can cut a link (it
loses what is sent from then on and what is under way), delay it (more latency), or make it lossy. Hardware sends a lost
packet again until it is acknowledged, so a lossy link is one whose packets arrive late: each loss costs the time after
which the sender tries again, and all later packets wait for it.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace

from runtime_patches.simulated_n150.simulator.ethernet.queues import MMIO, Packet

LATENCY = 200  # cycles from the last byte sent to the first effect at the other end: a guess
RESEND_AFTER = 2000  # cycles until a packet that was lost is sent again: a guess


@dataclass(frozen=True, order=True)
class Place:
    """An Ethernet tile of a mesh: chip and channel, the tile's position in the SoC descriptor's list."""

    chip: int
    channel: int

    def __str__(self) -> str:
        return f"chip {self.chip} channel {self.channel}"


class End:
    """One end of a link: what its tile sends leaves here."""

    def __init__(self, place: Place, tile, link: Link):
        self.place, self.tile, self.link = place, tile, link
        self.other: End
        self.underway: deque[Packet] = deque()
        self.sent = self.lost = self.delivered = 0
        self._last_arrival = 0

    def send(self, address: int, data: bytes, now: int, leaves: int) -> None:
        """Take a packet from the tile's queue: `leaves` is the cycle at which its last byte is on the wire."""
        self.sent += 1
        if self.link.is_cut(now):
            self.lost += 1
            return
        # One after the other: a packet that is sent again holds up those after it, as sequence numbers demand.
        arrives = max(leaves + self.link.latency + self.link.resend_cycles(), self._last_arrival + 1)
        self._last_arrival = arrives
        self.underway.append(Packet(address, data, now, arrives))

    def hurry(self, latest: int) -> None:
        """Let the packets under way arrive from cycle `latest` on, one per cycle, unless they would arrive sooner."""
        for index, packet in enumerate(self.underway):
            self.underway[index] = replace(packet, arrives=min(packet.arrives, latest + index))
        self._last_arrival = self.underway[-1].arrives if self.underway else min(self._last_arrival, latest)

    def next_arrival(self) -> int | None:
        """Return the cycle at which the oldest packet under way reaches the other end."""
        return self.underway[0].arrives if self.underway else None

    def deliver(self, now: int) -> Packet:
        """Hand the oldest packet to the tile at the other end, which is at cycle `now`."""
        packet, tile = self.underway.popleft(), self.other.tile
        self.delivered += 1
        tile.clock.wake()
        target = tile.L1_mem if packet.address < MMIO else tile.eth_memory
        target.write(packet.address, packet.data)
        return packet


class Link:
    """Two ends; see the module. number: its place in the cluster descriptor."""

    def __init__(self, number: int, one: tuple[Place, object], other: tuple[Place, object]):
        self.number, self.latency = number, LATENCY
        self.ends = End(*one, self), End(*other, self)
        self.ends[0].other, self.ends[1].other = self.ends[1], self.ends[0]
        self._cut_at: int | None = None
        self._loss, self._random = 0.0, random.Random(0)
        for end in self.ends:
            end.tile.transmit_queues[0].link = end

    def __str__(self) -> str:
        return " - ".join(str(end.place) for end in self.ends)

    def is_cut(self, now: int) -> bool:
        return self._cut_at is not None and now >= self._cut_at

    def cut(self, now: int) -> int:
        """Unplug the cable: what is under way is lost too. Return how many packets that were."""
        self._cut_at, lost = now, 0
        for end in self.ends:
            lost += len(end.underway)
            end.lost += len(end.underway)
            end.underway.clear()
        return lost

    def mend(self, now: int) -> None:
        """Remove all faults; what was lost stays lost, what a delay holds up arrives in the usual time."""
        self._cut_at, self._loss, self.latency = None, 0.0, LATENCY
        for end in self.ends:
            end.hurry(now + LATENCY)

    def lose(self, probability: float, seed: int) -> None:
        """Lose each transmission from now on with `probability` and try it again after RESEND_AFTER cycles."""
        if not 0 <= probability < 1:
            raise ValueError(f"the probability of a loss is at least 0 and below 1, got {probability}")
        self._loss, self._random = probability, random.Random(seed)

    def resend_cycles(self) -> int:
        """Return the cycles by which losses hold up the packet that is being sent."""
        losses = 0
        while self._loss and self._random.random() < self._loss:
            losses += 1
        return losses * RESEND_AFTER
