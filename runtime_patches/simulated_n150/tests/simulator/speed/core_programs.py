# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The core with remembered instructions does what the installed core does, tick by tick."""

import random

from framework.memory.memory import AddressableMemory, VisibleMemory
from framework.memory.memory_map import AddressRange, MemoryMap
from framework.pe.rv.cost import make_cost_state
from framework.pe.rv.rv32 import RV32IM_TT

RAM = 0x4000
START, DATA = 0x100, 0x2000
NOP = (0x13).to_bytes(4, "little")


def make_core(cost=False):
    ram = AddressableMemory(RAM)
    memory = VisibleMemory(MemoryMap({AddressRange(0, RAM): ram}))
    core = RV32IM_TT(START, [memory])
    core.rv_cost = make_cost_state("wormhole") if cost else None
    core.start()
    return core, ram


def random_word(rng: random.Random) -> int:
    """A legal RV32IM instruction that stays in the program: loads and stores by way of register 8."""
    rd, rs1, rs2 = rng.randrange(8), rng.randrange(8), rng.randrange(8)
    immediate = rng.choice([0, 1, 4, 0x7FF, 0x800, 0xFFF, rng.randrange(4096)])
    kind = rng.randrange(9)
    if kind == 0:
        return immediate << 20 | rs1 << 15 | rng.choice([0, 2, 3, 4, 6, 7]) << 12 | rd << 7 | 0x13
    if kind == 1:
        shift = rng.choice([(0, 1), (0, 5), (0x20, 5)])
        return shift[0] << 25 | rng.randrange(32) << 20 | rs1 << 15 | shift[1] << 12 | rd << 7 | 0x13
    if kind == 2:
        funct7 = rng.choice([0, 0x20, 1])
        funct3 = rng.choice([0, 5]) if funct7 == 0x20 else rng.randrange(4 if funct7 == 1 else 8)
        return funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | 0x33
    if kind == 3:
        return rng.randrange(1 << 12) << 12 | rd << 7 | 0x37
    if kind == 4:
        return rng.randrange(1 << 12) << 12 | rd << 7 | 0x17
    if kind == 5:
        offset = rng.randrange(0, 64, 4)
        return offset << 20 | 8 << 15 | rng.choice([0, 1, 2, 4, 5]) << 12 | rd << 7 | 0x03
    if kind == 6:
        offset = rng.randrange(0, 64, 4)
        return (offset >> 5) << 25 | rs2 << 20 | 8 << 15 | rng.choice([0, 1, 2]) << 12 | (offset & 31) << 7 | 0x23
    if kind == 7:  # over the next word, or not
        return rs2 << 20 | rs1 << 15 | rng.choice([0, 1, 4, 5, 6, 7]) << 12 | 8 << 7 | 0x63
    return 8 << 20 | rd << 7 | 0x6F | 0  # jal over the next word (offset 8 in bits 30:21)


def random_program(seed: int) -> tuple[bytes, bytes, list[int]]:
    """Program, data and first contents of registers 0 to 7."""
    rng = random.Random(seed)
    program = b"".join(random_word(rng).to_bytes(4, "little") for _ in range(160)) + NOP * 160
    contents = rng.randbytes(64)
    values = [rng.choice([0, 1, 0x80000000, 0xFFFFFFFF, 7, rng.randrange(2**32)]) for _ in range(8)]
    return program, contents, values


def trace(step, program, contents, values, cost=False):
    """(all registers after each tick, memory at the end, what the cost model counted) of a program run by `step`."""
    core, ram = make_core(cost)
    ram.write(START, program)
    ram.write(DATA, contents)
    for index, value in enumerate(values[1:], start=1):
        core.register_file[index].write(value.to_bytes(4, "little"))
    core.register_file[8].write(DATA.to_bytes(4, "little"))
    states = []
    for cycle in range(140):
        step(core, cycle)
        states.append(tuple(register.value for register in core.register_file.registers))
    return states, ram.memory.tobytes(), core.rv_cost and core.rv_cost.summary()
