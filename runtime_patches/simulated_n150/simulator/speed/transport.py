# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""One chip's connection to its host, on a plain socket.

A host that waits for a program asks thousands of times per second, and nng with flatbuffers took a seventh of all time
for that. The messages are taken one by one in the order in which they came, as before; host/pair.py and host/wire.py,
which a mesh has anyway, carry and read them.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def _apply() -> None:
    from framework.bridge import protocol
    from framework.bridge.transport import Transport

    from runtime_patches.simulated_n150.simulator.host import wire
    from runtime_patches.simulated_n150.simulator.host.pair import HostConnection

    installed = Transport.serve

    def serve(self, fabric):
        if self.trace_writer is not None:
            installed(self, fabric)
            return
        connection = HostConnection(self.addr)
        try:
            connection.send(protocol.build_msg(protocol.CMD_EXIT))
            self._log("sent EXIT ack")
            while message := connection.next():
                request = wire.parse(message)
                self.msg_count += 1
                self._log_request(request)
                answer = self._handle(fabric, request)
                if answer is not None:
                    connection.send(wire.answer(answer))
                if request.cmd == protocol.CMD_EXIT:
                    return
        finally:
            connection.close()

    Transport.serve = serve


PATCH = Patch(
    name="plain connection",
    rule="the host's messages come over a plain socket instead of through nng and flatbuffers",
    source="nanomsg RFC SP TCP mapping; nng's pair1",
    targets={
        "framework.bridge.transport.Transport": "d066e58d5c7d2c9f",
        "framework.bridge.protocol": "6b2a30afdadd4ce6",
    },
    apply=_apply,
)
