# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compute the packers' two format conversions, the ReLU between them and accumulation, on arrays.

Rules: Packers/FormatConversion.md and Packers/ReLU.md of tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor.
Formats are the four-bit codes of data_format.DataFormat.

The conversions that the installed simulator had keep its results bit for bit, also where the documentation would flush
denormals or turn NaN into infinity (a bfloat16 Dst packed as bfloat16 or FP32). Added: the block floats, 8-bit and
16-bit integers, the formats with seven- and six-bit fractions that lead to block floats, ReLU, accumulation. How
accumulation rounds is not published; it adds in FP32 and rounds to nearest even.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.util import DataFormatConversions as Convert

from runtime_patches.simulated_n150.simulator.behaviour.data_format import DataFormat as F

_HALF_FAMILY = (F.FP16, F.BFP8a, F.FP8)
_MASK = 0xFFFFFFFF


def round_fraction(bits: np.ndarray, kept: int) -> np.ndarray:
    """Return FP32 patterns rounded to `kept` fraction bits, ties away from zero; denormals become +0, NaN infinity."""
    bits = np.where((bits & 0x7FFFFFFF) > 0x7F800000, (bits & 0x80000000) | 0x7F800000, bits)
    dropped = 23 - kept
    magnitude = bits & 0x7FFFFFFF
    finite = magnitude < 0x7F800000
    rounded = np.where(finite, (magnitude + (1 << (dropped - 1))) >> dropped << dropped, magnitude)
    return np.where(rounded < 0x800000, 0, (bits & 0x80000000) | rounded)


def early(raw: np.ndarray, wide: bool, intermediate: F, raw_read: bool, tf32: bool) -> np.ndarray:
    """Convert Dst bits to the intermediate format: floats as FP32 patterns, integers as they are.

    raw: what Dst holds, 32 bits per datum when `wide`, else 16. raw_read: PCK_DEST_RD_CTRL_Read_int8, which asks for
    bits as they are. tf32: PCK_DEST_RD_CTRL_Round_10b_mant.
    """
    if intermediate in (F.INT32, F.INT16):
        return Convert.FP32InDstToFP32(raw) if wide else raw
    if intermediate == F.INT8:
        return _to_small_integer(raw, wide)
    if wide:
        bits = Convert.FP32InDstToFP32(raw)
        if raw_read or (intermediate == F.FP32 and not tf32):
            return bits
        if intermediate in (F.FP32, F.TF32) or (intermediate == F.BF16 and tf32):
            return round_fraction(bits, 10)
        if intermediate == F.BF16:
            return round_fraction(bits, 7)
        if intermediate == F.BFP8:
            return round_fraction(bits, 6)
        raise ValueError(f"the packers cannot take FP32 from Dst to {intermediate.name} early")
    if intermediate in _HALF_FAMILY:
        bits = Convert.FP16InDstToFP32(raw) if raw.ndim == 0 else _half_in_dst_to_fp32(raw)
        if intermediate == F.BFP8a and not raw_read:
            return round_fraction(bits, 6)
        return bits
    bits = Convert.BF16InDstToBF16(raw) << 16
    return round_fraction(bits, 6) if intermediate == F.BFP8 and not raw_read else bits


def _half_in_dst_to_fp32(raw: np.ndarray) -> np.ndarray:
    exponent = raw & 0x1F
    rebased = np.where(exponent == 0, 0, exponent + 112)
    return (raw >> 15) << 31 | rebased << 23 | ((raw >> 5) & 0x3FF) << 13


def _to_small_integer(raw: np.ndarray, wide: bool) -> np.ndarray:
    """Return the sign and the low seven or eight bits of a Dst integer; Dst's 16-bit "integer 8" has them at bits 5 to
    14."""
    if wide:
        return Convert.FP32InDstToFP32(raw)
    return (raw >> 15) << 31 | ((raw >> 5) & 0x3FF)


def relu(bits: np.ndarray, mode: int, threshold: int, half: bool) -> np.ndarray:
    """Apply ReLU to FP32 patterns. Modes: 0 none, 1 below zero to zero, 2 up to the threshold to zero,
    3 clamped to it."""
    if mode == 0:
        return bits
    limit = np.int64(Convert.FP16ToFP32(threshold) if half else threshold << 16)
    if mode >= 2 and limit & 0x80000000:
        raise ValueError(f"packer ReLU with a negative threshold {threshold:#x} is undefined")
    positive = ((bits & 0x80000000) == 0) & ((bits & 0x7FFFFFFF) != 0)
    if mode == 1:
        return np.where(positive, bits, 0)
    if mode == 2:
        return np.where(positive & (bits > limit), bits, 0)
    return np.where(positive, np.minimum(bits, limit), 0)


