# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""SrcB's operands have the bits of their own format, or of SrcA's: by both units, told apart by the lowest three bits."""

import numpy as np
import pytest

from runtime_patches.simulated_n150.simulator.behaviour import operand_formats
from runtime_patches.simulated_n150.simulator.patch import check

PRODUCTS = """
import sys
import numpy as np
from runtime_patches.simulated_n150.simulator.behaviour import operand_formats
operand_formats.PATCH.apply()
from tests.runtime_patches.simulated_n150.simulator.speed.matrix_programs import Pair, word
from runtime_patches.simulated_n150.simulator.speed.matrix import unit
from tests.runtime_patches.simulated_n150.simulator.tensix_programs import configure
unit.COMPILED_AFTER = 0
ONE = 127
for op, b_format, low_bits_count in {cases}:
    pair = Pair(np.random.default_rng(0), [5], True)
    for backend in pair.backends:
        fields = dict(ALU_FORMAT_SPEC_REG_SrcA_override=0, ALU_FORMAT_SPEC_REG_SrcB_override=0)
        configure(backend, ALU_FORMAT_SPEC_REG0_SrcA={a}, ALU_FORMAT_SPEC_REG1_SrcB=b_format,
                  ALU_ACC_CTRL_Fp32_enabled=1, DEST_REGW_BASE_Base=0, **fields)
        backend.config_unit.threadConfig[1][:] = [0] * len(backend.config_unit.threadConfig[1])
        backend.rwc[1].SrcA = backend.rwc[1].SrcB = backend.rwc[1].Dst = backend.rwc[1].FidelityPhase = 0
        for register in backend.srcA:
            register.data[:] = ONE
        for register in backend.srcB:
            register.data[:] = 0
            register.data[:, 0] = 7 << 8 | ONE  # 1 and the three lowest bits of the fraction
        backend.dst.dstRowValid[:] = False
    # SrcB's low bits are read in the fidelity phases 2 and 3.
    for backend in pair.backends:
        backend.rwc[1].FidelityPhase = 2 if op != "ELWADD" else 0
        pair._run(backend, word(op, dst=0, addr_mode=0))
    words = [backend.dst.dstBits[:16, 0].copy() for backend in pair.backends]
    assert np.array_equal(*words), op
    assert bool(words[0][8] or (words[0][0] & 0x7F00) or (op != "ELWADD" and words[0][0])) is low_bits_count, (op, words)
"""


@pytest.mark.parametrize("rule", operand_formats.RULES)
def test_the_low_bits_of_srcb(fresh_interpreter, monkeypatch, rule):
    """SrcA holds BF16: those bits count where SrcB holds TF32 and has its own format, and nowhere else."""
    monkeypatch.setenv(operand_formats.VARIABLE, rule)
    own = rule == "own"
    cases = [(op, fmt, own and fmt == 4) for op in ("MVMUL", "ELWMUL", "ELWADD") for fmt in (4, 5)]
    fresh_interpreter(PRODUCTS.format(cases=cases, a=5))


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
