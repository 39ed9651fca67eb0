# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Connect to the host program of one chip: nng's pair1 protocol over TCP, on a plain socket.

The nng library receives in threads of its own, so that what the host sent to one chip first may be seen after what it
sent to another later: a semaphore it cleared before a launch would be cleared in the middle of the program. On a plain
socket all that was sent before a message that has arrived can be read (loopback TCP delivers as it sends), and
``received`` returns it without waiting.

Sources: nanomsg RFC "SP TCP mapping" (greeting, lengths of 64 bits), nng's pair1 (a hop count of 32 bits first).
"""

from __future__ import annotations

import select
import socket
import struct
from collections import deque

_GREETING = struct.Struct(">4sHH")
_MAGIC, _PAIR1 = b"\0SP\0", 0x11
_LENGTH, _HOPS = struct.Struct(">Q"), struct.Struct(">I")
_FIRST_HOP = _HOPS.pack(1)
_PART = 1 << 20
# After so many bytes at once the sender's own buffer may hold more, which comes as soon as there is room.
_LARGE, _MORE_MS = 32 * 1024, 2


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of "tcp://host:port", the only kind UMD listens on; ValueError otherwise."""
    scheme, _, place = text.partition("://")
    host, _, port = place.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        raise ValueError(f"not an address of the host program, tcp://host:port: {text!r}")
    return host, int(port)


class HostConnection:
    """Dial the host program at `address` ("tcp://host:port"). ConnectionError when it is no pair1 socket."""

    def __init__(self, address: str):
        self._socket = socket.create_connection(address_of(address))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(_GREETING.pack(_MAGIC, _PAIR1, 0))
        greeting = self._socket.recv(_GREETING.size, socket.MSG_WAITALL)
        if len(greeting) < _GREETING.size or _GREETING.unpack(greeting)[:2] != (_MAGIC, _PAIR1):
            self._socket.close()
            raise ConnectionError(f"{address} answered {greeting!r}, which is no nng pair1 socket")
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._bytes = bytearray()
        self._messages: deque[bytes] = deque()
        self.ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        """Send a message; ConnectionError when the host program is gone."""
        self._socket.sendall(_LENGTH.pack(_HOPS.size + len(message)) + _FIRST_HOP + message)

    def received(self) -> deque[bytes]:
        """Return all messages that have arrived and were not taken off yet, oldest first; the caller takes them off."""
        at_once = 0
        while not self.ended:
            # A message that has begun is waited for: its sender sends the rest as soon as there is room.
            wait = None if self._bytes else (_MORE_MS if at_once >= _LARGE else 0)
            if not self._poll.poll(wait):
                break
            size = self._receive()
            at_once = at_once + size if wait != _MORE_MS else size
        return self._messages

    def next(self) -> bytes | None:
        """Return the oldest message that was not taken off yet, waiting for it; None when the host
        program has ended."""
        while not self._messages:
            if self.ended:
                return None
            self._receive()
        return self._messages.popleft()

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> int:
        """Wait for what comes next; return how many bytes, 0 when the host program has ended."""
        try:
            part = self._socket.recv(_PART)
        except ConnectionError:
            part = b""
        self.ended = not part
        self._bytes += part
        self._split()
        return len(part)

    def _split(self) -> None:
        start, have = 0, len(self._bytes)
        while have - start >= _LENGTH.size:
            end = start + _LENGTH.size + _LENGTH.unpack_from(self._bytes, start)[0]
            if have < end:
                break
            self._messages.append(bytes(self._bytes[start + _LENGTH.size + _HOPS.size : end]))
            start = end
        del self._bytes[:start]
