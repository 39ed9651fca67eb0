# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Modes of the vector unit that the installed simulator lacks, against the documentation's functional models."""

import numpy as np
import pytest

from runtime_patches.simulated_n150.simulator.behaviour.vector.macro import MacroInstructions
from runtime_patches.simulated_n150.tests.simulator.vector_programs import (
    get_register,
    make_unit,
    random_values,
    run,
    set_register,
    word,
)

LANES = np.arange(32)


@pytest.fixture
def unit():
    made, made.test_backend = make_unit(MacroInstructions)
    rng = np.random.default_rng(11)
    for index in range(8):
        set_register(made, index, random_values(rng))
    return made


def rotated(values):
    """CrossLane_SHFLROR1: each group of eight lanes moves right by one, the last coming round."""
    return np.array([values[lane - 1] if lane & 7 else values[lane + 7] for lane in range(32)])


@pytest.mark.parametrize(("immediate", "register"), [(5, 5), (0xFFF, 15), (0xFE2, 2), (0x01F, 15)])
def test_shft2_shifts_by_an_immediate_whose_low_bits_name_the_register(unit, immediate, register):
    source = get_register(unit, register)
    amount = immediate - 0x1000 if immediate & 0x800 else immediate
    run(unit, word("SFPSHFT2", imm12_math=immediate, lreg_dest=3, instr_mod1=6))
    expected = source << (amount & 31) if amount >= 0 else source >> (-amount & 31)
    np.testing.assert_array_equal(get_register(unit, 3), expected.astype(np.uint32))


def test_addition_and_multiplication_read_all_three_registers(unit):
    """The 1.0 of an addition may stand second, as in tt-metal's float32 row sums."""
    values = {index: np.float32(index + 1) * (LANES + 1).astype(np.float32) for index in range(4)}
    for index, each in values.items():
        set_register(unit, index, each.view(np.uint32))
    one, zero = 10, 9
    run(unit, word("SFPADD", lreg_src_a=0, lreg_src_b=one, lreg_src_c=1, lreg_dest=4))
    run(unit, word("SFPADD", lreg_src_a=one, lreg_src_b=0, lreg_src_c=1, lreg_dest=5))
    run(unit, word("SFPADD", lreg_src_a=0, lreg_src_b=2, lreg_src_c=1, lreg_dest=6))
    run(unit, word("SFPMUL", lreg_src_a=2, lreg_src_b=3, lreg_src_c=zero, lreg_dest=7))
    found = [get_register(unit, index).astype(np.uint32).view(np.float32) for index in (4, 5, 6, 7)]
    expected = [values[0] + values[1]] * 2 + [values[0] * values[2] + values[1], values[2] * values[3]]
    np.testing.assert_array_equal(found, expected)


def test_shft2_copies_of_four(unit):
    before = [get_register(unit, index) for index in range(8)]
    run(unit, word("SFPSHFT2", instr_mod1=0))
    for index, expected in enumerate([before[1], before[2], before[3], np.zeros(32)]):
        np.testing.assert_array_equal(get_register(unit, index), expected)


def test_shft2_chained_copy(unit):
    before = [get_register(unit, index) for index in range(4)]
    run(unit, word("SFPSHFT2", instr_mod1=1))
    chained = np.array([before[0][lane + 8] if lane < 24 else 0 for lane in range(32)])
    for index, expected in enumerate([before[1], before[2], before[3], chained]):
        np.testing.assert_array_equal(get_register(unit, index), expected)


def test_shft2_rotation_and_copy_and_the_documented_defect(unit):
    before = [get_register(unit, index) for index in range(8)]
    run(unit, word("SFPSHFT2", lreg_src_c=6, instr_mod1=2))
    for index, expected in enumerate([before[1], before[2], before[3], rotated(before[6])]):
        np.testing.assert_array_equal(get_register(unit, index), expected)
    run(unit, word("SFPSHFT2", lreg_src_c=5, lreg_dest=7, instr_mod1=4))
    shifted = rotated(before[5])
    stale = rotated(before[6])
    np.testing.assert_array_equal(get_register(unit, 7), np.where(LANES & 7, shifted, stale))


def test_leading_zeros(unit):
    values = np.array([0, 1, 2, 0x80000000, 0xFFFFFFFF, 0x00010000, 0x7FFFFFFF, 3] * 4, dtype=np.uint32)
    set_register(unit, 2, values)
    run(unit, word("SFPENCC", imm12_math=3, instr_mod1=10))
    run(unit, word("SFPLZ", lreg_c=2, lreg_dest=3, instr_mod1=2))
    np.testing.assert_array_equal(get_register(unit, 3), [32 - int(v).bit_length() for v in values])
    np.testing.assert_array_equal(np.array(unit.laneFlags), values != 0)
    run(unit, word("SFPENCC", imm12_math=3, instr_mod1=10))
    run(unit, word("SFPLZ", lreg_c=2, lreg_dest=3, instr_mod1=4))
    np.testing.assert_array_equal(get_register(unit, 3), [32 - int(v & 0x7FFFFFFF).bit_length() for v in values])


