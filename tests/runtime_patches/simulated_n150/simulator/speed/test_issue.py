# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Instructions that go from stage to stage without being looked up again are executed in the same cycles."""

import json

import pytest

from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.speed.issue import PATCH

# Three threads with random instructions, pushed at random times: to all kinds of units, such as wait, such as are held
# back by another thread's mutex or by sources that are not there, expanded, recorded and replayed. Compared: what waits
# in each queue after every few cycles, and what the instructions have done.
STREAMS = """
import hashlib, json, os, random
from framework.device.tt_device import DeviceTileDiagnostics
from framework.device.wormhole import Wormhole
from framework.pe.tensix.util import TensixInstructionDecoder
from runtime_patches.simulated_n150.simulator.speed import issue
if os.environ["ISSUE"] == "1":
    issue.PATCH.apply()

NOP, MOP, REPLAY, SETDMAREG, ADDDMAREG, SETC16 = 0x02, 0x01, 0x04, 0x45, 0x58, 0xB2
SETRWC, INCRWC, ZEROSRC, ELWADD, SETDVALID = 0x37, 0x38, 0x11, 0x28, 0x57
ATGETM, ATRELM, SEMINIT, SEMPOST, SEMGET, SEMWAIT, STALLWAIT = 0xA0, 0xA1, 0xA3, 0xA4, 0xA5, 0xA6, 0xA2

def some(draw, thread):
    kind = draw.randrange(15)
    word = lambda opcode, rest=0: opcode << 24 | rest
    if kind < 4:
        return [word(SETDMAREG, draw.randrange(1 << 14) << 8 | draw.randrange(120))]
    if kind == 4:
        return [word(ADDDMAREG, draw.randrange(60) << 12 | draw.randrange(60) << 6 | draw.randrange(60))]
    if kind == 5:
        return [word(SETC16, draw.choice([5, 6, 12]) << 16 | draw.randrange(4))]
    if kind == 6:
        return [word(INCRWC, draw.randrange(1 << 12) << 6)]
    if kind == 7:
        mutex = draw.choice([0, 2])
        return [word(ATGETM, mutex), *[word(NOP)] * draw.randrange(4), word(ATRELM, mutex)]
    if kind == 8:
        return [word(SEMPOST, 1 << draw.randrange(2, 10))]
    if kind == 9:
        return [word(STALLWAIT, draw.choice([1, 0x40, 0x1FF]) << 15 | 1 << draw.randrange(7))]
    if kind == 10:
        start, length = draw.randrange(16), draw.randrange(1, 9)
        recorded = [word(SETDMAREG, draw.randrange(1 << 14) << 8 | draw.randrange(120)) for _ in range(length)]
        record = start << 14 | length << 4 | draw.randrange(2) << 1 | 1
        return [word(REPLAY, record), *recorded, *[word(REPLAY, start << 14 | length << 4)] * 2]
    if kind == 11:
        return [word(MOP, 1 << 23)]
    if kind == 12 and thread == 0:
        return [word(SETDVALID, 1), word(SETDVALID, 2)]
    if kind == 13 and thread == 1:
        return [word(SETRWC, 3 << 22)]
    return [word(NOP)]

found, waits = [], [0, 0, 0]
chip = Wormhole(DeviceTileDiagnostics(), tensix_coords=[(18, 18)])
chip.reset()
tile = chip.tile_directory[18, 18]
coprocessor, draw = tile.tensix_coprocessor, random.Random(5)
threads = [coprocessor.getThread(i) for i in range(3)]
for thread in threads:
    inner = NOP << 24
    thread.mop_expander.mop_cfg[:] = [2, 3, inner, inner, inner, SETDMAREG << 24 | 77 << 8 | 9, inner, inner, inner]
backlog = [[], [], []]
units = coprocessor.getClocks()
for cycle in range(6000):
    for number, thread in enumerate(threads):
        if not backlog[number] and draw.random() < 0.4:
            backlog[number] = some(draw, number)
        while backlog[number] and thread.inflight_count() < 24 and draw.random() < 0.7:
            thread.mop_instruction_fifo.append(backlog[number].pop(0))
    for unit in units:
        unit.clock_tick(cycle)
    queues = [
        [thread.mop_instruction_fifo, thread.replay_instruction_fifo, thread.wait_gate_instruction_fifo]
        for thread in threads
    ]
    for number, thread in enumerate(threads):
        waits[number] += bool(thread.wait_gate_instruction_fifo)
    backend = coprocessor.getBackend()
    gpr = backend.getGPR()
    state = [
        queues, backend.config_unit.threadConfig, [vars(backend.getRWC(i)) | {"backend": 0} for i in range(3)],
        [backend.getSyncUnit().getSemaphore(i).value for i in range(8)], gpr.registers,
    ]
    found.append(hashlib.sha256(repr(state).encode()).hexdigest()[:8])
print(json.dumps({"found": found, "waits": waits}))
"""


@pytest.mark.parametrize("cost_model", ["0", "1"])
def test_random_streams_of_three_threads(fresh_interpreter, cost_model):
    # Instructions may give back sources that their thread does not hold, and post too often.
    unchecked = {f"TT_SIM_DISABLE_{what}_CHECKS": "1" for what in ("DVALID", "SEMAPHORE")}
    variables = {"TT_SIM_COST_MODEL": cost_model} | unchecked
    ours, installed = (json.loads(fresh_interpreter(STREAMS, ISSUE=value, **variables)) for value in "10")
    assert min(installed["waits"]) > 300, "instructions waited at each gate"
    assert len(set(installed["found"])) > 2000
    assert ours == installed


def test_targets_are_the_installed_code():
    check([PATCH])
