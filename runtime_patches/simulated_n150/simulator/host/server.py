# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Host the chips of a mesh in one process: take the host program's requests for all of them, one at a time."""

from __future__ import annotations

import functools
import os
import selectors
import socket
from pathlib import Path

import yaml
from framework.bridge import host_not_stranded, protocol
from framework.network.noc_translation import translation_source

from runtime_patches.simulated_n150.simulator.diagnosis import Diagnosis
from runtime_patches.simulated_n150.simulator.ethernet.link import Link, Place
from runtime_patches.simulated_n150.simulator.host import wire
from runtime_patches.simulated_n150.simulator.host.chip import Chip
from runtime_patches.simulated_n150.simulator.host.control import LinkControl
from runtime_patches.simulated_n150.simulator.host.lockstep import Clock
from runtime_patches.simulated_n150.simulator.host.pair import HostConnection
from runtime_patches.simulated_n150.simulator.host.rendezvous import accept, listen, program_id

DESCRIPTOR_VARIABLE = "TT_METAL_MOCK_CLUSTER_DESC_PATH"


class MeshServer:
    """The server. descriptor: the parsed cluster descriptor, which says how many chips there are and
    what joins them."""

    def __init__(self, descriptor: dict, diagnosis: Diagnosis):
        self.descriptor, self.diagnosis = descriptor, diagnosis
        self.clock = Clock()
        diagnosis.links = self.clock.link_report
        self.chips: list[Chip] = []
        self._sockets: dict[int, tuple[Chip, HostConnection]] = {}
        self._reads: dict[int, protocol.Request] = {}  # the first not yet done, of each chip
        self._selector = selectors.DefaultSelector()
        self._waiting: list[socket.socket] = []
        control = listen(program_id(), "links")
        if control is None:
            raise RuntimeError(f"another process controls the links of program {program_id()}")
        self._selector.register(control, selectors.EVENT_READ, ("links", control))
        self._control = LinkControl(self.clock)

    @property
    def expected(self) -> int:
        return len(self.descriptor["chips"])

    def run(self, address: str, listener: socket.socket) -> None:
        """Serve until the host program has taken leave of every chip. address: of chip 0."""
        self._add_chip(address)
        if self.expected > 1:
            self._selector.register(listener, selectors.EVENT_READ, ("listener", listener))
        with host_not_stranded(address):
            while self._sockets:
                more = self._serve()
                if not self._sockets:
                    break
                for key, _ in self._selector.select(0 if more else None):
                    kind, value = key.data
                    if kind == "links":
                        self._control.answer(value)
                    elif kind == "listener":
                        address, connection = accept(value)
                        self._waiting.append(connection)
                        self._add_chip(address)

    def _add_chip(self, address: str) -> None:
        number = len(self.chips)
        if number >= self.expected:
            raise RuntimeError(f"a simulator process more than the {self.expected} chips of the cluster descriptor")
        translated, why = translation_source(os.environ)
        chip = Chip(number, self.expected, self.clock, translated, why, address)
        self.chips.append(chip)
        self.diagnosis.watch(chip.device.tt_device, number)
        chip.device.tt_device.deadlock_detector.elsewhere = functools.partial(self._elsewhere, number)
        if len(self.chips) == self.expected:
            self._wire()
        connection = HostConnection(address)
        self._selector.register(connection, selectors.EVENT_READ, ("chip", None))
        self._sockets[number] = (chip, connection)
        connection.send(protocol.build_msg(protocol.CMD_EXIT))  # UMD waits for this as a sign of life

    def _wire(self) -> None:
        links = []
        for number, ends in enumerate(self.descriptor["ethernet_connections"]):
            places = [Place(end["chip"], end["chan"]) for end in ends[:2]]
            one, other = ((place, self.chips[place.chip].ethernet_tile(place.channel)) for place in places)
            links.append(Link(number, one, other))
        self.clock.add_links(links)
        for link in links:
            for end in link.ends:
                self.chips[end.place.chip].connect(end.place.channel)

    def _elsewhere(self, chip: int, cycle: int, window: int) -> tuple[bool, list[str]]:
        """Tell a chip's deadlock watch whether anything moved in the last `window` cycles, and what to report."""
        watches = [other.device.tt_device.deadlock_detector for other in self.chips]
        latest = max([watch.stall_since for watch in watches] + [self.clock.latest_arrival])
        return latest > cycle - window, [f"chip {chip}:", *self.clock.link_report()]

    def _serve(self) -> bool:
        """Do what the host has asked of all chips, and one read, in which time goes on; return whether there was one.

        All that the host had asked of any chip before that read is done first, as on a board, where a write takes
        nanoseconds. A chip's requests after a read wait until it is done: another thread of the host waits for it.
        """
        self._write_all()
        if not self._reads:
            return False
        self._write_all()  # sent before that read, but after the other chip had been looked at
        number = next(iter(self._reads))
        (chip, connection), request = self._sockets[number], self._reads.pop(number)
        connection.send(wire.answer(chip.fabric.read(request.core, request.address, request.size)))
        return True

    def _write_all(self) -> None:
        for number, (chip, connection) in list(self._sockets.items()):
            if number not in self._reads and (request := self._write(chip, connection)) is not None:
                self._reads[number] = request

    def _write(self, chip: Chip, connection: HostConnection) -> protocol.Request | None:
        """Do what the host has asked of a chip; the first read among it, which is not done, ends that."""
        messages = connection.received()
        while messages:
            request = wire.parse(messages.popleft())
            if request.cmd == protocol.CMD_READ:
                return request
            if request.cmd == protocol.CMD_WRITE:
                chip.fabric.write(request.core, request.address, request.data)
            elif request.cmd == protocol.CMD_RESET_ASSERT:
                chip.fabric.assert_reset(request.core)
            elif request.cmd == protocol.CMD_RESET_DEASSERT:
                chip.fabric.deassert_reset(request.core)
            elif request.cmd == protocol.CMD_EXIT:
                self._take_leave(chip, connection)
            else:
                raise ValueError(f"the host program sent command {request.cmd} to chip {chip.number}")
        if connection.ended and chip.number in self._sockets:
            self._take_leave(chip, connection)
        return None

    def _take_leave(self, chip: Chip, connection: HostConnection) -> None:
        self._selector.unregister(connection)
        del self._sockets[chip.number]
        connection.close()


def serve(address: str, listener: socket.socket, diagnosis: Diagnosis) -> int:
    """Host the mesh that the cluster descriptor of the environment describes."""
    descriptor = yaml.safe_load(Path(os.environ[DESCRIPTOR_VARIABLE]).read_text())
    server = MeshServer(descriptor, diagnosis)
    server.run(address, listener)
    return 0
