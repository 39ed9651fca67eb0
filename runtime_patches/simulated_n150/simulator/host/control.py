# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Answer what tests ask about the links (see runtime_patches/simulated_n150/links.py): one line of
JSON, and one back."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Callable
from functools import partial

from runtime_patches.simulated_n150.simulator.ethernet.link import End, Link
from runtime_patches.simulated_n150.simulator.ethernet.queues import Packet
from runtime_patches.simulated_n150.simulator.host.lockstep import Clock


class LinkControl:
    """Answer requests about the links of a clock."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._recorded: list[tuple] = []

    def answer(self, listener: socket.socket) -> None:
        """Serve one connection."""
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            line = stream.readline()
            if not line:
                return
            try:
                request = json.loads(line)
                answer = {"result": getattr(self, "_do_" + request.pop("what"))(**request)}
            except Exception as error:  # told to who asked; the chips go on
                answer = {"error": f"{type(error).__name__}: {error}"}
            stream.write(json.dumps(answer).encode())

    def _chosen(self, link: int | None) -> list[Link]:
        links = self._clock.links
        if link is None:
            return links
        if not 0 <= link < len(links):
            raise ValueError(f"link {link} of {len(links)}")
        return [links[link]]

    def _schedule(self, link: int | None, in_cycles: int, change: Callable[[Link], object]) -> None:
        for chosen in self._chosen(link):
            self._clock.at(self._clock.now + in_cycles, partial(change, chosen))

    def _do_cut(self, link, in_cycles) -> None:
        self._schedule(link, in_cycles, lambda chosen: chosen.cut(self._clock.now))

    def _do_mend(self, link, in_cycles) -> None:
        self._schedule(link, in_cycles, lambda chosen: chosen.mend(self._clock.now))

    def _do_delay(self, link, in_cycles, latency) -> None:
        self._schedule(link, in_cycles, lambda chosen: setattr(chosen, "latency", latency))

    def _do_lose(self, link, in_cycles, probability, seed) -> None:
        self._schedule(link, in_cycles, lambda chosen: chosen.lose(probability, seed))

    def _do_states(self) -> list[dict]:
        return [
            {
                "link": link.number,
                "source": str(end.place),
                "target": str(end.other.place),
                "sent": end.sent,
                "delivered": end.delivered,
                "lost": end.lost,
            }
            for link in self._clock.links
            for end in link.ends
        ]

    def _do_cycle(self) -> int:
        return self._clock.now

    def _do_record(self) -> None:
        self._recorded = []
        self._clock.arrivals = self._note

    def _do_recorded(self) -> list[tuple]:
        return self._recorded

    def _note(self, end: End, packet: Packet) -> None:
        where = str(end.place), str(end.other.place)
        self._recorded.append((packet.arrives, *where, packet.address, len(packet.data), zlib.crc32(packet.data)))
