# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Block floating point: 16 datums share one exponent.

Rules (tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor): FloatBitPatterns.md "BFP" for what the
bits mean and how they are unpacked, Packers/FormatConversion.md "Late format conversion" for packing: to
BFP8, round to nearest with ties away from zero, one exponent for 16 datums; to BFP4 and BFP2, convert to BFP8
and truncate.

Two things are not published. A magnitude that rounds up to 128 (possible only when the packer was not told to
round to the format's own precision first) saturates at 127. A magnitude of zero is packed without its sign,
because a set sign with magnitude zero means minus infinity.
"""

from __future__ import annotations

import numpy as np

GROUP = 16
_BYTES = np.arange(256)
_MAGNITUDES = _BYTES & 0x7F
# How far a 7-bit magnitude is from having its top bit set.
_LEADING_ZEROS = np.array([7 - int(magnitude).bit_length() for magnitude in _MAGNITUDES])
_FRACTIONS = (_MAGNITUDES << (_LEADING_ZEROS + 1)) & 0x7E
_SIGNS = _BYTES >> 7


def has_wide_exponent(code: int) -> bool:
    """Return whether the shared exponent has 8 bits (6, 7, 15) rather than 5 (2, 3, 11)."""
    return code in (6, 7, 15)


def split_bytes(raw: np.ndarray, bits: int) -> np.ndarray:
    """Split bytes into datums of 8, 4 or 2 bits (lowest bits first), each moved to the top of a byte."""
    if bits == 8:
        return raw.astype(np.int64)
    shifts = np.arange(0, 8, bits)
    datums = (raw[:, np.newaxis].astype(np.int64) >> shifts) & ((1 << bits) - 1)
    return datums.reshape(-1) << (8 - bits)


def join_bytes(datums: np.ndarray, bits: int) -> np.ndarray:
    """Invert split_bytes: pack datums, each at the top of a byte, lowest bits first."""
    if bits == 8:
        return datums.astype(np.uint8)
    per_byte = 8 // bits
    shifts = np.arange(0, 8, bits)
    groups = (datums.astype(np.int64) >> (8 - bits)).reshape(-1, per_byte)
    return (groups << shifts).sum(axis=1).astype(np.uint8)


def to_bfloat16(datums: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return 8-bit datums with their 8-bit exponents (one per datum) as bfloat16 patterns."""
    exponent = (exponents - _LEADING_ZEROS[datums]) & 0xFF
    values = _SIGNS[datums] << 15 | exponent << 7 | _FRACTIONS[datums]
    return np.where(_MAGNITUDES[datums] == 0, np.where(_SIGNS[datums] == 1, 0xFF80, 0), values)


def to_half(datums: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return 8-bit datums with their 5-bit exponents (one per datum) as patterns of the coprocessor's
    half precision."""
    exponent = (exponents - _LEADING_ZEROS[datums]) & 0xFF
    zero = _MAGNITUDES[datums] == 0
    if np.any((exponent > 31) & ~zero):
        raise ValueError("a block float with a 5-bit exponent left the range of half precision, which is undefined")
    values = _SIGNS[datums] << 15 | exponent << 10 | _FRACTIONS[datums] << 3
    return np.where(zero, np.where(_SIGNS[datums] == 1, 0xFC00, 0), values)


def share_exponent(signs: np.ndarray, exponents: np.ndarray, fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round values to 8-bit datums with one exponent for 16.

    signs, exponents, fractions: integers, a multiple of 16 long; a value is 1.fraction (7 bits) times two to the
    exponent, or zero where the exponent is zero. Returns (datums as bytes: sign and 7-bit magnitude, one exponent for
    each 16).
    """
    shape = (-1, GROUP)
    exponents = exponents.reshape(shape)
    shared = exponents.max(axis=1)
    significands = np.where(exponents == 0, 0, fractions.reshape(shape) | 0x80)
    # One bit is lost to the explicit leading one, and one for each step below the largest exponent.
    distance = np.minimum(shared[:, np.newaxis] - exponents + 1, 15)
    magnitudes = np.minimum((significands + (1 << (distance - 1))) >> distance, 127)
    datums = np.where(magnitudes == 0, 0, signs.reshape(shape) << 7 | magnitudes)
    return datums.reshape(-1), shared


def truncate(datums: np.ndarray, bits: int) -> np.ndarray:
    """Cut 8-bit datums to 4 or 2 bits, still at the top of their byte; no sign is left on a zero magnitude."""
    kept = datums & (0xFF00 >> bits & 0xFF)
    return np.where(kept & 0x7F, kept, 0)
