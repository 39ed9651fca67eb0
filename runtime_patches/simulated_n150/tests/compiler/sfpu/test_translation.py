# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From GCC's assembly to vector instructions, without a compiler or a chip."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import pytest

from runtime_patches.simulated_n150.compiler import driver
from runtime_patches.simulated_n150.compiler.sfpu import vector
from runtime_patches.simulated_n150.tests.compiler.sfpu.vector_machine import LANES, Lanes, run_lines, run_words

NAMES = [f"fa{n}" for n in range(8)] + [f"ft{n}" for n in range(12)]


def function(lines, name="kernel"):
    body = "\n".join(f"\t{line}" for line in lines)
    return f"\t.type\t{name}, @function\n{name}:\n{body}\n\tret\n\t.size\t{name}, .-{name}\n"


def words_of(text):
    return [int(w, 0) for w in re.findall(r"\.ttinsn\s+(\S+)", text)]


def translate(*lines):
    return words_of(vector.translate(function(lines)))


def test_a_multiplication_waits_for_the_one_it_needs():
    """An SFPNOP between a two-cycle instruction and its reader, none where something else is between."""
    dependent = translate("sfpu load fa0 0 0", "sfpu mul fa1 fa0 fa0", "sfpu mul fa2 fa1 fa1", "sfpu store fa2 0 0")
    assert [w >> 24 for w in dependent] == [0x70, 0x86, 0x8F, 0x86, 0x8F, 0x72]
    apart = translate(
        "sfpu load fa0 0 0",
        "sfpu load fa3 0 2",
        "sfpu mul fa1 fa0 fa0",
        "sfpu mul fa2 fa3 fa3",
        "sfpu store fa1 0 0",
        "sfpu store fa2 0 2",
    )
    assert [w >> 24 for w in apart] == [0x70, 0x70, 0x86, 0x86, 0x72, 0x72]


def test_constants_come_from_the_constant_registers_and_immediates():
    found = translate(
        "sfpu load fa0 0 0",
        "sfpu loadi fa1 0x3f800000",
        "sfpu loadi fa2 0",
        "sfpu mad fa3 fa0 fa1 fa2",
        "sfpu store fa3 0 0",
    )
    assert [w >> 24 for w in found] == [0x70, 0x84, 0x8F, 0x72]
    assert found[1] >> 12 & 15 == 10 and found[1] >> 8 & 15 == 9
    halved = translate("sfpu load fa0 0 0", "sfpu loadi fa1 0x3f000000", "sfpu mul fa2 fa0 fa1", "sfpu store fa2 0 0")
    assert [w >> 24 for w in halved] == [0x70, 0x74, 0x8F, 0x72] and halved[1] >> 8 & 0xFFFF == 0x3F00


def test_a_32_bit_constant_takes_two_words_and_a_short_one_takes_one():
    for value, count in ((0x12345678, 2), (0x1234, 1), (0x43210000, 1), (-5, 1)):
        found = translate(f"sfpu loadi fa0 {value}", "sfpu store fa0 4 0")
        assert len(found) == count + 1, hex(value)


def test_an_assignment_under_a_condition_keeps_the_other_lanes():
    """x = t inside v_if writes x itself; the same assignment outside is no instruction at all."""
    inside = translate(
        "sfpu load fa0 0 0",
        "sfpu load fa1 0 2",
        "sfpu pushc",
        "sfpu setcc fa1 0",
        "sfpu not fa2 fa1 0 0",
        "sfpu assign fa0 fa2",
        "sfpu popc",
        "sfpu store fa0 0 0",
    )
    assert [w >> 24 for w in inside] == [0x70, 0x70, 0x87, 0x7B, 0x80, 0x88, 0x72]
    assert inside[4] >> 4 & 15 == inside[0] >> 20 & 15
    outside = translate("sfpu load fa0 0 0", "sfpu not fa2 fa0 0 0", "sfpu assign fa0 fa2", "sfpu store fa0 0 0")
    assert [w >> 24 for w in outside] == [0x70, 0x80, 0x72]


def test_an_immediate_known_only_at_run_time_goes_through_the_instruction_buffer():
    text = vector.translate(function(["sfpu load fa0 0 0", "sfpu divp2 fa1 fa0 rt 1 a5 a4 a3", "sfpu store fa1 0 0"]))
    assert re.search(r"li\ta5,0x76[0-9a-f]+\n\tadd\ta5,a5,a4\n\tsw\ta5,0\(a3\)", text)


