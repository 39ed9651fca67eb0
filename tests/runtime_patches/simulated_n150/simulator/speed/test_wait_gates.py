# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A wait gate with its masks taken apart once lets go in the cycles in which the installed one does."""

import json

# A gate with a random wait latched, while semaphores and queues change at random: the installed gate and ours look at
# the same coprocessor. Compared: whether each lets go, and that it forgets what was latched then.
GATES = """
import json, random
from framework.device.tt_device import DeviceTileDiagnostics
from framework.device.wormhole import Wormhole
from framework.pe.tensix.frontend import WaitGate
from runtime_patches.simulated_n150.simulator.speed import issue

met, tick = WaitGate.check_for_wait_condition_met, WaitGate.clock_tick
issue.PATCH.apply()
assert WaitGate.clock_tick is not tick
chip = Wormhole(DeviceTileDiagnostics(), tensix_coords=[(18, 18)])
coprocessor = chip.tile_directory[18, 18].tensix_coprocessor
backend, outcomes, draw = coprocessor.getBackend(), [0, 0], random.Random(0)
for round_ in range(4000):
    gate = coprocessor.getThread(draw.randrange(3)).wait_gate
    for index in range(8):
        semaphore = backend.getSyncUnit().getSemaphore(index)
        semaphore.max, semaphore.value = draw.randrange(1, 4), draw.choice([0, 1, 1, 2, 3])
    for unit in (backend.matrix_unit, backend.packer_unit, *backend.unpacker_units):
        unit.next_instruction[:] = [(0, draw.randrange(3))] if draw.random() < 0.3 else []
    found = []
    semaphores = draw.random() < 0.5
    wait = (
        ("SEMWAIT", draw.randrange(1, 4), 1, draw.randrange(1, 256))
        if semaphores
        else ("STALLWAIT", sum(1 << draw.randrange(15) for _ in range(2)) & 0x7FFF, 1)
    )
    for check, one_cycle in ((met, tick), (WaitGate.check_for_wait_condition_met, WaitGate.clock_tick)):
        gate.setLatchedWaitInstruction(*wait)
        gate.latch_wait = True
        let_go = check(gate)
        one_cycle(gate, round_)
        assert gate.latch_wait != let_go and (gate.latchedWaitInstruction is None) == let_go
        found.append(let_go)
        gate.latch_wait, gate.latchedWaitInstruction = False, None
    assert found[0] == found[1], (round_, wait)
    outcomes[found[0]] += 1
print(json.dumps(outcomes))
"""


def test_random_waits(fresh_interpreter):
    assert min(json.loads(fresh_interpreter(GATES))) > 500
