# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled execution of the cores does what the installed core does, tick by tick."""

import numpy as np

from runtime_patches.simulated_n150.simulator.burst import interpreter
from runtime_patches.simulated_n150.simulator.patches.stream_registers import write_register
from tests.simulated_n150.simulator.core_programs import DATA, RAM, START, make_core, random_program


def lay_out(program, contents, values):
    """(memory, registers, spans, first, pending) of one core with a random program."""
    _, ram = make_core()
    ram.write(START, program)
    ram.write(DATA, contents)
    registers = np.zeros((1, interpreter.WORDS), np.int64)
    registers[0, 1:8], registers[0, 8], registers[0, interpreter.PC] = values[1:], DATA, START
    spans = np.array([[0, RAM - 1, ram.memory.ctypes.data, interpreter.RAM]], np.int64)
    return ram, registers, spans, np.array([0, 1]), np.zeros((1, 4), np.int64)


def test_random_programs(fresh_interpreter):
    """In a process of its own: the installed core, with the rules of division and jumps alone."""
    fresh_interpreter(
        """
from tests.simulated_n150.simulator import core_programs as t
from tests.simulated_n150.simulator.test_burst_equality import lay_out
from runtime_patches.simulated_n150.simulator.burst import interpreter
from runtime_patches.simulated_n150.simulator.patches import integer_division, jumps
from framework.pe.rv.rv32 import RV32I
integer_division.PATCH.apply()
jumps.PATCH.apply()
for seed in range(80):
    parts = t.random_program(seed)
    states, memory = t.trace(RV32I.clock_tick, *parts)
    ram, registers, *rest = lay_out(*parts)
    for tick, state in enumerate(states):
        assert interpreter.run(registers, *rest, tick, tick + 1) == tick + 1, (seed, tick)
        found = [int(value).to_bytes(4, "little") for value in registers[0]]
        assert found == list(state[:33]), (seed, tick, [i for i in range(33) if found[i] != state[i]])
    assert ram.memory.tobytes() == memory, seed
"""
    )


def test_how_far_a_run_is_cut_into_pieces_makes_no_difference():
    parts = random_program(3)
    ram, registers, *rest = lay_out(*parts)
    interpreter.run(registers, *rest, 0, 140)
    other, pieces, *rest = lay_out(*parts)
    for start, end in ((0, 1), (1, 50), (50, 53), (53, 140)):
        assert interpreter.run(pieces, *rest, start, end) == end
    assert np.array_equal(registers, pieces) and ram.memory.tobytes() == other.memory.tobytes()


def test_a_run_stops_before_the_first_slow_instruction_of_any_core():
    """Nothing happens in that cycle, on no core."""
    nop, tensix, load = 0x13, 0x88000002, 20 << 20 | 2 << 12 | 1 << 7 | 0x03
    memory = np.zeros((2, 64), np.uint8)
    memory[0] = np.frombuffer(b"".join(word.to_bytes(4, "little") for word in [nop] * 16), np.uint8)
    for word, reached in ((tensix, 3), (load, 4), (0x73, 3)):
        memory[1] = np.frombuffer(
            b"".join(w.to_bytes(4, "little") for w in [nop] * 3 + [word] + [nop] * 12), np.uint8
        )
        registers = np.zeros((2, interpreter.WORDS), np.int64)
        spans = np.array([[0, 63, part.ctypes.data, interpreter.RAM] for part in memory], np.int64)
        end = interpreter.run(registers, spans, np.array([0, 1, 2]), np.zeros((2, 4), np.int64), 0, 4)
        assert end == reached and list(registers[:, interpreter.PC]) == [4 * end] * 2


def test_stream_registers_are_written_as_in_python():
    rng = np.random.default_rng(0)
    words, plain = np.zeros((2, 1024), np.int64), [[0] * 1024 for _ in range(2)]
    store = (2 << 20 | 1 << 15 | 2 << 12 | 0x23).to_bytes(4, "little")  # sw x2, 0(x1)
    code = np.frombuffer(store, np.uint8).copy()
    spans = np.array(
        [
            [0, 3, code.ctypes.data, interpreter.RAM],
            [0xFFB40000, 0xFFB41FFF, words.ctypes.data, interpreter.STREAMS],
        ],
        np.int64,
    )
    for _ in range(400):
        stream, index = int(rng.integers(2)), int(rng.choice([3, 4, 5, 34, 34, 64, 70, 95, 96, 8, 1023]))
        value = int(rng.integers(1 << 32))
        registers = np.zeros((1, interpreter.WORDS), np.int64)
        registers[0, 1], registers[0, 2] = 0xFFB40000 + 0x1000 * stream + 4 * index, value
        assert interpreter.run(registers, spans, np.array([0, 2]), np.zeros((1, 4), np.int64), 0, 1) == 1
        write_register(plain[stream], index, value)
        assert words.tolist() == plain


def test_a_waiting_loop_is_one_that_changes_nothing():
    flag, count = 0x40, 0x44
    load = flag << 20 | 2 << 12 | 1 << 7 | 0x03  # lw x1, flag
    back = 0xFE008EE3  # beqz x1, . - 4
    counting = 1 << 20 | 2 << 15 | 2 << 7 | 0x13  # addi x2, x2, 1
    storing = count << 7 & 0xF80 | count >> 5 << 25 | 2 << 12 | 0x23  # sw x0, count
    for program, steps in (
        ([load, back], 2),
        ([load, counting, 0xFE008CE3], 0),
        ([load, storing, 0xFE008CE3], 0),
    ):
        memory = np.zeros(128, np.uint8)
        data = b"".join(word.to_bytes(4, "little") for word in program)
        memory[: len(data)] = np.frombuffer(data, np.uint8)
        spans = np.array([[0, 127, memory.ctypes.data, interpreter.RAM]], np.int64)
        trajectory, loads = np.zeros((96, interpreter.WORDS), np.int64), np.zeros((96, 2), np.int64)
        registers = np.zeros((1, interpreter.WORDS), np.int64)
        found, noted = interpreter.waiting_loop(registers, spans, 0, 1, trajectory, loads)
        assert found == steps
        if steps:
            assert noted == 1 and tuple(loads[0]) == (flag, 4) and trajectory[1, interpreter.PC] == 4
