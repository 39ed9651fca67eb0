# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Every name of the vector layer as a C++ expression, and what the hardware rules say it gives.

Operands: x, y (vFloat), i, j (vInt), u, w (vUInt): the same two patterns under three types. The rule of a
case gets them as uint32 arrays x and y.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from runtime_patches.simulated_n150.tests.compiler.sfpu import hardware_rules as hw
from runtime_patches.simulated_n150.tests.compiler.sfpu.hardware_rules import U32, bits, signed, wrap

ONE, MINUS_ONE, ZERO = bits(1.0), bits(-1.0), bits(0.0)


@dataclass(frozen=True)
class Case:
    """`kind`: bits (all of them), float (a NaN may be any NaN; one unit in the last place, for the partly
    fused multiply-add), fused (the same, with the product x * y itself rounded where the sum cancels it) or
    difference (flags from the sign of x - y, whose lanes with a NaN difference are open).
    """

    expression: str
    rule: Callable[[np.ndarray, np.ndarray], np.ndarray]
    kind: str = "bits"


def _flag(condition) -> np.ndarray:
    return np.asarray(condition).astype(np.uint32)


def _minus(x, y):
    return hw.mad(y, MINUS_ONE, x)


def _negative(x, y):
    return (_minus(x, y) & hw.SIGN) != 0


