# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The patched matrix unit leaves what the installed one leaves, bit for bit: registers, flags, banks, counters, errors.

Each case starts both units from one random state and lets them execute a few random instructions; in between the
configuration changes.
"""

import numpy as np
import pytest
from framework.pe.tensix.backends import fpu_jit
from framework.pe.tensix.backends.matrix import MatrixUnit

from runtime_patches.simulated_n150.simulator.behaviour import operand_formats
from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.speed import matrix
from runtime_patches.simulated_n150.simulator.speed.matrix import datapath, unit
from runtime_patches.simulated_n150.tests.simulator.speed.matrix_programs import (
    DIAGNOSTICS,
    FP16A,
    INT8,
    Pair,
    random_instruction,
    same,
)

INSTRUCTIONS = (
    "MVMUL",
    "DOTPV",
    "GAPOOL",
    "ELWMUL",
    "ELWADD",
    "ELWSUB",
    "GMPOOL",
    "ZEROACC",
    "ZEROSRC",
    "MOVB2D",
    "MOVD2B",
    "TRNSPSRCB",
    "MOVA2D",
)
BF16, TF32 = 5, 4
EVERY_FORMAT = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15)


@pytest.fixture(autouse=True, params=operand_formats.RULES)
def compiled_against_numpy(request, monkeypatch):
    """The patched unit compiled from its first instruction on, the installed one with numpy, by each rule of SrcB."""
    for name in ("perform_mvmul", "perform_mvmul_exact", "perform_elementwise_exact"):
        monkeypatch.setattr(MatrixUnit, name, getattr(MatrixUnit, name))  # put back after the patch
    monkeypatch.setenv(operand_formats.VARIABLE, request.param)
    operand_formats.PATCH.apply()
    monkeypatch.setattr(unit, "COMPILED_AFTER", 0)
    monkeypatch.setattr(fpu_jit, "_resolved", True)
    monkeypatch.setattr(fpu_jit, "_fused", None)


def compare(names, cases, seed, formats, wide, unusual=None, length=4):
    """Number of instructions that changed something, and the errors they raised."""
    rng, changes, errors = np.random.default_rng(seed), 0, []
    for case in range(cases):
        pair = Pair(rng, formats, wide, unusual)
        before = pair.state(pair.backends[0])
        assert same(before, pair.state(pair.backends[1]))
        for step in range(length):
            if step and rng.random() < 0.5:
                pair.change_one_field()
            elif step and rng.random() < 0.5:
                pair.configure()
            name = str(rng.choice(names))
            instruction = random_instruction(rng, name)
            (outcome, installed), (other, patched) = pair.run(instruction)
            assert outcome == other, (case, step, name, hex(instruction))
            assert same(installed, patched), (case, step, name, hex(instruction))
            changes += not same(before, installed)
            before = installed
            if outcome[0]:
                errors.append(outcome[0][0].__name__)
    return changes, errors


@pytest.mark.parametrize("wide", [False, True], ids=["16 bits", "32 bits"])
@pytest.mark.parametrize("source", [BF16, TF32], ids=["BF16", "TF32"])
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_each_instruction(name, source, wide):
    changes, _ = compare([name], 25, INSTRUCTIONS.index(name), [source], wide, length=3)
    assert changes > 30


@pytest.mark.parametrize("wide", [False, True], ids=["16 bits", "32 bits"])
def test_long_sums(wide):
    """Many products into one row, so that a rounding of one instruction is what the next one starts from."""
    changes, _ = compare(["MVMUL", "ELWMUL", "ELWADD", "ELWSUB"], 6, 77, [BF16, TF32], wide, length=60)
    assert changes > 300


@pytest.mark.parametrize("wide", [False, True], ids=["16 bits", "32 bits"])
def test_mixed_programs_of_every_format(wide):
    changes, errors = compare(INSTRUCTIONS, 60, 5, EVERY_FORMAT, wide)
    assert changes > 100
    assert errors.count("SrcDvalidError") > 0


@pytest.mark.parametrize("wide", [False, True], ids=["16 bits", "32 bits"])
@pytest.mark.parametrize("name", ["MOVA2D", "MOVB2D", "MOVD2B"])
def test_copies_of_every_format(name, wide):
    changes, _ = compare([name], 30, 10, EVERY_FORMAT, wide)
    assert changes > 60


@pytest.mark.parametrize("unusual", [INT8, FP16A, DIAGNOSTICS])
def test_modes_left_to_the_installed_unit(unusual):
    changes, _ = compare(INSTRUCTIONS, 20, 6, [BF16, TF32], True, unusual)
    assert changes > 20


def test_rows_past_the_end_of_a_bank_are_refused_by_both():
    _, errors = compare(["MVMUL", "DOTPV"], 60, 8, [BF16], True, length=1)
    assert "IndexError" in errors


def test_the_usual_cases_are_computed_by_the_compiled_functions(monkeypatch):
    """Else every other test here would compare the installed unit with itself."""
    for name in ("perform_mvmul_exact", "perform_elementwise_exact"):
        monkeypatch.setattr(MatrixUnit, name, None)
    pair = Pair(np.random.default_rng(1), [BF16], True)
    backend = pair.backends[1]
    before = backend.dst.dstBits.copy()
    for name in ("MVMUL", "ELWMUL", "ELWADD", "ELWSUB"):
        backend.rwc[1].SrcA = 0
        (outcome, _) = pair._run(backend, random_instruction(np.random.default_rng(2), name) & ~(3 << 22))
        assert outcome[0] is None
        assert not np.array_equal(before, backend.dst.dstBits), name
        before = backend.dst.dstBits.copy()
    assert len(datapath.multiply.signatures) == 1 and len(datapath.elementwise.signatures) == 1


def test_numba_is_started_only_for_many_instructions(fresh_interpreter):
    """Its start takes as long as some hundred instructions without it; results are the same before and after."""
    fresh_interpreter(
        """
