# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Integer division and remainder of the baby RISC-V cores (extension M).

Rule: a division by zero gives a quotient with all bits set and the dividend as remainder; the most negative number
divided by -1 gives itself with remainder 0; a signed quotient is rounded towards zero and the remainder has the sign of
the dividend. No division traps. Source: The RISC-V Instruction Set Manual, volume I, chapter "M" Standard Extension,
"Division Operations" and its table of semantics for division by zero and overflow.

The simulator raised ZeroDivisionError, gave `rem` the sign of the divisor, and failed on the overflow.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch

_SIGN = 0x80000000
_MASK = 0xFFFFFFFF
_DIV, _DIVU, _REM, _REMU = 4, 5, 6, 7


def divide(funct3: int, dividend: int, divisor: int) -> int:
    """Return the result of div, divu, rem or remu (funct3 4..7) on two unsigned 32-bit patterns, as
    one such pattern."""
    if divisor == 0:
        return _MASK if funct3 in (_DIV, _DIVU) else dividend
    if funct3 == _DIVU:
        return dividend // divisor
    if funct3 == _REMU:
        return dividend % divisor
    negative_dividend = bool(dividend & _SIGN)
    magnitude = (-dividend & _MASK) if negative_dividend else dividend
    divisor_magnitude = (-divisor & _MASK) if divisor & _SIGN else divisor
    quotient, remainder = divmod(magnitude, divisor_magnitude)
    if funct3 == _DIV:
        negate = negative_dividend != bool(divisor & _SIGN)
        return (-quotient if negate else quotient) & _MASK
    return (-remainder if negative_dividend else remainder) & _MASK


def _apply() -> None:
    from framework.pe.rv.isa.m_isa import RV_M_ISA

    run_multiply = RV_M_ISA.run.__func__

    def run(cls, register_file, memory_space, snoop, instr=None):
        if instr is None:
            instr = cls.fetch(register_file, memory_space)
        if instr & 0xFE00007F != 0x02000033 or not instr & 0x4000:
            return run_multiply(cls, register_file, memory_space, snoop, instr)
        result = divide(
            (instr >> 12) & 7,
            register_file[(instr >> 15) & 31].read_uint(),
            register_file[(instr >> 20) & 31].read_uint(),
        )
        register_file[(instr >> 7) & 31].write(result.to_bytes(4, "little"))
        return True

    RV_M_ISA.run = classmethod(run)


PATCH = Patch(
    name="integer division",
    rule="division never traps; by zero it gives all ones and the dividend, and remainders follow the dividend",
    source="RISC-V Instruction Set Manual, volume I, chapter M, Division Operations",
    targets={"framework.pe.rv.isa.m_isa.RV_M_ISA": "35358afbaf94ec01"},
    apply=_apply,
)