def test_what_bears_no_mark_of_vector_code_needs_no_translation():
    """The driver does not start the translator for it."""
    text = function(
        ["li a5,1", "\n.ttinsn 0x74000010\n", ".ttinsn 0x72004000", "beq a5,a4,.L1", "sw a5,0(a4)", "\n.L1:"]
    )
    assert not any(mark in text for mark in driver.VECTOR_MARKS) and vector.translate(text) == text
    for line in ("sfpu loadi fa0 1", "fmv.s fa0,fa1", "fadd.s fa0,fa1,fa2", "flw fa0,0(a0)"):
        assert any(mark in function([line]) for mark in driver.VECTOR_MARKS)


def test_values_that_need_more_than_eight_registers_are_refused_with_the_function():
    loads = [f"sfpu load {NAMES[n]} 0 {2 * n}" for n in range(9)]
    stores = [f"sfpu store {NAMES[n]} 0 {2 * n}" for n in range(9)]
    assert len(translate(*loads[:8], *stores[:8])) == 16
    with pytest.raises(vector.VectorError, match="in function kernel: 9 vector values are needed at once"):
        translate(*loads, *stores)


def test_more_than_eight_constants_are_loaded_where_they_are_used():
    loads = [f"sfpu loadi {NAMES[n]} {0x1111 * (n + 2)}" for n in range(12)]
    stores = [f"sfpu store {NAMES[n]} 4 {2 * n}" for n in range(12)]
    found = translate(*loads, *stores)
    lanes = Lanes(defaultdict(lambda: [0] * LANES))
    run_words(found, lanes)
    assert lanes.stores == [(2 * n, (0x1111 * (n + 2),) * LANES) for n in range(12)]


SQUARES = [f".ttinsn {0x86 << 24 | n << 16 | n << 12 | 9 << 8 | n << 4}" for n in range(4)]  # LREGn squared


def replay(start, count, executes=0, records=0):
    return f".ttinsn {0x04 << 24 | start << 14 | count << 4 | executes << 1 | records}"


@pytest.mark.parametrize("executes", [0, 1])
def test_what_is_only_recorded_occupies_no_register(executes):
    """Six values live across a recording of four instructions on LREG0-3: ten at once if the recording also runs."""
    loads = [f"sfpu load {NAMES[n]} 0 {2 * n}" for n in range(6)]
    stores = [f"sfpu store {NAMES[n]} 0 {2 * n}" for n in range(6)]
    lines = [*loads, replay(0, 4, executes, records=1), *SQUARES, *stores]
    if executes:
        with pytest.raises(vector.VectorError, match="10 vector values are needed at once"):
            translate(*lines)
    else:
        assert len(translate(*lines)) == 6 + 5 + 6
        found = translate(*loads, replay(0, 3, records=1), *SQUARES, *stores)
        assert 3 not in {word >> 20 & 15 for word in found if word >> 24 == 0x70}, "the fourth one runs"


def test_a_replay_touches_the_registers_of_what_it_replays():
    recording = [replay(4, 4, records=1), *SQUARES]
    loads = [f"sfpu load {NAMES[n]} 0 {2 * n}" for n in range(6)]
    stores = [f"sfpu store {NAMES[n]} 0 {2 * n}" for n in range(6)]
    with pytest.raises(vector.VectorError, match="10 vector values are needed at once"):
        translate(*recording, *loads, replay(4, 4), *stores)
    found = translate(*recording, *loads, replay(6, 2), *stores)
    held = {word >> 20 & 15 for word in found if word >> 24 == 0x70}
    assert held == {0, 1, 4, 5, 6, 7}, "LREG2 and LREG3 are the replay's"


@pytest.mark.parametrize("between", ["", "mv a6,a5", "lw a4,0(a5)", ".L1:", "call other", "li a5,0"])
def test_words_stored_to_the_instruction_buffer_count(between):
    """SFPLOAD to LREG3 as a constant that is stored: LREG3 holds nothing before it, as far as the constant is known."""
    load_lreg3 = ["li a3,1882210304", "addi a5,a3,4", between, "sw a5,0(s0)"]
    assert 1882210304 + 4 == 0x70 << 24 | 3 << 20 | 4 << 12 | 4
    loads = [f"sfpu load {NAMES[n]} 0 {2 * n}" for n in range(8)]
    stores = [f"sfpu store {NAMES[n]} 0 {2 * n}" for n in range(8)]
    lines = [*loads, *stores, *load_lreg3, SQUARES[3]]
    if between in ("", "mv a6,a5", "lw a4,0(a5)"):
        assert len(translate(*lines)) == 8 + 8 + 1
    else:
        with pytest.raises(vector.VectorError, match="9 vector values are needed at once"):
            translate(*lines)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("fsw fa0,12(sp)", "live across a call"),
        ("fmv.w.x fa0,a0", "not inlined"),
        ("fmul.s fa0,fa1,fa2", "float arithmetic on a scalar"),
        ("fle.s a0,fa1,fa2", "float arithmetic on a scalar"),
    ],
)
def test_float_code_is_refused_with_its_function_and_reason(line, why):
    with pytest.raises(vector.VectorError, match=f"in function kernel: '{re.escape(line)}': .*{why}"):
        vector.translate(function([line]))


