# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The matrix unit's arithmetic for operands with an 8-bit exponent, compiled by numba, from register to register.

What it computes is what the installed unit computes with numpy (MatrixUnit._fpu_group_sums_batch,
_fpu_product_batch, _fpu_sum_batch and _fpu_accumulate_batch, whose docstrings give the bounds of every integer):
truncated products, aligned in groups of eight to the largest exponent, then added to Dst with one rounding each.

Src holds a datum as sign, ten fraction bits, exponent; Dst holds 16 bits as sign, seven fraction bits, exponent, and
of a 32-bit datum the lower half eight rows below.
"""

from __future__ import annotations

import numba
import numpy as np

_I = np.int32
# An exponent so low that the sum of two is not above zero: that of an operand that counts as zero.
_NOTHING = np.int32(-4096)
ADD, SUBTRACT = 4, 5  # operations of `elementwise`; 0 to 3 multiply in that fidelity phase


@numba.njit(cache=True)
def _bit_length(value):
    bits = 0
    if value >= 1 << 16:
        value >>= 16
        bits += 16
    if value >= 1 << 8:
        value >>= 8
        bits += 8
    if value >= 1 << 4:
        value >>= 4
        bits += 4
    if value >= 1 << 2:
        value >>= 2
        bits += 2
    return bits + (2 if value >= 2 else value)


@numba.njit(cache=True)
def _rounded(value, shift, sign):
    """Shift right to nearest; a negative term's magnitude goes down at half a unit."""
    if shift == 0:
        return value
    return (value + (1 << (shift - 1)) - sign) >> shift


@numba.njit(cache=True)
def _accumulated(sign0, exponent0, term0, sign1, exponent1, term1, held, wide):
    """Return Dst's new FP32 pattern: `held` and two terms (24 fraction bits or a few more), aligned, added, rounded."""
    sign = held >> 31
    held_exponent = (held >> 23) & 0xFF
    total = ((held & 0x7FFFFF) | 0x800000) if held_exponent else 0
    exponent = max(exponent0, exponent1, held_exponent)
    if exponent <= 0:
        return 0
    term0 = _rounded(term0, min(exponent - exponent0, 31), sign0)
    term1 = _rounded(term1, min(exponent - exponent1, 31), sign1)
    total = _rounded(total, min(exponent - held_exponent, 31), 0)
    if not wide:
        term0 = (term0 + 0x1000 - sign0) & ~0x1FFF
        term1 = (term1 + 0x1000 - sign1) & ~0x1FFF
        total = (total + 0x1000) & ~0x1FFF
    total += term0 if sign0 == sign else -term0
    total += term1 if sign1 == sign else -term1
    if total == 0:
        return 0
    if total < 0:
        sign, total = sign ^ 1, -total
    shift = 24 - _bit_length(total)
    if sign and total == 1:
        shift -= 27  # Wormhole counts the sign bits of -1 as leading ones
    exponent -= shift
    if not wide:
        shift -= 16
    if shift < 0:
        total = _rounded(total, min(-shift, 30), 0)
    else:
        total <<= shift
    if not wide:
        total <<= 16
    exponent += (total >> 24) & 1
    if exponent <= 0:
        return 0
    if exponent >= 255:
        return (sign << 31) | (255 << 23)
    return (sign << 31) | (exponent << 23) | (total & 0x7FFFFF)


@numba.njit(cache=True)
def _place(row, wide):
    return ((row & 0x1F8) << 1 | row & 0x207) if wide else row


@numba.njit(cache=True)
def _held(dst, valid, place, column, wide):
    """Return a datum of Dst as an FP32 pattern."""
    if not valid[place]:
        return np.int64(0)
    high = np.int64(dst[place, column])
    low = np.int64(dst[place + 8, column]) & 0xFFFF if wide else np.int64(0)
    return (high & 0x8000) << 16 | (high & 0xFF) << 23 | (high & 0x7F00) << 8 | low


@numba.njit(cache=True)
def _put(dst, place, column, wide, value):
    dst[place, column] = (value >> 16) & 0x8000 | (value >> 8) & 0x7F00 | (value >> 23) & 0xFF
    if wide:
        dst[place + 8, column] = value & 0xFFFF


@numba.njit(cache=True)
def _slice_a(datum, phase):
    """Return the five significand bits of a SrcA datum that count in a fidelity phase; `datum` ends
    above the fraction."""
    fraction = (datum >> 8) & 0x3FF
    return (fraction >> 1) & 0x1F if phase & 1 else (fraction | 0x400) >> 6


@numba.njit(cache=True)
def _slice_b(datum, phase):
    fraction = (datum >> 8) & 0x3FF
    return (fraction & 0xF) << 3 if phase & 2 else (fraction | 0x400) >> 4


@numba.njit(cache=True)
def _bias(phase):
    return -127 - (5 if phase & 1 else 0) - (7 if phase & 2 else 0)


