# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled execution of the cores does what the installed core does, tick by tick."""

import numpy as np

from runtime_patches.simulated_n150.simulator.behaviour.stream_registers import write_register
from runtime_patches.simulated_n150.simulator.ethernet import queues
from runtime_patches.simulated_n150.simulator.speed.burst import interpreter
from runtime_patches.simulated_n150.tests.simulator.speed.core_programs import (
    DATA,
    RAM,
    START,
    make_core,
    random_program,
)


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
from runtime_patches.simulated_n150.tests.simulator.speed import core_programs as t
from runtime_patches.simulated_n150.tests.simulator.speed.test_burst_equality import lay_out
from runtime_patches.simulated_n150.simulator.speed.burst import interpreter
from runtime_patches.simulated_n150.simulator.behaviour import integer_division, jumps
from framework.pe.rv.rv32 import RV32I
integer_division.PATCH.apply()
jumps.PATCH.apply()
for seed in range(80):
    parts = t.random_program(seed)
    states, memory, _ = t.trace(RV32I.clock_tick, *parts)
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
        memory[1] = np.frombuffer(b"".join(w.to_bytes(4, "little") for w in [nop] * 3 + [word] + [nop] * 12), np.uint8)
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


LOAD, STORE = (
    1 << 15 | 2 << 12 | 3 << 7 | 0x03,
    2 << 20 | 1 << 15 | 2 << 12 | 0x23,
)  # lw x3, (x1); sw x2, (x1)


def step(word, low, array, kind, address, value=0, cycle=0):
    """One instruction on a register space that begins at `low` -> what x3 holds then, or None where it is slow."""
    code = np.frombuffer(word.to_bytes(4, "little"), np.uint8).copy()
    spans = np.array(
        [
            [0, 3, code.ctypes.data, interpreter.RAM],
            [low, low + 0xFFFF, 0 if array is None else array.ctypes.data, kind],
        ],
        np.int64,
    )
    registers = np.zeros((1, interpreter.WORDS), np.int64)
    registers[0, 1], registers[0, 2] = low + address, value
    reached = interpreter.run(registers, spans, np.array([0, 2]), np.zeros((1, 4), np.int64), cycle, cycle + 1)
    return int(registers[0, 3]) if reached == cycle + 1 else None


def test_noc_registers_are_read_and_written_as_in_python():
    from framework.network.tt_noc import NUI

    from runtime_patches.simulated_n150.simulator.speed.burst.cores import share_registers

    low, rng = 0xFFB20000, np.random.default_rng(1)
    plain, shared = NUI(0, 1, 1, None), NUI(0, 1, 1, None)
    for interface in (plain, shared):
        interface.write(0x404, (7).to_bytes(4, "little"))
        interface.nui_counters.increment(5, 3)
    share_registers(shared)
    array, kept = shared.nui_counters.shared, [0x400 * i + 4 * j for i in range(4) for j in range(10)]
    counters, waiting = [0x200 + 4 * i for i in range(62)], [0x400 * i + 0x28 for i in range(4)]
    for _ in range(300):
        address, value = int(rng.choice(kept)), int(rng.integers(1 << 32))
        plain.write(address, value.to_bytes(4, "little"))
        assert step(STORE, low, array, interpreter.NOC, address, value) == 0
        counter, by = int(rng.integers(62)), int(rng.integers(1, 9))
        for interface in (plain, shared):
            interface.nui_counters.increment([counter, 5], by)
            interface.nui_counters.decrement(counter, 1)
    for address in (*kept, *counters, *waiting):
        expected = plain.read(address, 4)
        assert shared.read(address, 4) == expected, hex(address)
        found = step(LOAD, low, array, interpreter.NOC, address)
        assert found == int.from_bytes(expected, "little"), hex(address)
    # Commands, node identity, configuration, and the first words behind counters and command buffers.
    for address in (*waiting, 0x2C, 0x100, 0x1FC, 0x2F8, 0x1000):
        assert step(STORE, low, array, interpreter.NOC, address, 1) is None, hex(address)
        assert address in waiting or step(LOAD, low, array, interpreter.NOC, address) is None, hex(address)
    assert all(step(STORE, low, array, interpreter.NOC, address, 1) is None for address in counters)


def test_a_transmit_queues_registers_are_written_as_in_python():
    low, rng = 0xFFB90000, np.random.default_rng(2)
    plain, compiled = queues.TransmitQueue(None, 0), queues.TransmitQueue(None, 0)
    for _ in range(200):
        address, value = int(rng.choice(queues.KEPT)), int(rng.integers(1 << 32))
        plain.write(address, value.to_bytes(4, "little"))
        assert step(STORE, low, compiled.state, interpreter.TRANSMIT, address, value) == 0
        assert np.array_equal(plain.state, compiled.state)
    compiled.busy_until = 50
    busy = [step(LOAD, low, compiled.state, interpreter.TRANSMIT, queues.COMMAND, cycle=at) for at in (49, 50)]
    assert busy == [1, 0]
    for address in (queues.COMMAND, queues.TRANSFERS, queues.ENDED, 0x08, 0x70, 0x1014):
        assert step(STORE, low, compiled.state, interpreter.TRANSMIT, address, 1) is None, hex(address)


def test_the_clock_is_read_as_in_python():
    from framework.misc.tile_ctrl import TensixTileControl

    class Owner:
        current_cycle = 0

    low, control = 0xFFB12000, TensixTileControl()
    control.clock_owner = Owner
    for cycle in (0, 1, 77, (1 << 32) - 1):
        Owner.current_cycle = cycle
        for address in (0x1F0, 0x1F4, 0x1F8):
            expected = int.from_bytes(control.read(address, 4), "little")
            found = step(LOAD, low, None, interpreter.CLOCK, address, cycle=cycle)
            assert found == expected, (cycle, address)
    assert step(LOAD, low, None, interpreter.CLOCK, 0x1F0, cycle=1 << 32) is None


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
