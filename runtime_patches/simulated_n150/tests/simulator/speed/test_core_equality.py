# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The core with remembered instructions does what the installed core does, tick by tick."""

import pytest

from runtime_patches.simulated_n150.tests.simulator.speed.core_programs import random_program


@pytest.mark.parametrize("cost", [False, True])
def test_random_programs(fresh_interpreter, cost):
    """In a process of its own, since the patch replaces the class's method. cost: with the simulator's cost model."""
    fresh_interpreter(
        f"""
import os
os.environ["TT_SIM_COST_MODEL"] = "1"
from runtime_patches.simulated_n150.tests.simulator.speed import core_programs as t
from framework.pe.rv.rv32 import RV32I
from runtime_patches.simulated_n150.simulator.speed.core import PATCH
installed = RV32I.clock_tick
PATCH.apply()
assert RV32I.clock_tick is not installed
for seed in range(60):
    parts = t.random_program(seed)
    plain = t.trace(installed, *parts, cost={cost})
    patched = t.trace(RV32I.clock_tick, *parts, cost={cost})
    for tick, (a, b) in enumerate(zip(plain[0], patched[0])):
        assert a == b, (seed, tick, [i for i in range(len(a)) if a[i] != b[i]])
    assert plain[1:] == patched[1:], seed
    assert not {cost} or plain[2]["stall_cycles"] > 0, seed
"""
    )


def test_a_rewritten_word_is_decoded_anew(fresh_interpreter):
    fresh_interpreter(
        """
from runtime_patches.simulated_n150.tests.simulator.speed import core_programs as t
from framework.pe.rv.rv32 import RV32I
from runtime_patches.simulated_n150.simulator.speed.core import PATCH
PATCH.apply()
core, ram = t.make_core()
def addi(value): return (value << 20 | 1 << 7 | 0x13).to_bytes(4, "little")
for value in (5, 9):
    ram.write(t.START, addi(value))
    core.pc_register.write(t.START.to_bytes(4, "little"))
    core.clock_tick(0)
    assert core.register_file[1].read_uint() == value
"""
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_programs_are_reproducible(seed):
    assert random_program(seed) == random_program(seed)
