# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Code executed ahead of time, compiled, leaves what code executed word by word leaves, in the same cycle."""

import json

import pytest

from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.speed.core import PATCH

# Two cores with 16 KB that others see and 4 KB of their own run the same random program several times over. Between two
# rounds some words change. Compared in every cycle in which the core that runs ahead is not ahead: all registers and
# both memories; in each cycle in which it executes: the memory that others see.
ROUNDS = """
import json, os, random
from framework.memory.memory import AddressableMemory, VisibleMemory
from framework.memory.memory_map import AddressRange, MemoryMap
from framework.pe.rv.cost import make_cost_state
from framework.pe.rv.rv32 import RV32I, RV32IM_TT
from runtime_patches.simulated_n150.simulator.behaviour import integer_division, jumps
from runtime_patches.simulated_n150.simulator.speed import core
from runtime_patches.simulated_n150.simulator.speed.burst.cores import compiled_core
from runtime_patches.simulated_n150.simulator.speed.burst.interpreter import OWN as LOCAL
from runtime_patches.simulated_n150.tests.simulator.speed import core_programs as programs

integer_division.PATCH.apply()
jumps.PATCH.apply()
installed = RV32I.clock_tick
core.PATCH.apply()

def make(program, contents, values, data):
    ram, own = AddressableMemory(programs.RAM), AddressableMemory(0x1000)
    memory = VisibleMemory(MemoryMap({AddressRange(0, programs.RAM): ram, AddressRange(LOCAL, 0x1000): own}))
    made = RV32IM_TT(programs.START, [memory])
    made.rv_cost = make_cost_state("wormhole") if os.environ["TT_SIM_COST_MODEL"] == "1" else None
    made.start()
    ram.write(programs.START, program)
    ram.write(programs.DATA, contents)
    own.write(0, contents)
    for index, value in enumerate(values[1:], start=1):
        made.register_file[index].write(value.to_bytes(4, "little"))
    made.register_file[8].write(data.to_bytes(4, "little"))
    return made, ram, own

def state(cycle, made, ram, own):
    registers = [r.value for r in made.register_file.registers[:33]]
    costs = made.rv_cost and (made.rv_cost.summary(), made.rv_cost.spin_signature(cycle))
    return registers, ram.memory.tobytes(), own.memory.tobytes(), costs

ahead_of_time, compared = 0, 0
for seed in range(40):
    draw = random.Random(seed)
    program, contents, values = programs.random_program(seed)
    data = draw.choice([programs.DATA, LOCAL])
    plain, fast = make(program, contents, values, data), make(program, contents, values, data)
    ahead, cycle = 0, 0
    for _ in range(5):
        for made, ram, _own in (plain, fast):
            made.pc_register.write(programs.START.to_bytes(4, "little"))
        for _ in range(140):
            installed(plain[0], cycle)
            if cycle >= ahead:
                done = compiled_core(fast[0]).run_ahead(cycle)
                if done:
                    ahead, ahead_of_time = cycle + done, ahead_of_time + done - 1
                else:
                    fast[0].clock_tick(cycle)
                # What others see changes with the first instruction alone, whose cycle this is.
                assert fast[1].memory.tobytes() == plain[1].memory.tobytes(), (seed, cycle)
            cycle += 1
            if cycle >= ahead:
                compared += 1
                assert state(cycle, *plain) == state(cycle, *fast), (seed, cycle)
        while cycle < ahead:  # to where both stand at the same instruction
            installed(plain[0], cycle)
            cycle += 1
        place = programs.START + 4 * draw.randrange(120)
        word = programs.random_word(draw).to_bytes(4, "little")
        for _made, ram, _own in (plain, fast):
            ram.write(place, word)
print(json.dumps([ahead_of_time, compared]))
"""


@pytest.mark.parametrize("cost_model", ["0", "1"])
def test_random_programs(fresh_interpreter, cost_model):
    ahead, compared = json.loads(fresh_interpreter(ROUNDS, TT_SIM_COST_MODEL=cost_model))
    assert ahead > 1000 and compared > 1000, (ahead, compared)


def test_targets_are_the_installed_code():
    check([PATCH])
