# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Read and write UMD's messages without the flatbuffers library, which takes ten times as long.

Table DeviceRequestResponse: command (int8), data ([uint32]), core (struct of two uint64), address (uint64), size
(uint32), in slots 0 to 4; see the simulator's framework/bridge/protocol.py, whose functions these stand in for.
"""

from __future__ import annotations

import struct

from framework.bridge.protocol import CMD_READ, Request, build_msg

_OFFSET, _SIGNED_OFFSET, _CORE = struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<QQ")
_LONG, _WORD = struct.Struct("<Q"), struct.Struct("<I")
_WORD_BYTES = 4
# A message with one word of data ends with the vector: its length, then the word.
_ANSWER = build_msg(CMD_READ, data=bytes(_WORD_BYTES))[: -2 * _WORD_BYTES]


def parse(message: bytes) -> Request:
    """Do as protocol.parse."""
    table = _OFFSET.unpack_from(message)[0]
    slots = table - _SIGNED_OFFSET.unpack_from(message, table)[0]
    size = int.from_bytes(message[slots : slots + 2], "little")
    places = [
        int.from_bytes(message[slots + at : slots + at + 2], "little") if at < size else 0 for at in (4, 6, 8, 10, 12)
    ]
    command, data, core, address, length = places
    content = b""
    if data:
        vector = table + data + _OFFSET.unpack_from(message, table + data)[0]
        words = _OFFSET.unpack_from(message, vector)[0]
        content = message[vector + 4 : vector + 4 + _WORD_BYTES * words]
    return Request(
        cmd=struct.unpack_from("<b", message, table + command)[0] if command else 0,
        core=_CORE.unpack_from(message, table + core) if core else (0, 0),
        address=_LONG.unpack_from(message, table + address)[0] if address else 0,
        size=_WORD.unpack_from(message, table + length)[0] if length else 0,
        data=content,
    )


def answer(data: bytes) -> bytes:
    """Do as protocol.build_msg(CMD_READ, data=data), with zeros up to a whole number of words."""
    if not data:
        return build_msg(CMD_READ)
    padded = data + bytes(-len(data) % _WORD_BYTES)
    return _ANSWER + _OFFSET.pack(len(padded) // _WORD_BYTES) + padded