def test_random_generator_follows_its_recurrence(unit):
    state = np.zeros(32, dtype=np.uint64)
    for _ in range(40):
        run(unit, word("SFPMOV", lreg_c=9, lreg_dest=4, instr_mod1=8))
        np.testing.assert_array_equal(get_register(unit, 4), state)
        taps = np.array([bin(int(s) & 0x80200003).count("1") for s in state])
        state = ((~taps & 1).astype(np.uint64) << np.uint64(31)) | (state >> np.uint64(1))


def test_swap_moves_the_index_along_with_the_value(unit):
    values, others = random_values(np.random.default_rng(1)), random_values(np.random.default_rng(2))
    for register, content in ((0, values), (1, others), (4, LANES), (5, LANES + 100)):
        set_register(unit, register, content)
    run(unit, word("SFPCONFIG", config_dest=15, imm16_math=4, instr_mod1=1))
    run(unit, word("SFPSWAP", lreg_dest=0, lreg_src_c=1, instr_mod1=1))

    def order(pattern):  # sign and magnitude, minus zero below zero
        magnitude = int(pattern) & 0x7FFFFFFF
        return -magnitude - 1 if pattern >> 31 else magnitude

    swapped = np.array([order(c) < order(d) for d, c in zip(values, others, strict=True)])
    np.testing.assert_array_equal(get_register(unit, 0), np.where(swapped, others, values))
    np.testing.assert_array_equal(get_register(unit, 1), np.where(swapped, values, others))
    np.testing.assert_array_equal(get_register(unit, 4), np.where(swapped, LANES + 100, LANES))
    np.testing.assert_array_equal(get_register(unit, 5), np.where(swapped, LANES, LANES + 100))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (6, lambda x: x),
        (7, lambda x: x << 16),
        (8, lambda x: (x >> 15) << 31 | (x & 0x7FFF)),
        (9, lambda x: x),
        (13, lambda x: -((x >> 5) & 0x3FF) if x >> 15 else (x >> 5) & 0x3FF),
    ],
    ids=["UINT16", "HI16", "INT16", "LO16", "INT8_COMP"],
)
def test_sixteen_bit_loads(unit, mode, expected):
    dst = unit.test_backend.dst
    dst.dstBits[:4] = np.random.default_rng(mode).integers(0, 1 << 16, (4, 16))
    run(unit, word("SFPLOAD", lreg_ind=2, instr_mod0=mode, dest_reg_addr=0))
    wanted = [expected(int(dst.dstBits[lane // 8, (lane & 7) * 2])) & 0xFFFFFFFF for lane in range(32)]
    np.testing.assert_array_equal(get_register(unit, 2), wanted)


def test_sign_magnitude_words_come_and_go(unit):
    values = np.array([0, 1, -1, 5, -5, 1 << 30, -(1 << 30), 0x7FFFFFFF] * 4, dtype=np.int64).astype(np.uint32)
    set_register(unit, 2, values)
    run(unit, word("SFPSTORE", lreg_ind=2, instr_mod0=12, dest_reg_addr=0))
    run(unit, word("SFPLOAD", lreg_ind=3, instr_mod0=12, dest_reg_addr=0))
    np.testing.assert_array_equal(get_register(unit, 3), values)
    run(unit, word("SFPLOAD", lreg_ind=4, instr_mod0=4, dest_reg_addr=0))
    signed = values.astype(np.int64) - ((values >> 31).astype(np.int64) << 32)
    np.testing.assert_array_equal(get_register(unit, 4), np.where(signed < 0, 1 << 31, 0) | np.abs(signed))


def test_integer_add_may_only_invert_the_flags(unit):
    run(unit, word("SFPENCC", imm12_math=3, instr_mod1=10))
    run(unit, word("SFPIADD", lreg_c=2, lreg_dest=3, imm12_math=1, instr_mod1=1 | 4 | 8))
    assert not np.array(unit.laneFlags).any()


# -- scheduled instructions ---------------------------------------------------------------------------------


def configure_macro(unit, template, sequence, misc=0, macro=0):
    """Store the template through the backdoor (its VD is 12) and set the macro's sequence."""
    run(unit, template)
    set_register(unit, 0, [sequence] * 32)
    run(unit, word("SFPCONFIG", config_dest=4 + macro))
    set_register(unit, 0, [misc] * 32)
    run(unit, word("SFPCONFIG", config_dest=8))


def load_macro(register, address=0, macro=0, mode=4):
    return word("SFPLOADMACRO", lreg_ind=macro << 2 | register & 3, instr_mod0=mode, dest_reg_addr=address)


def test_macro_loads_adds_and_stores(unit):
    """Template 0 in the simple sub-unit one cycle after the load, the store the cycle after that, same
    address.
    """
    template = word("SFPIADD", lreg_dest=12, lreg_c=0, imm12_math=7, instr_mod1=5)
    simple, store = 4 | 0 << 3, 3 | 1 << 3
    configure_macro(unit, template, simple | store << 24, misc=4)
    bits = unit.test_backend.dst
    content = np.arange(32, dtype=np.uint32) * 3
    set_register(unit, 5, content)
    run(unit, word("SFPSTORE", lreg_ind=5, instr_mod0=4, dest_reg_addr=4))
    assert bits.dstBits.any()
    run(unit, load_macro(1, address=4))
    np.testing.assert_array_equal(get_register(unit, 1), content)
    unit.clock_tick(10**9)
    np.testing.assert_array_equal(get_register(unit, 1), content + 7)
    unit.clock_tick(10**9 + 1)
    run(unit, word("SFPLOAD", lreg_ind=6, instr_mod0=4, dest_reg_addr=4))
    np.testing.assert_array_equal(get_register(unit, 6), content + 7)
    assert unit.is_clock_idle()


def test_macro_delay_may_count_instructions(unit):
    template = word("SFPIADD", lreg_dest=12, lreg_c=0, imm12_math=1, instr_mod1=5)
    configure_macro(unit, template, 4 | 2 << 3, misc=1 << 8)
    run(unit, word("SFPLOADI", lreg_ind=2, instr_mod0=2, imm16=50))
    run(unit, word("SFPSTORE", lreg_ind=2, instr_mod0=4, dest_reg_addr=0))
    run(unit, load_macro(1))
    for cycle in range(5):  # cycles without instructions do not count
        unit.clock_tick(10**9 + cycle)
    assert get_register(unit, 1)[0] == 50
    run(unit, word("SFPNOP"))
    run(unit, word("SFPNOP"))
    assert get_register(unit, 1)[0] == 50
    unit.clock_tick(10**9 + 9)
    assert get_register(unit, 1)[0] == 51


def test_a_scheduled_instruction_displaces_an_ordinary_one_of_its_sub_unit(unit):
    template = word("SFPIADD", lreg_dest=12, lreg_c=0, imm12_math=1, instr_mod1=5)
    configure_macro(unit, template, 4)
    kept = get_register(unit, 6)
    run(unit, load_macro(1), word("SFPNOT", lreg_c=5, lreg_dest=6))
    np.testing.assert_array_equal(get_register(unit, 6), kept)


def test_instructions_of_one_cycle_read_what_was_there_before(unit):
    """The add of one macro runs in the cycle in which the next load overwrites its register."""
    template = word("SFPIADD", lreg_dest=12, lreg_c=0, imm12_math=1, instr_mod1=5)
    configure_macro(unit, template, 4 | 0x40)  # result to register 16
    for value, address in ((10, 0), (20, 4)):
        run(unit, word("SFPLOADI", lreg_ind=2, instr_mod0=2, imm16=value))
        run(unit, word("SFPSTORE", lreg_ind=2, instr_mod0=4, dest_reg_addr=address))
    run(unit, load_macro(1, address=0), word("SFPLOAD", lreg_ind=1, instr_mod0=4, dest_reg_addr=4))
    assert unit.registers[16][0] == 11
    assert get_register(unit, 1)[0] == 20


def test_a_comparison_does_not_mask_the_load_of_its_own_cycle(unit):
    """tt-metal's where does so: the condition is compared while the first choice is loaded, the second is then
    masked.
    """
    run(unit, word("SFPENCC", imm12_math=3, instr_mod1=10))
    template = word("SFPSETCC", lreg_dest=12, lreg_c=0, instr_mod1=6)
    configure_macro(unit, template, 4, misc=0x700)
    condition, first, second = np.arange(32) % 3, np.arange(32) + 100, np.arange(32) + 200
    for address, values in ((0, condition), (4, first), (8, second)):
        set_register(unit, 2, values)
        run(unit, word("SFPSTORE", lreg_ind=2, instr_mod0=4, dest_reg_addr=address))
    run(
        unit,
        load_macro(0, address=0),
        word("SFPLOAD", lreg_ind=0, instr_mod0=4, dest_reg_addr=4),
        word("SFPLOAD", lreg_ind=0, instr_mod0=4, dest_reg_addr=8),
    )
    np.testing.assert_array_equal(get_register(unit, 0), np.where(condition == 0, second, first))
