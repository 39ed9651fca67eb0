# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""SrcB's operands have the bits of their own format, or of SrcA's, in both units: the lowest three bits tell."""

import numpy as np
import pytest

from runtime_patches.simulated_n150.simulator.behaviour import operand_formats
from runtime_patches.simulated_n150.simulator.patch import check

RESULTS = """
import numpy as np
from runtime_patches.simulated_n150.simulator.behaviour import operand_formats
operand_formats.PATCH.apply()
from runtime_patches.simulated_n150.simulator.speed.matrix import unit
from runtime_patches.simulated_n150.tests.simulator.speed.matrix_programs import Pair, word
from runtime_patches.simulated_n150.tests.simulator.tensix_programs import configure
unit.COMPILED_AFTER = 0
ONE = 127  # a datum: its exponent


def result(backend, op, b_format, low_bits):
    configure(backend, ALU_FORMAT_SPEC_REG0_SrcA=5, ALU_FORMAT_SPEC_REG1_SrcB=b_format, ALU_ACC_CTRL_Fp32_enabled=1,
              DEST_REGW_BASE_Base=0, ALU_FORMAT_SPEC_REG_SrcA_override=0, ALU_FORMAT_SPEC_REG_SrcB_override=0)
    backend.config_unit.threadConfig[1][:] = [0] * len(backend.config_unit.threadConfig[1])
    backend.dst.dstBits[:], backend.dst.dstRowValid[:] = 0, False
    for registers, datum in ((backend.srcA, ONE), (backend.srcB, low_bits << 8 | ONE)):
        for register in registers:
            register.data[:], register.allowedClient = datum, type(register.allowedClient).MatrixUnit
    for phase in (0, 2) if op != "ELWADD" else (0,):
        counters = backend.rwc[1]
        counters.SrcA = counters.SrcB = counters.Dst = 0
        counters.FidelityPhase = phase
        backend.matrix_unit.next_instruction.append((word(op, dst=0, addr_mode=0), 1))
        backend.matrix_unit.clock_tick(1)
    return backend.dst.dstBits[:16].copy()


for op, b_format, count in {cases}:
    for backend in Pair(np.random.default_rng(0), [5], True).backends:
        plain, finer = (result(backend, op, b_format, bits) for bits in (0, 7))
        assert plain.any() and np.array_equal(plain, finer) is not count, (op, b_format, type(backend.matrix_unit))
"""


@pytest.mark.parametrize("rule", operand_formats.RULES)
def test_the_low_bits_of_srcb(fresh_interpreter, monkeypatch, rule):
    """SrcA holds BF16: those bits count where SrcB holds TF32 and has its own format, and nowhere else."""
    monkeypatch.setenv(operand_formats.VARIABLE, rule)
    own = rule == "own"
    cases = [(op, fmt, own and fmt == 4) for op in ("MVMUL", "ELWMUL", "ELWADD") for fmt in (4, 5)]
    fresh_interpreter(RESULTS.format(cases=cases))


def test_an_unknown_rule_is_refused(monkeypatch):
    monkeypatch.setenv(operand_formats.VARIABLE, "both")
    with pytest.raises(ValueError, match="own or srca, got 'both'"):
        operand_formats.own_formats()


def test_a_register_is_put_back_after_an_instruction():
    class Register:
        data = np.array([[0x7FFFF, 0x12345]], dtype=np.uint32)

    with operand_formats._cut(Register):
        assert Register.data.tolist() == [[0x7F8FF, 0x12045]]
    assert Register.data.tolist() == [[0x7FFFF, 0x12345]]


def test_targets_are_the_installed_code():
    check([operand_formats.PATCH])
