# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Cut, delay, make lossy and record the cables of a simulated mesh, for tests.

    links = Links(os.getpid())       # in the program that opened the mesh; or Links(worker's process id)
    links.cut(0, in_cycles=2000)
    ...
    links.mend()

Links are numbered as :func:`clusters.links` lists them; None means all. Faults begin now, or `in_cycles` cycles of the
simulated clock later, which advances only while the host waits for a device. Hardware repeats what a cable loses, so a
lossy link is a slow one, and only a cut loses data for good. Routers whose packets a cut has lost do not recover: mend
the links, close the mesh and open it again.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass

from runtime_patches.simulated_n150.simulator.host.rendezvous import name_of


@dataclass(frozen=True)
class LinkState:
    """One direction of a link. places: "chip 0 channel 1"; packets sent, delivered and lost since the start."""

    link: int
    source: str
    target: str
    sent: int
    delivered: int
    lost: int


@dataclass(frozen=True)
class Delivery:
    """A packet that arrived: the cycle, the link's direction, its target address, its size, and a
    CRC-32 of the data."""

    cycle: int
    source: str
    target: str
    address: int
    bytes: int
    crc: int


class Links:
    """Control the links; see the module. program: process id of the program that opened the simulated mesh."""

    def __init__(self, program: int):
        self.program = program

    def cut(self, link: int | None = None, *, in_cycles: int = 0) -> None:
        """Unplug a cable; packets under way are lost, and so is all that is sent until `mend`."""
        self._ask("cut", link=link, in_cycles=in_cycles)

    def mend(self, link: int | None = None, *, in_cycles: int = 0) -> None:
        """Remove every fault; packets take the usual latency again."""
        self._ask("mend", link=link, in_cycles=in_cycles)

    def delay(self, latency: int, link: int | None = None, *, in_cycles: int = 0) -> None:
        """Let packets take `latency` cycles from now on, at least 1; 200 is usual."""
        if latency < 1:
            raise ValueError(f"a packet takes at least one cycle, got a latency of {latency}")
        self._ask("delay", link=link, in_cycles=in_cycles, latency=latency)

    def lose(self, probability: float, link: int | None = None, *, seed: int = 0, in_cycles: int = 0) -> None:
        """Lose each transmission with `probability` (below 1) and repeat it; equal seeds lose the same packets."""
        if not 0 <= probability < 1:
            raise ValueError(f"the probability of a loss is at least 0 and below 1, got {probability}")
        self._ask("lose", link=link, in_cycles=in_cycles, probability=probability, seed=seed)

    def states(self) -> list[LinkState]:
        """Return both directions of every link."""
        return [LinkState(**state) for state in self._ask("states")]

    def cycle(self) -> int:
        """Return the mesh's clock."""
        return self._ask("cycle")

    def record(self) -> None:
        """Forget the packets recorded so far, and record those that arrive from now on."""
        self._ask("record")

    def recorded(self) -> list[Delivery]:
        """Return what arrived since `record`, in the order of arrival at each chip."""
        return [Delivery(*delivery) for delivery in self._ask("recorded")]

    def _ask(self, what: str, **arguments):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(name_of(self.program, "links"))
            except OSError as error:
                raise ConnectionError(f"process {self.program} has no simulated mesh open") from error
            connection.sendall(json.dumps({"what": what, **arguments}).encode() + b"\n")
            received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        answer = json.loads(received) if received else {"error": "the simulator ended"}
        if "error" in answer:
            raise RuntimeError(f"{what} of links {arguments}: {answer['error']}")
        return answer["result"]