@numba.njit(cache=True)
def multiply(src_a, src_b, dst, valid, a_row, b_row, b_step, dst_row, rows, kept, kept_b, wide, phase):
    """Execute MVMUL, DOTPV or GAPOOL: Dst rows += SrcB rows (the next one each b_step) times 16 rows of SrcA.

    kept, kept_b: the bits of a SrcA and of a SrcB datum that count (BF16 has no lowest three of the fraction).
    """
    a_exponents = np.empty((16, 16), np.int32)
    a_slices = np.empty((16, 16), np.int32)
    a_signs = np.empty((16, 16), np.int32)
    top = np.empty((2, 16), np.int32)
    sums = np.empty((2, 16), np.int32)
    for k in range(16):
        for c in range(16):
            datum = _I(src_a[a_row + k, c]) & _I(kept)
            exponent = datum & _I(0xFF)
            a_exponents[k, c] = exponent if exponent else _NOTHING
            a_slices[k, c] = _slice_a(datum, phase) if exponent else 0
            a_signs[k, c] = -((datum >> 18) & 1)
    bias = _bias(phase)
    for r in range(rows):
        b = b_row + r * b_step
        for group in range(2):
            best, total = top[group], sums[group]
            best[:] = 0
            total[:] = 0
            for k in range(8 * group, 8 * group + 8):
                b_exponent = src_b[b, k] & 0xFF
                if b_exponent:
                    b_exponent = _I(b_exponent + bias)
                    for c in range(16):
                        exponent = _I(a_exponents[k, c] + b_exponent)
                        best[c] = exponent if exponent > best[c] else best[c]
            for k in range(8 * group, 8 * group + 8):
                datum = _I(src_b[b, k]) & _I(kept_b)
                b_exponent = datum & _I(0xFF)
                if b_exponent:
                    b_exponent = _I(b_exponent + bias)
                    b_slice = _I(_slice_b(datum, phase) << 1)
                    b_sign = _I(-((datum >> 18) & 1))
                    for c in range(16):
                        shift = np.uint32(min(_I(best[c] - a_exponents[k, c] - b_exponent), _I(30)))
                        product = np.uint32(a_slices[k, c] * b_slice)
                        shifted = np.uint32(product + np.uint32(np.uint32(1) << shift)) >> shift
                        aligned = _I(_I(shifted) >> _I(1))
                        sign = _I(a_signs[k, c] ^ b_sign)
                        total[c] = _I(total[c] + _I(_I(aligned ^ sign) - sign))
        place = _place(dst_row + r, wide)
        for c in range(16):
            exponent0, exponent1 = np.int64(top[0, c]), np.int64(top[1, c])
            term0 = np.int64(sums[0, c]) if exponent0 > 0 else 0
            term1 = np.int64(sums[1, c]) if exponent1 > 0 else 0
            value = _accumulated(
                np.int64(term0 < 0),
                exponent0,
                abs(term0) << 13,
                np.int64(term1 < 0),
                exponent1,
                abs(term1) << 13,
                _held(dst, valid, place, c, wide),
                wide,
            )
            _put(dst, place, c, wide, value)
        valid[place] = True


@numba.njit(cache=True)
def _product(a, b, phase):
    """Return sign, exponent and term of one product."""
    a_exponent, b_exponent = a & 0xFF, b & 0xFF
    exponent = a_exponent + b_exponent + _bias(phase)
    if a_exponent == 0 or b_exponent == 0 or exponent <= 0:
        return 0, 0, 0
    term = _slice_a(a, phase) * _slice_b(b, phase)
    return (((a ^ b) >> 18) & 1 if term else 0), exponent, term << 13


@numba.njit(cache=True)
def _sum(a, b):
    """Return sign, exponent and term of one sum: the smaller operand is rounded to the larger one's exponent."""
    a_exponent, b_exponent = a & 0xFF, b & 0xFF
    a_sign, b_sign = (a >> 18) & 1, (b >> 18) & 1
    a_term, b_term = (a >> 8 & 0x3FF) | 0x400, (b >> 8 & 0x3FF) | 0x400
    if a_exponent == 0:
        a_sign = a_term = 0
    if b_exponent == 0:
        b_sign = b_term = 0
    if a_exponent < b_exponent or (a_exponent == b_exponent and a_term < b_term):
        a_exponent, b_exponent = b_exponent, a_exponent
        a_sign, b_sign = b_sign, a_sign
        a_term, b_term = b_term, a_term
    b_term = _rounded(b_term, min(a_exponent - b_exponent, 12), 0)
    return a_sign, a_exponent, (a_term + b_term if a_sign == b_sign else a_term - b_term) << 13


@numba.njit(cache=True)
def elementwise(
    src_a, src_b, dst, valid, a_row, b_row, b_step, b_columns, dst_row, kept, kept_b, wide, operation, accumulate
):
    """Execute ELWMUL, ELWADD or ELWSUB: 8 rows of Dst from as many of SrcA and of SrcB.

    b_step: 0 where one row of SrcB serves all; b_columns: 0 where its first column does.
    """
    for r in range(8):
        place = _place(dst_row + r, wide)
        for c in range(16):
            a = np.int64(src_a[a_row + r, c]) & kept
            b = np.int64(src_b[b_row + r * b_step, c * b_columns]) & kept_b
            if operation < ADD:
                sign, exponent, term = _product(a, b, operation)
            else:
                sign, exponent, term = _sum(a, b ^ 0x40000 if operation == SUBTRACT else b)
            held = _held(dst, valid, place, c, wide) if accumulate else np.int64(0)
            value = _accumulated(sign, exponent, term, np.int64(0), np.int64(0), np.int64(0), held, wide)
            _put(dst, place, c, wide, value)
        valid[place] = True
