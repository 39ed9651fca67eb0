# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tensix instructions on their way from a thread's queue to their unit, one stage per cycle as before.

Each stage looked up the name of an instruction again, asked whether the event bus wants to know, and compared it with
those that it has to do something about; most only go on. Here the instruction word tells what a stage has to do.
Whatever is unusual goes the installed way: an event bus that listens, the cost model, reports of issued instructions,
MOP, REPLAY and what follows it, mutexes, unknown instructions.

A gate that holds its thread back looks every cycle whether what was latched (STALLWAIT, SEMWAIT) has come. It took the
masks apart bit by bit each time, and where it had not come looked again for the reason, which only the event bus and
the performance counters want to know. Here the masks are taken apart once, and the reason is looked for where one of
the two listens.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch

_EXPANDED, _REPLAYED = ("MOP", "MOP_CFG"), ("REPLAY",)
_HELD = ("ATGETM",)  # the gate waits for its mutex


def _bits(mask: int | None, count: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(count) if (mask or 0) >> bit & 1)


def _apply() -> None:
    from framework.pe.tensix.backend import UNMODELLED_BLACKHOLE_INSTRUCTIONS, TensixBackend
    from framework.pe.tensix.backends.backend_base import TensixBackendUnit
    from framework.pe.tensix.frontend import TensixMOPExpander, TensixReplayExpander, WaitGate
    from framework.pe.tensix.util import TensixInstructionDecoder
    from framework.trace import get_bus

    bus = get_bus()
    expand, replay, gate = TensixMOPExpander.clock_tick, TensixReplayExpander.clock_tick, WaitGate.clock_tick
    execute, issue = TensixBackendUnit.clock_tick, TensixBackend.issueInstruction
    latched_instruction = WaitGate.LatchedInstruction
    latch = latched_instruction.__init__
    passing: dict[int, tuple[bool, bool, bool, bool]] = {}

    def stages(instruction):
        """Whether an instruction just goes on in the MOP expander, in the replay expander and at the gate; whether it
        is the matrix unit's."""
        info = TensixInstructionDecoder.getInstructionInfo(instruction)
        name = info["name"]
        known = passing[instruction] = (
            name not in _EXPANDED,
            name not in _REPLAYED,
            name not in _HELD,
            info["ex_resource"] == "MATH",
        )
        return known

    def expander_tick(self, cycle_num):
        queue = self.frontend.mop_instruction_fifo
        if queue and not bus._enabled and (passing.get(queue[0]) or stages(queue[0]))[0]:
            self.frontend.replay_instruction_fifo.append(queue.pop(0))
        else:
            expand(self, cycle_num)

    def replay_tick(self, cycle_num):
        queue = self.frontend.replay_instruction_fifo
        if (
            queue
            and not self.append_instruction_to_buffer
            and not bus._enabled
            and (passing.get(queue[0]) or stages(queue[0]))[1]
        ):
            self.frontend.wait_gate_instruction_fifo.append(queue.pop(0))
        else:
            replay(self, cycle_num)

    def latch_instruction(self, opcode, condition_mask, block_mask, semaphore_mask=None):
        latch(self, opcode, condition_mask, block_mask, semaphore_mask)
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

    def gate_tick(self, cycle_num):
        frontend, counters = self.frontend, self.perf_counters
        if (
            self.mutex_stall
            or self.backend_enforced_stall
            or bus._enabled
            or (counters is not None and counters.instrn_running)
        ):
            gate(self, cycle_num)
            return
        if self.latch_wait:
            if self.check_for_wait_condition_met():
                self.latch_wait = False
                self.latchedWaitInstruction = None
                self._flush_stall()
            return
        queue = frontend.wait_gate_instruction_fifo
        if not queue or self.latchedWaitInstruction is not None or frontend.diags_settings.reportIssuedInstructions():
            gate(self, cycle_num)
            return
        instruction = queue[0]
        _, _, passes, multiplies = passing.get(instruction) or stages(instruction)
        if not passes:
            gate(self, cycle_num)
            return
        backend, thread = self.backend, frontend.thread_id
        if backend.thread_issue_block[thread] > cycle_num:
            return
        if multiplies:
            name = TensixInstructionDecoder.getInstructionInfo(instruction)["name"]
            if self.whichSrcBankBlocksFPUInstruction(name) is not None:
                return
        if backend.issueInstruction(instruction, thread):
            queue.pop(0)
            if self._stall_since is not None:
                self._flush_stall()

    def issue_to_unit(self, instruction, from_thread):
        units = self.__dict__.get("_unit_of")
        if units is None:
            units = self._unit_of = {}
        unit = units.get(instruction)
        if unit is None:
            info = TensixInstructionDecoder.getInstructionInfo(instruction)
            target = info["ex_resource"]
            if info["name"] in UNMODELLED_BLACKHOLE_INSTRUCTIONS or target == "NONE":
                return issue(self, instruction, from_thread)
            unit = units[instruction] = (
                self.unpacker_units[instruction >> 23 & 1] if target == "UNPACK" else self.backend_units[target]
            )
        return unit.issueInstruction(instruction, from_thread)

    def unit_tick(self, cycle_num):
        queue = self.next_instruction
        if self.cost_model is not None or self.busy_until is not None or bus._enabled:
            execute(self, cycle_num)
            return
        handlers = self.__dict__.get("_by_word")
        if handlers is None:
            handlers = self._by_word = {}
        while queue:
            instruction, thread = queue[0]
            known = handlers.get(instruction)
            if known is None:
                info = TensixInstructionDecoder.getInstructionInfo(instruction)
                method = self.opcode_to_method_map.get(info["name"])
                if method is None:
                    execute(self, cycle_num)
                    return
                known = handlers[instruction] = getattr(self, method), info, info.get("instr_args")
            del queue[0]
            handle, info, arguments = known
            handle(info, thread, arguments)

    TensixMOPExpander.clock_tick = expander_tick
    TensixReplayExpander.clock_tick = replay_tick
    latched_instruction.__init__ = latch_instruction
    latched_instruction.getSemaphoresToCheck = semaphores_to_check
    WaitGate.check_for_wait_condition_met = check_for_wait_condition_met
    WaitGate.clock_tick = gate_tick
    TensixBackend.issueInstruction = issue_to_unit
    TensixBackendUnit.clock_tick = unit_tick


PATCH = Patch(
    name="instructions on their way",
    rule="what a stage has to do with an instruction word is kept; a gate looks at what it waits for alone",
    source="the installed simulator",
    targets={
        "framework.pe.tensix.frontend": "ceb004603f01729d",
        "framework.pe.tensix.backend.TensixBackend": "2da3cdbe38450bc1",
        "framework.pe.tensix.backends.backend_base.TensixBackendUnit": "c9719e08830dc0c1",
    },
    apply=_apply,
)
