# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A core that waits in a loop notices a flag stored at whichever cycle; the unpatched simulator misses some."""

import json

import pytest

from runtime_patches.simulated_n150.simulator.behaviour.waiting_loops import PATCH
from runtime_patches.simulated_n150.simulator.patch import check

# load a5 = [0x100]; while it is zero, again; store it to 0x104; stay. `nops` shift where an attempt to recognise
# the loop begins, so that the load is the loop's last instruction in some of them.
MISSED_STORES = """
import json, os
from framework.memory.memory import DRAM, VisibleMemory
from framework.memory.memory_map import AddressRange, MemoryMap
from framework.misc.tile_ctrl import TensixTileControl
from framework.pe.rv.babyriscv import BabyRISCV, BabyRISCVCoreType
from runtime_patches.simulated_n150.simulator.behaviour.waiting_loops import PATCH
if os.environ["PATCHED"] == "1":
    PATCH.apply()
NOP = 0x13
POLL = [0x10002783, 0xFE078EE3, 0x10F02223, 0x0000006F]  # lw, beq -4, sw, j .
FLAG, MARKER, END = 0x100, 0x104, 900
SEVEN = (7).to_bytes(4, "little")

def make_core(nops):
    ram, control, memory = DRAM(0x1000), TensixTileControl(), MemoryMap()
    memory[AddressRange(0, 0x1000)] = ram
    memory[AddressRange(0xFFB12000, control.getSize())] = control
    for i, word in enumerate([NOP] * nops + POLL):
        ram.write(4 * i, word.to_bytes(4, "little"))
    core = BabyRISCV(BabyRISCVCoreType.BRISC, [VisibleMemory(memory)], arch="wormhole")
    core.reset()
    return core, ram

def sees(nops, at, for_ever):
    # 7 is stored before the tick of cycle `at`; unless it stays, 0 is stored right after that tick.
    core, ram = make_core(nops)
    asleep, loaded = False, False
    for cycle in range(END):
        if cycle == at:
            ram.write(FLAG, SEVEN)
            asleep = False  # whatever stores wakes the tile
        if asleep:
            continue
        core.clock_tick(cycle)
        loaded = loaded or core.register_file.registers[15].value == SEVEN
        if cycle == at and not for_ever:
            ram.write(FLAG, bytes(4))
        asleep = core.next_wake_cycle(cycle) is None
    return loaded, ram.read(MARKER, 4) != bytes(4), core._spin.parks

stays, flickers, loads, parks = [], [], 0, 0
for nops in range(2):
    for cycle in range(90, 300):
        loaded, seen, parked = sees(nops, cycle, True)
        parks += parked
        if not seen:
            stays.append((nops, cycle))
    for cycle in range(600, 640):
        loaded, seen, parked = sees(nops, cycle, False)
        loads += loaded
        if loaded and not seen:
            flickers.append((nops, cycle))
print(json.dumps({"stays": stays, "flickers": flickers, "loads": loads, "parks": parks}))
"""


@pytest.mark.parametrize("cost_model", ["0", "1"])
def test_no_store_is_missed(fresh_interpreter, cost_model):
    found = json.loads(fresh_interpreter(MISSED_STORES, PATCHED="1", TT_SIM_COST_MODEL=cost_model))
    assert found["stays"] == [] and found["flickers"] == []
    assert found["loads"] > 0, "some load saw the value that was there for one cycle"
    assert found["parks"] > 300, "the loop is still recognised"


def test_the_installed_simulator_misses_some(fresh_interpreter):
    found = json.loads(fresh_interpreter(MISSED_STORES, PATCHED="0"))
    assert found["stays"] and found["flickers"], "the patch has become unnecessary"


def test_targets_are_the_installed_code():
    check([PATCH])