def _lane_numbers():
    """Lane of each element of a tile: 4 rows of 8 columns, of the even or of the odd ones of a face."""
    row, column = np.indices((32, 32))
    return ((row % 4) * 8 + (column % 16) // 2).astype(np.uint32)


def _plus(x, number):
    return wrap(signed(x) + number)


def _many_values(x, y):
    a, b, c, d, e, f = (_plus(x, number) for number in range(1, 7))
    first = wrap(signed(a ^ b) + signed(c)) ^ d
    return wrap(signed(wrap(signed(first) + signed(e)) ^ f) - signed(y))


def _infinite(x):
    return (x & ~hw.SIGN) == U32(0x7F800000)


FLOAT = [
    Case("x * y", lambda x, y: hw.mad(x, y, ZERO), "float"),
    Case("x + y", lambda x, y: hw.mad(x, ONE, y), "float"),
    Case("x - y", _minus, "float"),
    Case("x * y + y", lambda x, y: hw.mad(x, y, y), "fused"),
    Case("y + x * 0.5f", lambda x, y: hw.mad(x, bits(0.5), y), "float"),
    Case("y - x * 0.75f", lambda x, y: hw.mad(x ^ hw.SIGN, bits(0.75), y), "float"),
    Case("x * 0.3f", lambda x, y: hw.mad(x, bits(0.3), ZERO), "float"),
    Case("x * 1.5f", lambda x, y: hw.mad(x, bits(1.5), ZERO), "float"),
    Case("x + 2.5f", lambda x, y: hw.mad(x, ONE, bits(2.5)), "float"),
    Case("1.0f - x", lambda x, y: hw.mad(x, MINUS_ONE, ONE), "float"),
    Case("-x", lambda x, y: x ^ hw.SIGN),
    Case("([&] { vFloat r = x; r += y; r *= 2.0f; r -= 1.0f; return r; })()",
         lambda x, y: hw.mad(hw.mad(hw.mad(x, ONE, y), bits(2.0), ZERO), ONE, bits(-1.0)), "float"),
    Case("vFloat(__builtin_rvtt_sfpmad(x.get(), y.get(), x.get(), SFPMAD_MOD1_OFFSET_NONE))",
         lambda x, y: hw.mad(x, y, x), "fused"),
    Case("vFloat(vConst0p8373)", lambda x, y: np.full_like(x, 0x3F56594B)),
    Case("vFloat(vConst0) + x", lambda x, y: hw.mad(x, ONE, ZERO), "float"),
    Case("vFloat(vConst1) + vConstNeg1", lambda x, y: np.zeros_like(x)),
    Case("vFloat(sFloat16b(1.5f))", lambda x, y: np.full_like(x, bits(1.5))),
    Case("vFloat(sFloat16b(0x5f37))", lambda x, y: np.full_like(x, 0x5F370000)),
    Case("vFloat(sFloat16a(0.375f))", lambda x, y: np.full_like(x, bits(0.375))),
    Case("vFloat(3.14159274f)", lambda x, y: np.full_like(x, 0x40490FDB)),
    Case("min(x, y)", hw.smaller),
    Case("max(x, y)", hw.larger),
    Case("min(x, 1.0f)", lambda x, y: hw.smaller(x, np.full_like(x, ONE))),
    Case("max(x, -87.0f)", lambda x, y: hw.larger(x, np.full_like(x, bits(-87.0)))),
    Case("clamp(x, -1.0f, 3.0f)",
         lambda x, y: hw.smaller(hw.larger(x, np.full_like(x, MINUS_ONE)), np.full_like(x, bits(3.0)))),
    Case("symmetric_clamp(x, 2.0f)",
         lambda x, y: hw.smaller(hw.larger(x, np.full_like(x, bits(-2.0))), np.full_like(x, bits(2.0)))),
    Case("([&] { auto [low, high] = min_max(x, y); return as<vInt>(high) - as<vInt>(low); })()",
         lambda x, y: wrap(signed(hw.larger(x, y)) - signed(hw.smaller(x, y)))),
]  # fmt: skip

FIELDS = [
    Case("abs(x)", lambda x, y: hw.abs_float(x)),
    Case("setsgn(x, 0)", lambda x, y: x & ~hw.SIGN),
    Case("setsgn(x, 1)", lambda x, y: x | hw.SIGN),
    Case("setsgn(x, j)", lambda x, y: hw.add_sign(x, y)),
    Case("setsgn2(x, j)", lambda x, y: hw.add_sign(x, hw.shift(y, 31))),
    Case("copysgn(x, y)", lambda x, y: hw.add_sign(x, y)),
    Case("copyman(x, y)", lambda x, y: hw.set_mantissa(x, y)),
    Case("copyman(-1.0f, x)", lambda x, y: hw.set_mantissa(np.full_like(x, MINUS_ONE), x)),
    Case("exexp(x)", lambda x, y: wrap(hw.exponent(x) - 127)),
    Case("exexp(x, ExponentMode::Biased)", lambda x, y: wrap(hw.exponent(x))),
    Case("exman(x)", lambda x, y: hw.mantissa(x)),
    Case("exman(x, MantissaMode::ImplicitOne)", lambda x, y: hw.mantissa(x) | U32(0x800000)),
    Case("setexp(x, 127)", lambda x, y: hw.set_exponent(x, 127)),
    Case("setexp(x, j)", lambda x, y: hw.set_exponent(x, signed(y))),
    Case("setman(x, 0)", lambda x, y: hw.set_mantissa(x, 0)),
    Case("setman(x, 0x123456)", lambda x, y: hw.set_mantissa(x, 0x123456)),
    Case("setman(x, j)", lambda x, y: hw.set_mantissa(x, signed(y))),
    Case("addexp(x, -1)", lambda x, y: hw.add_exponent(x, -1)),
    Case("addexp(x, 23)", lambda x, y: hw.add_exponent(x, 23)),
    Case("lz(u)", lambda x, y: hw.leading_zeros(x)),
    Case("convert<vFloat16b>(x, RoundMode::Nearest)", lambda x, y: hw.round_float(x, 7)),
    Case("convert<vFloat16a>(x, RoundMode::Nearest)", lambda x, y: hw.round_float(x, 10)),
    Case("convert<vUInt8>(x, RoundMode::Nearest)", lambda x, y: hw.round_integer(x, 255, False)),
    Case("convert<vSMag8>(x, RoundMode::Nearest)", lambda x, y: hw.round_integer(x, 127, True)),
    Case("convert<vUInt16>(x, RoundMode::Nearest)", lambda x, y: hw.round_integer(x, 65535, False)),
    Case("convert<vSMag16>(x, RoundMode::Nearest)", lambda x, y: hw.round_integer(x, 32767, True)),
    Case("convert<vFloat>(as<vSMag>(u), RoundMode::Nearest)", lambda x, y: hw.cast(x)),
    Case("convert<vFloat>(i, RoundMode::Nearest)", lambda x, y: hw.cast(hw.sign_magnitude(x))),
    Case("convert<vSMag>(i)", lambda x, y: hw.sign_magnitude(x)),
    Case("convert<vInt>(as<vSMag>(u))", lambda x, y: hw.twos_complement(x)),
    Case("subvec_shflror1(u)",
         lambda x, y: x.reshape(32, 2, 16)[..., (np.arange(16) - 2) % 16].reshape(32, 32)),
    Case("vInt(vConstTileId)", lambda x, y: _lane_numbers() * U32(2)),
]  # fmt: skip

INTEGER = [
    Case("i + j", lambda x, y: wrap(signed(x) + signed(y))),
    Case("i - j", lambda x, y: wrap(signed(x) - signed(y))),
    Case("i + 5", lambda x, y: wrap(signed(x) + 5)),
    Case("i - 2047", lambda x, y: wrap(signed(x) - 2047)),
    Case("i + 0x123456", lambda x, y: wrap(signed(x) + 0x123456)),
    Case("30 - i", lambda x, y: wrap(30 - signed(x))),
    Case("(254 << 23) - i", lambda x, y: wrap((254 << 23) - signed(x))),
    Case("-i", lambda x, y: wrap(-signed(x))),
    Case("abs(i)", lambda x, y: hw.abs_int(x)),
    Case("abs(as<vSMag>(u))", lambda x, y: x & ~hw.SIGN),
    Case("u & w", lambda x, y: x & y),
    Case("u | w", lambda x, y: x | y),
    Case("u ^ w", lambda x, y: x ^ y),
    Case("~u", lambda x, y: ~x),
    Case("u & 0x7ff", lambda x, y: x & U32(0x7FF)),
    Case("u << 3", lambda x, y: hw.shift(x, 3)),
    Case("u >> 5", lambda x, y: hw.shift(x, -5)),
    Case("u << (j & 31)", lambda x, y: hw.shift(x, signed(y) & 31)),
    Case("u >> (j & 31)", lambda x, y: hw.shift(x, -(signed(y) & 31))),
    Case("shft(u, (j & 63) - 32)", lambda x, y: hw.shift(x, (signed(y) & 63) - 32)),
    Case("shft(u, -31)", lambda x, y: hw.shift(x, -31)),
    Case("min(i, j)", lambda x, y: np.where(signed(wrap(signed(x) - signed(y))) < 0, x, y).astype(np.uint32)),
    Case("max(i, j)", lambda x, y: np.where(signed(wrap(signed(x) - signed(y))) < 0, y, x).astype(np.uint32)),
    Case("min(as<vSMag>(u), as<vSMag>(w))", hw.smaller),
    Case("max(as<vSMag>(u), as<vSMag>(w))", hw.larger),
    Case("([&] { vInt r = i; r += 3; r ^= j; r <<= 2; r &= 0xffff; return r; })()",
         lambda x, y: hw.shift(wrap(signed(x) + 3) ^ y, 2) & U32(0xFFFF)),
    Case("vSMag(-5)", lambda x, y: np.full_like(x, 0x80000005)),
    Case("vInt(-5)", lambda x, y: np.full_like(x, 0xFFFFFFFB)),
    Case("vInt(0x12345678)", lambda x, y: np.full_like(x, 0x12345678)),
    Case("vInt(-70000)", lambda x, y: np.full_like(x, 0xFFFEEE90)),
]  # fmt: skip

CONDITIONS = [
    Case("flag(x < y)", lambda x, y: _flag(_negative(x, y)), "difference"),
    Case("flag(x >= y)", lambda x, y: _flag(~_negative(x, y)), "difference"),
    Case("flag(x > y)", lambda x, y: _flag(_negative(y, x)), "difference"),
    Case("flag(x <= y)", lambda x, y: _flag(~_negative(y, x)), "difference"),
    Case("flag(x == y)", lambda x, y: _flag(_minus(x, y) == 0), "difference"),
    Case("flag(x != y)", lambda x, y: _flag(_minus(x, y) != 0), "difference"),
    Case("flag(x < 0.0f)", lambda x, y: _flag(signed(x) < 0)),
    Case("flag(x >= 0.0f)", lambda x, y: _flag(signed(x) >= 0)),
    Case("flag(x == 0.0f)", lambda x, y: _flag(x == 0)),
    Case("flag(x != 0.0f)", lambda x, y: _flag(x != 0)),
    Case("flag(x > 0.0f)", lambda x, y: _flag(_negative(np.zeros_like(x), x)), "difference"),
    Case("flag(x <= 0.0f)", lambda x, y: _flag(~_negative(np.zeros_like(x), x)), "difference"),
    Case("flag(x < 1.5f)", lambda x, y: _flag(_negative(x, np.full_like(x, bits(1.5)))), "difference"),
    Case("flag(i < j)", lambda x, y: _flag(signed(wrap(signed(x) - signed(y))) < 0)),
    Case("flag(i >= j)", lambda x, y: _flag(signed(wrap(signed(x) - signed(y))) >= 0)),
    Case("flag(i > 5)", lambda x, y: _flag(signed(wrap(5 - signed(x))) < 0)),
    Case("flag(i == j)", lambda x, y: _flag(x == y)),
    Case("flag(i != 0x7f800000)", lambda x, y: _flag(x != U32(0x7F800000))),
    Case("flag(u < w)", lambda x, y: _flag(x < y)),
    Case("flag(u >= w)", lambda x, y: _flag(x >= y)),
    Case("flag(u > w)", lambda x, y: _flag(x > y)),
    Case("flag(i)", lambda x, y: _flag(x != 0)),
    Case("flag(is_nan(x))", lambda x, y: _flag(hw.is_nan(x))),
    Case("flag(is_inf(x))", lambda x, y: _flag(_infinite(x))),
    Case("flag(is_finite(x))", lambda x, y: _flag(hw.exponent(x) != 255)),
    Case("flag(is_neg(x) && is_inf(x))", lambda x, y: _flag(x == U32(0xFF800000))),
    Case("flag(is_pos(x) && is_inf(x))", lambda x, y: _flag(x == U32(0x7F800000))),
    Case("flag(!is_finite(x))", lambda x, y: _flag(hw.exponent(x) == 255)),
]  # fmt: skip

COMPOUND = [
    Case("flag(i == 0 || j == 0)", lambda x, y: _flag((x == 0) | (y == 0))),
    Case("flag(!(i == 0 || j == 0))", lambda x, y: _flag(~((x == 0) | (y == 0)))),
    Case("flag(!(i < 0 && j < 0))", lambda x, y: _flag(~((signed(x) < 0) & (signed(y) < 0)))),
    Case("flag(i < 0 && (j < 0 || j == 0))", lambda x, y: _flag((signed(x) < 0) & (signed(y) <= 0))),
    Case("flag((i < 0 || j == 0) && (j < 0 || i == 0))",
         lambda x, y: _flag(((signed(x) < 0) | (y == 0)) & ((signed(y) < 0) | (x == 0)))),
    Case("flag((i < 0 && j < 0) || (i == 0 && j == 0))",
         lambda x, y: _flag(((signed(x) < 0) & (signed(y) < 0)) | ((x == 0) & (y == 0)))),
    Case("flag(((i < 0 || j == 0) && (j < 0 || i == 0)) || i == j)",
         lambda x, y: _flag((((signed(x) < 0) | (y == 0)) & ((signed(y) < 0) | (x == 0))) | (x == y))),
    Case("([&] { vBool both = i < 0 && j < 0; return flag(both || i == j); })()",
         lambda x, y: _flag(((signed(x) < 0) & (signed(y) < 0)) | (x == y))),
    Case("([&] { vInt r = 1; v_if (i < 0) { r = 2; v_if (j < 0) { r = 3; } v_endif; } v_else { r = 4; }"
         " v_endif; return r; })()",
         lambda x, y: np.where(signed(x) < 0, np.where(signed(y) < 0, 3, 2), 4).astype(np.uint32)),
    Case("([&] { vInt r = 0; v_if (i < 0) { r = 1; } v_elseif (j < 0) { r = 2; } v_elseif (j == 0) { r = 3; }"
         " v_else { r = 4; } v_endif; return r; })()",
         lambda x, y: np.select([signed(x) < 0, signed(y) < 0, y == 0], [1, 2, 3], 4).astype(np.uint32)),
    Case("([&] { vInt r = 0; v_if (i < 0) { r = 1; v_and(j < 0); r = 2; v_and(i == j || j == -1); r = 3; }"
         " v_endif; return r; })()",
         lambda x, y: np.select(
             [(signed(x) < 0) & (signed(y) < 0) & ((x == y) | (y == U32(0xFFFFFFFF))),
              (signed(x) < 0) & (signed(y) < 0), signed(x) < 0], [3, 2, 1], 0).astype(np.uint32)),
    Case("([&] { vInt r = i; v_if (j >= 0) { vInt t = r + 1; t = t ^ j; r = t; } v_endif; return r; })()",
         lambda x, y: np.where(signed(y) >= 0, wrap(signed(x) + 1) ^ y, x).astype(np.uint32)),
    Case("([&] { vInt r = i; v_if (j < 0 || i == 0) { r = r + j; v_if (r < 0) { r = -r; } v_endif; } v_endif;"
         " return r; })()",
         lambda x, y: np.where((signed(y) < 0) | (x == 0),
                               wrap(np.abs(signed(wrap(signed(x) + signed(y))))), x).astype(np.uint32)),
]  # fmt: skip


def _lut8(x, y):
    pairs = [(0x30 | 13, 0xFF), (0x20 | 1, 0x80 | 0x50 | 8), (0xFF, 0x10)]
    size = np.abs(hw.floats(x))
    which = np.where(size < 1, 0, np.where(size < 2, 1, 2))
    slope = bits([hw.lut8(a) for a, _ in pairs])[which]
    offset = bits([hw.lut8(b) for _, b in pairs])[which]
    return hw.add_sign(hw.mad(slope, x & ~hw.SIGN, offset), x)


def _lut16(x, y):
    slopes = [0.5, 0.25, 0.75, 0.125, 1.5, 0.0]
    offsets = [0.0, 1.0, -0.5, 2.0, 0.375, 3.0]
    size = np.abs(hw.floats(x))
    which = np.select([size < 0.5, size < 1, size < 1.5, size < 2, size < 3], [0, 1, 2, 3, 4], 5)
    return hw.mad(bits(slopes)[which], x & ~hw.SIGN, bits(offsets)[which])


TABLES = [
    Case("lut(x, vLut8si(0.2265625f, 0.0f), vLut8si(0.265625f, -0.046875f), vLut8si(0.0f, 0.5f))",
         _lut8, "float"),
    Case("lut(x, vLut16ss(0.5f, 0.25f), vLut16ii(0.0f, 1.0f), vLut16ss(0.75f, 0.125f), vLut16ii(-0.5f, 2.0f),"
         " vLut16ss(1.5f, 0.0f), vLut16ii(0.375f, 3.0f), LutSign::Update)", _lut16, "float"),
    Case("([&] { vConstFloatPrgm0 = 0.75f; vConstFloatPrgm1 = -2.5f; vConstIntPrgm2 = 77; "
         "return x * vConstFloatPrgm0 + vConstFloatPrgm1; })()",
         lambda x, y: hw.mad(x, bits(0.75), bits(-2.5)), "float"),
    Case("vConstIntPrgm2 - i", lambda x, y: wrap(77 - signed(x))),
    Case("([&] { l_reg[LRegs::LReg5] = x; vFloat a = y + y; l_reg[LRegs::LReg5].in_use(); "
         "vFloat r = l_reg[LRegs::LReg5]; return r - a; })()",
         lambda x, y: _minus(x, hw.mad(y, ONE, y)), "float"),
    Case("([&] { vInt a = i + 1, b = i + 2, c = i + 3, d = i + 4, e = i + 5, f = i + 6; "
         "return (((((a ^ b) + c) ^ d) + e) ^ f) - j; })()",
         _many_values),
]  # fmt: skip

GROUPS = {
    "float": FLOAT,
    "fields": FIELDS,
    "integer": INTEGER,
    "conditions": CONDITIONS,
    "compound": COMPOUND,
    "tables": TABLES,
}