def late(bits: np.ndarray, intermediate: F, out: F, unsigned: bool) -> np.ndarray:
    """Convert the intermediate format to what L1 holds, for formats of 8 bits and more that are no block floats."""
    if out in (F.INT32, F.INT16, F.INT8):
        return _late_integer(bits, intermediate, out, unsigned)
    if intermediate in (F.INT32, F.INT16, F.INT8):
        raise ValueError(f"the packers cannot take {intermediate.name} to {out.name}")
    if out == F.FP32:
        return bits
    if out == F.TF32:
        return bits & ~0x1FFF
    if out == F.BF16:
        if intermediate in (F.FP32, F.TF32):
            return Convert.FP32ToBF16(bits)
        return bits >> 16
    if out in (F.FP16, F.FP8):
        if intermediate in _HALF_FAMILY:
            half = _rebias_to_half(bits)
        else:
            half = _fp32_to_half(bits)
        return half if out == F.FP16 else half >> 8
    raise ValueError(f"the packers cannot write {out.name}")


def _late_integer(bits, intermediate, out, unsigned):
    if intermediate != out:
        raise ValueError(f"the packers cannot take {intermediate.name} to {out.name}")
    if out == F.INT8:
        return bits & 0xFF if unsigned else (bits >> 31) << 7 | (bits & 0x7F)
    return bits & (_MASK if out == F.INT32 else 0xFFFF)


def _fp32_to_half(bits: np.ndarray) -> np.ndarray:
    exponent = ((bits >> 23) & 0xFF) - 112
    fraction = np.where(exponent > 31, 0x3FF, np.where(exponent <= 0, 0, (bits & 0x7FFFFF) >> 13))
    return (bits >> 31) << 15 | np.clip(exponent, 0, 31) << 10 | fraction


def _rebias_to_half(bits: np.ndarray) -> np.ndarray:
    """Convert back from half precision widened with the exponent moved by 112; zero exponents are left at zero."""
    exponent = (bits >> 23) & 0xFF
    return (bits >> 31) << 15 | np.where(exponent == 0, 0, exponent - 112) << 10 | (bits & 0x7FFFFF) >> 13


def block_float_parts(bits: np.ndarray, out: F) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (signs, exponents, seven fraction bits) for share_exponent, from the intermediate FP32 patterns."""
    signs = bits >> 31
    exponents = (bits >> 23) & 0xFF
    fractions = (bits >> 16) & 0x7F
    if out in (F.BFP8a, F.BFP4a, F.BFP2a):
        narrow = exponents - 112
        fractions = np.where(narrow > 31, 0x7F, fractions)
        exponents = np.clip(narrow, 0, 31)
    return signs, exponents, fractions


def accumulate(old: np.ndarray, new: np.ndarray, out: F) -> np.ndarray:
    """Return old + new in the format of L1, bits in and out. Infinities and NaN are added as all else, in silence."""
    if out in (F.FP32, F.BF16):
        shift = 16 if out == F.BF16 else 0
        with np.errstate(all="ignore"):
            first, other = ((bits << shift).astype(np.uint32).view(np.float32) for bits in (old, new))
            total = first + other
    if out == F.FP32:
        return total.view(np.uint32).astype(np.int64)
    if out == F.BF16:
        bits = total.view(np.uint32).astype(np.int64)
        return np.where(np.isnan(total), bits >> 16 | 1, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16) & 0xFFFF
    if out == F.INT32:
        total = _signed(old, 31) + _signed(new, 31)
        magnitude = np.minimum(np.abs(total), 0x7FFFFFFF)
        return np.where(total < 0, 1 << 31, 0) | magnitude
    raise ValueError(f"accumulation in L1 is not modelled for {out.name}")


def _signed(bits: np.ndarray, magnitude_bits: int) -> np.ndarray:
    magnitude = bits & ((1 << magnitude_bits) - 1)
    return np.where(bits >> magnitude_bits & 1, -magnitude, magnitude)
