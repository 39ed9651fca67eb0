# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Let the simulator processes of one host program find each other.

tt-metal's UMD starts a simulator process for each chip, one after the other in the order of their numbers: it spawns
run.sh, waits until that process has dialled in, and goes on to the next. The first process of a host program hosts all
chips; it listens on an abstract unix socket named after the program. Each later process finds that name taken, hands
over the address it was to dial, and stays until the host of the chips ends, since UMD expects a process for each chip.

Nothing of the simulator is imported here: the later processes should be small and quick.
"""

from __future__ import annotations

import contextlib
import os
import socket

_BACKLOG = 16


def name_of(program: int, purpose: str) -> str:
    """Return the abstract socket name for a host program's process id. purpose: "chips" or "links"."""
    return f"\0llama-alspec-simulated-n150-{purpose}-{program}"


def listen(program: int, purpose: str = "chips") -> socket.socket | None:
    """Return a listening socket, or None when another process has the name."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(name_of(program, purpose))
    except OSError:
        listener.close()
        return None
    listener.listen(_BACKLOG)
    return listener


def hand_over(program: int, address: str) -> None:
    """Give the address to dial to the process that hosts the chips, and wait until that process ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(name_of(program, "chips"))
        connection.sendall(address.encode() + b"\n")
        with contextlib.suppress(OSError):
            while connection.recv(1):
                pass


def accept(listener: socket.socket) -> tuple[str, socket.socket]:
    """Return the next address handed over, and the connection whose end tells its sender that the chips are gone."""
    connection, _ = listener.accept()
    received = b""
    while not received.endswith(b"\n"):
        part = connection.recv(4096)
        if not part:
            raise ConnectionError("a simulator process ended before it had handed over its address")
        received += part
    return received.decode().strip(), connection


def program_id() -> int:
    """Return the process id of the host program: UMD spawns run.sh, which becomes this process."""
    return os.getppid()
