# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Division and remainder of the baby RISC-V cores against the RISC-V manual's table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_patches.simulated_n150.simulator.behaviour.integer_division import PATCH, divide

DIV, DIVU, REM, REMU = 4, 5, 6, 7
MINIMUM = 0x80000000
ALL_ONES = 0xFFFFFFFF
word = st.one_of(st.integers(0, ALL_ONES), st.sampled_from([0, 1, 2, 7, MINIMUM, MINIMUM + 1, ALL_ONES, ALL_ONES - 6]))


@pytest.mark.parametrize(
    ("funct3", "dividend", "divisor", "expected"),
    [
        (DIVU, 5, 0, ALL_ONES),
        (REMU, 5, 0, 5),
        (DIV, 5, 0, ALL_ONES),
        (REM, -5 & ALL_ONES, 0, -5 & ALL_ONES),
        (DIV, MINIMUM, ALL_ONES, MINIMUM),
        (REM, MINIMUM, ALL_ONES, 0),
        (DIV, -7 & ALL_ONES, 2, -3 & ALL_ONES),
        (REM, -7 & ALL_ONES, 2, -1 & ALL_ONES),
        (REM, 7, -2 & ALL_ONES, 1),
        (DIV, 7, -2 & ALL_ONES, -3 & ALL_ONES),
    ],
)
def test_table_of_the_manual(funct3, dividend, divisor, expected):
    assert divide(funct3, dividend, divisor) == expected


@given(word, word)
def test_quotient_and_remainder_belong_together(dividend, divisor):
    """dividend = quotient * divisor + remainder modulo 2**32, by zero and on overflow too, but for the
    quotient by 0.
    """
    for quotient_op, remainder_op in ((DIV, REM), (DIVU, REMU)):
        quotient, remainder = divide(quotient_op, dividend, divisor), divide(remainder_op, dividend, divisor)
        assert (quotient * divisor + remainder) & ALL_ONES == dividend


@given(word, word.filter(bool))
def test_signed_results_truncate(dividend, divisor):
    a, b = np.array([dividend, divisor], dtype=np.uint32).view(np.int32).astype(np.int64)
    assert divide(DIV, dividend, divisor) == int(np.trunc(a / b)) & ALL_ONES
    assert divide(REM, dividend, divisor) == int(np.fmod(a, b)) & ALL_ONES


def test_the_core_executes_it(fresh_interpreter):
    """Instruction words through the patched class: div and rem of -7 by 2 and by 0, and mul left as it was."""
    fresh_interpreter(
        """
from framework.pe.rv.isa.m_isa import RV_M_ISA
from framework.pe.register.register import Register
from runtime_patches.simulated_n150.simulator.behaviour.integer_division import PATCH
PATCH.apply()
def run(funct3, a, b):
    registers = [Register(4) for _ in range(34)]
    registers[1].write((a & 0xFFFFFFFF).to_bytes(4, "little"))
    registers[2].write((b & 0xFFFFFFFF).to_bytes(4, "little"))
    instruction = 0x02000033 | 2 << 20 | 1 << 15 | funct3 << 12 | 3 << 7
    assert RV_M_ISA.run(registers, None, False, instruction) is True
    return registers[3].read_int()
assert [run(4, -7, 2), run(6, -7, 2), run(4, -7, 0), run(6, -7, 0)] == [-3, -1, -1, -7]
assert run(4, -2**31, -1) == -2**31 and run(6, -2**31, -1) == 0
assert run(0, -7, 3) == -21 and run(1, -2**31, 4) == -2
assert RV_M_ISA.run(None, None, False, 0x00000033) is False
"""
    )


def test_targets_are_the_installed_code():
    from runtime_patches.simulated_n150.simulator.patch import check

    check([PATCH])
