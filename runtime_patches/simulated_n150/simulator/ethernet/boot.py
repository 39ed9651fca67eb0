# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stand in for Tenstorrent's base firmware on the core of an Ethernet tile.

The base firmware trains the link, then waits for customer code: it calls the application at 0x9040 whenever the word at
0x9004 is not zero, and offers services through a table of functions at 0x9020 (tt-metal: eth_l1_address_map.h,
erisc-b0-*.ld, erisc.cc, internal/ethernet/erisc.h). Here it only waits and calls; every service returns at once.
"""

from __future__ import annotations

LAUNCH_FLAG, APPLICATION, SERVICES = 0x9004, 0x9040, 0x9020
SERVICE_COUNT = 8
STUB, RETURN = 0x400, 0x4F0  # in the first KiB of L1, which belongs to the base firmware
STACK = 0xFFB00FF0  # top of the data RAM
GLOBAL_POINTER = 0x93F0  # of erisc-b0-app.ld; the application does not set it

_ZERO, _RA, _SP, _GP, _T0, _T1 = 0, 1, 2, 3, 5, 6


def _lui(rd: int, upper: int) -> int:
    return (upper & 0xFFFFF) << 12 | rd << 7 | 0x37


def _addi(rd: int, rs1: int, value: int) -> int:
    return (value & 0xFFF) << 20 | rs1 << 15 | rd << 7 | 0x13


def _lw(rd: int, rs1: int, offset: int) -> int:
    return (offset & 0xFFF) << 20 | rs1 << 15 | 2 << 12 | rd << 7 | 0x03


def _jalr(rd: int, rs1: int, offset: int) -> int:
    return (offset & 0xFFF) << 20 | rs1 << 15 | rd << 7 | 0x67


def _jal(rd: int, offset: int) -> int:
    bits = offset & 0x1FFFFF
    return (
        (bits >> 20) << 31 | (bits >> 1 & 0x3FF) << 21 | (bits >> 11 & 1) << 20 | (bits >> 12 & 0xFF) << 12 | rd << 7
    ) | 0x6F


def _beqz(rs1: int, offset: int) -> int:
    bits = offset & 0x1FFF
    return (
        (bits >> 12) << 31 | (bits >> 5 & 0x3F) << 25 | rs1 << 15 | (bits >> 1 & 0xF) << 8 | (bits >> 11 & 1) << 7
    ) | 0x63


def _load(rd: int, value: int) -> list[int]:
    low = (value & 0xFFF) - (0x1000 if value & 0x800 else 0)
    return [_lui(rd, (value - low) >> 12), _addi(rd, rd, low)]


def program() -> dict[int, bytes]:
    """Return {L1 address: code or table} of the stub; the core starts at address 0."""
    prologue = [*_load(_SP, STACK), *_load(_GP, GLOBAL_POINTER)]
    poll = [
        *_load(_T0, LAUNCH_FLAG),
        _lw(_T1, _T0, 0),
        _beqz(_T1, -4),
        _jalr(_RA, _T0, APPLICATION - LAUNCH_FLAG),
    ]
    poll.append(_jal(_ZERO, -4 * len(poll)))
    return {
        0: _words([_jal(_ZERO, STUB)]),
        STUB: _words(prologue + poll),
        RETURN: _words([_jalr(_ZERO, _RA, 0)]),
        SERVICES: _words([RETURN] * SERVICE_COUNT),
    }


def start(tile) -> None:
    """Write the stub into an Ethernet tile and release its core."""
    for address, data in program().items():
        tile.L1_mem.write(address, data)
    tile.tile_ctrl.write(0x1B0, bytes(4))  # RISCV_DEBUG_REG_SOFT_RESET_0
    tile.erisc.reset()  # a core that was never reset is not active
    tile.clock.wake()


def is_waiting(tile) -> bool:
    """Return whether the core is in the stub: not in an application, nor in a service that one called."""
    return STUB <= tile.erisc.pc_register.read_uint() < RETURN


def _words(values: list[int]) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)
