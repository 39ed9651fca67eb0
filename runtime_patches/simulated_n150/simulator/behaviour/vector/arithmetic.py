# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The vector unit's multiply-add on 32 lanes at once.

Rule: SFPMAD, SFPADD, SFPMUL and the table look-ups compute a * b + c partially fused: the product keeps more
bits than FP32 but not all, one rounding to nearest even follows, denormal inputs count as zero and denormal
or negative-zero results become +0. Source: tt-isa-documentation,
WormholeB0/TensixTile/TensixCoprocessor/SFPMAD.md. How many bits the product keeps is not published; the
simulator's own model (`fma_model_wh`) is taken as it is, and the tests hold this faster form to it bit for
bit.
"""

from __future__ import annotations

import numba
import numpy as np

_HIDDEN = 0x800000
_FRACTION = 0x7FFFFF
_SIGN = 0x80000000
_INFINITY = 0x7F800000
_QUIET = 0x7F800001


@numba.njit(cache=True)
def _align(value, distance, width):
    """Shift right, with a lowest bit that remembers what was shifted out, unless nothing is left at all."""
    if distance >= width:
        return 0
    kept = value >> distance
    if kept != 0 and (kept << distance) != value:
        kept |= 1
    return kept


@numba.njit(cache=True)
def _bit_length(value):
    bits = 0
    while value:
        value >>= 1
        bits += 1
    return bits


@numba.njit(cache=True)
def _multiply_add(a, b, c):
    """Return a * b + c on FP32 bit patterns held in 64-bit integers."""
    a_exponent, b_exponent, c_exponent = (a >> 23) & 255, (b >> 23) & 255, (c >> 23) & 255
    a_fraction = ((a & _FRACTION) | _HIDDEN) if a_exponent else 0
    b_fraction = ((b & _FRACTION) | _HIDDEN) if b_exponent else 0
    addend = (((c & _FRACTION) | _HIDDEN) << 3) if c_exponent else 0
    product_sign = (a ^ b) & _SIGN
    addend_sign = c & _SIGN
    # 24 x 24 bits give 48; 28 are kept, the lowest standing for all that is dropped.
    full = a_fraction * b_fraction
    product = (full >> 20) | (1 if full & 0xFFFFF else 0)
    exponent = a_exponent + b_exponent - 127

    invalid = 0
    product_overflows = a_exponent == 255 or b_exponent == 255 or exponent >= 255
    if product_overflows or c_exponent == 255:
        c_infinite = c_exponent == 255 and addend == (_HIDDEN << 3)
        if (
            (a_exponent == 255 and (a_fraction != _HIDDEN or b_fraction == 0))
            or (b_exponent == 255 and (b_fraction != _HIDDEN or a_fraction == 0))
            or (c_infinite and product_overflows and addend_sign != product_sign)
        ):
            invalid = product_sign | _QUIET
        elif c_exponent == 255 and not c_infinite:
            invalid = addend_sign | _QUIET
        elif c_exponent == 255:
            return c
        else:
            return product_sign | _INFINITY
        exponent = min(exponent, 255)

    if product == 0 or exponent < 0:
        if invalid == 0:
            return c if addend else 0
        product, exponent = 0, 0

    highest = max(exponent, c_exponent)
    product = _align(product, highest - exponent, 64)
    addend = _align(addend, highest - c_exponent, 32)
    sign = product_sign if product >= addend else addend_sign
    if product_sign == addend_sign:
        total = product + addend
    else:
        total = abs(product - addend)
    if total == 0:
        return invalid

    excess = _bit_length(total) - 27
    highest += excess
    if highest >= 255:
        return invalid if invalid else sign | _INFINITY
    if highest < 0:
        return invalid
    if excess <= 0:
        total <<= -excess
    else:
        total = (total >> excess) | (total & 1)
    result = (highest << 23) + ((total >> 3) & _FRACTION)
    if (total & 7) + (result & 1) > 4:
        result += 1
    if result >> 23 == 0:
        return invalid
    return (invalid if invalid else sign) | result


@numba.njit(cache=True)
def multiply_add(a, b, c, out):
    """Set out[i] = a[i] * b[i] + c[i]; all four are uint32 arrays of FP32 bit patterns of one length."""
    for lane in range(out.shape[0]):
        out[lane] = np.uint32(_multiply_add(np.int64(a[lane]), np.int64(b[lane]), np.int64(c[lane])))