def test_an_unknown_vector_instruction_is_an_error():
    with pytest.raises(ValueError, match="unknown vector instruction: sfpu frobnicate"):
        vector.translate(function(["sfpu frobnicate fa0"]))


def test_other_code_stays_as_it_is():
    text = function(["addi a0,a0,1", "# comment", ".ttinsn 939556864"])
    assert vector.translate(text) == text
    with_vectors = vector.translate(function(["addi a0,a0,1", "sfpu load fa0 0 0", "sfpu store fa0 0 2"]))
    assert "\taddi a0,a0,1\n" in with_vectors


def random_program(draw: random.Random) -> list[str]:
    """Lines over up to nine variables with nested conditions; every variable is read after it was written."""
    variables = draw.sample(NAMES, draw.randint(2, 9))
    lines, live, depth = [], [], 0
    for _ in range(draw.randint(10, 60)):
        kind = draw.random()
        target = draw.choice(variables)
        if not live or kind < 0.15:
            if depth and target in live:
                continue
            lines.append(
                draw.choice(
                    (
                        f"sfpu load {target} 4 {draw.randrange(0, 64, 2)}",
                        f"sfpu loadi {target} {draw.getrandbits(draw.choice((12, 16, 32)))}",
                    )
                )
            )
            if not depth and target not in live:
                live.append(target)
            elif depth:
                lines.pop()
        elif kind < 0.6:
            source, fresh = draw.choice(live), "fs2"
            operation = draw.choice(("iadd", "xor", "and", "or", "not", "iaddi", "swap"))
            mode, constant = draw.choice((4, 6)), draw.randrange(4096)
            if operation in ("iadd", "xor", "and", "or"):
                lines += [
                    f"sfpu move {fresh} {draw.choice(live)}",
                    f"sfpu {operation} {fresh} {source} 0 {mode if operation == 'iadd' else 0}",
                ]
            elif operation == "swap":
                lines += [
                    f"sfpu move {fresh} {source}",
                    f"sfpu move fs3 {draw.choice(live)}",
                    f"sfpu swap {fresh} fs3 1",
                ]
            else:
                operands = f"{constant} 5" if operation == "iaddi" else "0 0"
                lines.append(f"sfpu {operation} {fresh} {source} {operands}")
            written = draw.choice(live)
            lines.append(f"sfpu assign {written} {fresh}")
        elif kind < 0.7 and depth < 3:
            lines += ["sfpu pushc", f"sfpu setcc {draw.choice(live)} {draw.choice((0, 2, 4, 6))}"]
            depth += 1
        elif kind < 0.75 and depth:
            lines.append("sfpu compc")
        elif kind < 0.85 and depth:
            lines.append("sfpu popc")
            depth -= 1
        else:
            lines.append(f"sfpu store {draw.choice(live)} 4 {draw.randrange(0, 64, 2)}")
    lines += ["sfpu popc"] * depth
    return lines + [f"sfpu store {name} 4 {2 * n}" for n, name in enumerate(live)]


def test_random_programs_store_the_same_before_and_after():
    """600 programs; inactive lanes hold different junk on both sides, so nothing may depend on it."""
    draw, ran, refused = random.Random(20), 0, 0
    while ran < 600:
        lines = random_program(draw)
        gcc = [line.replace("sfpu move", "fmv.s").replace(" ", "\t", 1) if "move" in line else line for line in lines]
        gcc = [re.sub(r"^fmv\.s\t(\w+) (\w+)", r"fmv.s\t\1,\2", line) for line in gcc]
        try:
            words = translate(*gcc)
        except vector.VectorError as error:
            assert "needed at once" in str(error)
            refused += 1
            continue
        before = Lanes(defaultdict(lambda: [draw.getrandbits(32) for _ in range(LANES)]))
        after = Lanes(defaultdict(lambda: [draw.getrandbits(32) for _ in range(LANES)]))
        after.registers.update({9: [0] * LANES, 10: [0x3F800000] * LANES, 11: [0xBF800000] * LANES})
        run_lines(lines, before)
        run_words(words, after)
        assert after.stores == before.stores, "\n".join(lines)
        ran += 1
    assert refused < 300, "most programs must fit"