import sys
import numpy as np
from runtime_patches.simulated_n150.simulator.speed.matrix import unit
from runtime_patches.simulated_n150.tests.simulator.speed.matrix_programs import Pair, same, word
unit.COMPILED_AFTER = 3
pair = Pair(np.random.default_rng(3), [5], True)
for count in range(1, 8):
    for backend in pair.backends:
        backend.rwc[1].SrcA = 16
    (first, installed), (second, patched) = pair.run(word("MVMUL", dst=8 * count, addr_mode=1))
    assert first == second == [None, []] and same(installed, patched), count
    assert ("numba.np.arrayobj" in sys.modules) == (count > 3), count
"""
    )


def test_all_patches_together(fresh_interpreter):
    """The backend of a patched simulator has this unit, and it reads the formats' codes as corrected."""
    fresh_interpreter(
        """
import numpy as np
from runtime_patches.simulated_n150.simulator.patch import apply_all
from runtime_patches.simulated_n150.simulator.registry import all_patches
apply_all(all_patches())
from framework.pe.tensix.backends import fpu_jit
from runtime_patches.simulated_n150.simulator.speed.matrix import unit
from runtime_patches.simulated_n150.tests.simulator.speed.matrix_programs import (
    Counters, Pair, PatchedUnit, make_backend,
)
from runtime_patches.simulated_n150.tests.simulator.speed import test_matrix_unit_equality as equality
backend = make_backend()
assert type(backend.matrix_unit) is PatchedUnit and type(backend.rwc[0]) is Counters
unit.COMPILED_AFTER, fpu_jit._resolved = 0, True
pair = Pair(np.random.default_rng(0), [6], False)
assert all(each.matrix_unit._setting(1).kept == 0x7F8FF for each in pair.backends[1:])
for wide in (False, True):
    changes, _ = equality.compare(equality.INSTRUCTIONS, 40, 9, equality.EVERY_FORMAT, wide)
    assert changes > 60
"""
    )


def test_a_blackhole_is_refused():
    class Backend:
        blackhole, config_unit, rwc = True, None, None

    with pytest.raises(ValueError, match="Blackhole"):
        unit.MatrixUnit(Backend())


def test_targets_are_the_installed_code():
    check([matrix.PATCH])
