# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Wait gates that look at what they wait for, and at nothing else.

Speed only. A gate that holds its thread back looks every cycle whether what was latched (STALLWAIT, SEMWAIT) has come.
The simulator took the masks apart bit by bit each time, and where it had not come looked again for the reason, which
only its own event bus and the performance counters want to know. Here the masks are taken apart once, and the reason
is asked for where one of the two listens.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def _bits(mask: int | None, count: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(count) if (mask or 0) >> bit & 1)


def _apply() -> None:
    from framework.pe.tensix.frontend import WaitGate
    from framework.trace import get_bus

    latched_instruction, installed = WaitGate.LatchedInstruction, WaitGate.clock_tick
    make, bus = latched_instruction.__init__, get_bus()

    def __init__(self, opcode, condition_mask, block_mask, semaphore_mask=None):
        make(self, opcode, condition_mask, block_mask, semaphore_mask)
        self._semaphores, self._conditions = _bits(semaphore_mask, 8), _bits(condition_mask, 15)

    def semaphores_to_check(self):
        return self._semaphores

    def check_for_wait_condition_met(self):
        latched = self.latchedWaitInstruction
        assert latched is not None
        if latched.isSemaphoreMode():
            return self._latched_semaphore_reason() is None
        for index in latched._conditions:  # noqa: SIM110 (called in each cycle of a wait)
            if not self.check_for_semwait_condition_match(index):
                return False
        return True

    def clock_tick(self, cycle_num):
        counters = self.perf_counters
        if (
            not self.latch_wait
            or self.mutex_stall
            or self.backend_enforced_stall
            or bus.enabled
            or (counters is not None and counters.instrn_running)
        ):
            installed(self, cycle_num)
        elif self.check_for_wait_condition_met():
            self.latch_wait = False
            self.latchedWaitInstruction = None
            self._flush_stall()

    latched_instruction.__init__ = __init__
    latched_instruction.getSemaphoresToCheck = semaphores_to_check
    WaitGate.check_for_wait_condition_met = check_for_wait_condition_met
    WaitGate.clock_tick = clock_tick


PATCH = Patch(
    name="wait gates",
    rule="speed only: a gate that waits looks at what it waits for, and for the reason only where it is noted",
    source="the installed simulator",
    targets={"framework.pe.tensix.frontend": "ceb004603f01729d"},
    apply=_apply,
)
