# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The documented rules of Wormhole's vector unit in numpy, on arrays of uint32 bit patterns.

From Tenstorrent's ISA documentation (WormholeB0/TensixTile/TensixCoprocessor), one function an instruction,
written without looking at the layer under test or at the simulator. Where the documentation leaves bits of a
NaN open, tests compare NaN-ness only.
"""

from __future__ import annotations

import numpy as np

SIGN = np.uint32(0x80000000)
U32 = np.uint32


def bits(value) -> np.ndarray:
    """Bit pattern of a float32 value or array."""
    return np.asarray(value, dtype=np.float32).view(np.uint32)


def floats(pattern: np.ndarray) -> np.ndarray:
    """float32 values of patterns."""
    return np.asarray(pattern, dtype=np.uint32).view(np.float32)


def signed(pattern: np.ndarray) -> np.ndarray:
    return pattern.astype(np.uint32).view(np.int32).astype(np.int64)


def wrap(value) -> np.ndarray:
    return (np.asarray(value).astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)


def is_nan(pattern):
    return (pattern & U32(0x7FFFFFFF)) > U32(0x7F800000)


def exponent(pattern):
    return (pattern >> U32(23)).astype(np.int64) & 0xFF


def mantissa(pattern):
    return pattern & U32(0x7FFFFF)


def flush(pattern):
    """Denormals as the multiplier reads them: zeros."""
    return np.where(exponent(pattern) == 0, pattern & SIGN, pattern).astype(np.uint32)


def mad(a, b, c):
    """SFPMAD: a * b + c, one rounding; denormal inputs are zero; a denormal or negative zero comes out as +0.

    The product is exact in float64; the sum is exact or loses bits far below a float32's.
    """
    with np.errstate(all="ignore"):
        product = floats(flush(a)).astype(np.float64) * floats(flush(b)).astype(np.float64)
        result = bits((product + floats(flush(c)).astype(np.float64)).astype(np.float32))
    return np.where(exponent(result) == 0, 0, result).astype(np.uint32)


def add_sign(magnitude, sign):
    return (magnitude & ~SIGN) | (sign & SIGN)


def abs_float(x):
    """SFPABS: clears the sign, except of a NaN."""
    return np.where((x >= U32(0xFF800001)), x, x & ~SIGN).astype(np.uint32)


def abs_int(x):
    return wrap(np.abs(signed(x)))


def order(x):
    """Sign-and-magnitude order of SFPSWAP as an integer."""
    magnitude = (x & ~SIGN).astype(np.int64)
    return np.where(x & SIGN, -magnitude - 1, magnitude)


def smaller(x, y):
    return np.where(order(x) < order(y), x, y).astype(np.uint32)


def larger(x, y):
    return np.where(order(x) < order(y), y, x).astype(np.uint32)


def set_exponent(x, field):
    return (x & U32(0x807FFFFF)) | (wrap(field) & U32(0xFF)) << U32(23)


def set_mantissa(x, field):
    return (x & U32(0xFF800000)) | (wrap(field) & U32(0x7FFFFF))


def add_exponent(x, delta):
    changed = set_exponent(x, exponent(x) + delta)
    return np.where(exponent(x) == 255, x, changed).astype(np.uint32)


def shift(x, amount):
    """SFPSHFT: left by a non-negative amount, logically right by a negative one, modulo 32."""
    amount = np.broadcast_to(np.asarray(amount, dtype=np.int64), np.shape(x))
    left = x.astype(np.uint64) << (np.abs(amount) & 31).astype(np.uint64)
    right = x.astype(np.uint64) >> (np.abs(amount) & 31).astype(np.uint64)
    return wrap(np.where(amount >= 0, left, right).astype(np.int64))


def leading_zeros(x):
    return U32(32) - np.array([int(v).bit_length() for v in x.ravel()], dtype=np.uint32).reshape(x.shape)


def cast(x):
    """SFPCAST: sign and magnitude to FP32, ties to even. int64 -> float32 rounds that way."""
    return add_sign(bits((x & ~SIGN).astype(np.int64).astype(np.float32)), x)


def round_float(x, kept_bits):
    """SFPSTOCHRND to 16-bit formats, to nearest with ties away; denormals to zero, NaN to infinity."""
    dropped = 23 - kept_bits
    discarded = x & U32((1 << dropped) - 1)
    rounded = x - discarded + np.where(discarded >= (1 << (dropped - 1)), 1 << dropped, 0).astype(np.uint32)
    rounded = np.where(exponent(x) == 255, x & U32(0xFF800000), rounded)
    return np.where(exponent(x) == 0, 0, rounded).astype(np.uint32)


def round_integer(x, limit, keeps_sign):
    """SFPSTOCHRND to integers: nearest, ties away, clamped; NaN counts as huge."""
    power = exponent(x) - 127
    huge = power >= 16
    magnitude = np.floor(np.abs(floats(np.where(huge, 0, x).astype(np.uint32))).astype(np.float64) + 0.5)
    magnitude = np.where(power < -1, 0, np.where(huge, limit, np.minimum(magnitude, limit)))
    sign = (x & SIGN) if keeps_sign else U32(0)
    return np.where(magnitude == 0, 0, wrap(magnitude) | sign).astype(np.uint32)


def sign_magnitude(x):
    """Two's complement to sign and magnitude: SFPABS, then the sign."""
    return add_sign(abs_int(x), x)


def twos_complement(x):
    magnitude = (x & ~SIGN).astype(np.int64)
    return wrap(np.where(x & SIGN, -magnitude, magnitude))


def lut8(pattern):
    """Value of SFPLUT's 8-bit float."""
    if pattern == 0xFF:
        return 0.0
    value = (1 + (pattern & 15) / 16) * 2.0 ** -((pattern >> 4) & 7)
    return -value if pattern & 0x80 else value
