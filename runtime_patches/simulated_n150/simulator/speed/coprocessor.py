# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A tile's Tensix coprocessor as one clocked part, of which only what has something to do is ticked (resting.py).

Ticking a unit that calls itself idle changes nothing, so only the others are ticked. Only instructions from the cores
or commands of the TDMA-RISC end the idleness of all of them: the coprocessor is then left alone until one of these
queues holds something. Where only wait gates are left that hold their threads back, it is left alone until something
else on the tile does more than execute a core's plain instructions.
"""

from __future__ import annotations

from framework.device.clock import Clockable
from framework.pe.rv.spin import firmware_idle_enabled_from_env
from framework.pe.tensix.util import TensixInstructionDecoder

_OUT = [0, 0, 0]  # of a unit in whose pipeline no thread has an instruction


def is_held(gate) -> bool:
    """Return whether a cycle of a wait gate changes nothing until a unit of the Tensix coprocessor, or a store to a
    register, does."""
    if gate.mutex_stall or gate.backend_enforced_stall:
        return False
    if gate.perf_counters is not None and gate.perf_counters.instrn_running:
        return False  # a cycle counts
    instruction = gate.frontend.inspect_wait_gate_instruction()
    if gate.latchedWaitInstruction is not None:
        return (gate.latch_wait or instruction is None) and not gate.check_for_wait_condition_met()
    if gate.latch_wait or instruction is None:
        return False
    known = TensixInstructionDecoder.getInstructionInfo(instruction)
    return known["ex_resource"] == "MATH" and gate.whichSrcBankBlocksFPUInstruction(known["name"]) is not None


class Coprocessor(Clockable):
    """All clocked units of a tile's Tensix coprocessor as one, in their order.

    In a cycle only the units are ticked that are not idle by their own tests (``is_clock_idle`` of each class, written
    out here: 19 calls a cycle cost more than what the units do), or that have a deadline of the cost model before them.
    """

    def __init__(self, coprocessor) -> None:
        self.units = coprocessor.getClocks()
        self._threads = [coprocessor.getThread(i) for i in range(3)]
        backend = coprocessor.getBackend()
        self._mover = backend.mover_unit
        self._resting, self._may_rest = False, firmware_idle_enabled_from_env()
        self.held = self.may_be_held = self._quiet = False
        self._named = (
            backend.matrix_unit,
            backend.scalar_unit,
            backend.vector_unit,
            backend.misc_unit,
            backend.sync_unit,
            backend.mover_unit,
            backend.config_unit,
            backend.packer_unit,
            *backend.unpacker_units,
        )
        self._gates = [(thread, thread.wait_gate) for thread in self._threads]
        frontend = [unit for thread in self._threads for unit in thread.getClocks()]
        # Wait gates look at deadlines of their threads, whatever the units do.
        self._costed = any(getattr(unit, "cost_model", None) is not None for unit in self.units)
        if self.units != [*self._named, *frontend]:
            raise NotImplementedError(f"a coprocessor of other units: {self.units}")

    def _work_waits(self) -> bool:
        first, second, third = self._threads
        return bool(
            first.mop_instruction_fifo
            or second.mop_instruction_fifo
            or third.mop_instruction_fifo
            or self._mover.tdma_commands
        )

    def _instructions_wait(self) -> bool:
        """Return whether there are instructions before the gates."""
        return any(thread.mop_instruction_fifo or thread.replay_instruction_fifo for thread in self._threads)

    def _is_held(self) -> bool:
        """Return whether, of the gates alone, some hold their threads back and none lets an instruction pass."""
        waiting = [
            gate
            for _, gate in self._gates
            if not gate.is_clock_idle() or gate.mutex_stall or gate.backend_enforced_stall
        ]
        return bool(waiting) and all(map(is_held, waiting))

    def clock_tick(self, cycle_num: int) -> None:
        if self.held:
            return
        if self._resting:
            if not self._work_waits():
                return
            self._resting = False
        if self._tick_busy(cycle_num) and self._may_rest and not self._work_waits():
            self._resting = all(unit.next_wake_cycle(cycle_num) is None for unit in self.units)

    def _tick_busy(self, cycle_num: int) -> bool:
        """Tick the units that have something to do; return whether that may have been none."""
        matrix, scalar, vector, misc, sync, mover, config, packer, unpacker0, unpacker1 = self._named
        none, quiet = True, self._quiet
        self._quiet = False
        if matrix.next_instruction or matrix.busy_until is not None or matrix._pipeline_exit != _OUT:
            none = False
            matrix.clock_tick(cycle_num)
        if scalar.next_instruction or scalar.stalled or scalar.busy_until is not None or scalar._pipeline_exit != _OUT:
            none = False
            scalar.clock_tick(cycle_num)
        if vector.next_instruction or vector._waiting or vector.busy_until is not None or vector._pipeline_exit != _OUT:
            none = False
            vector.clock_tick(cycle_num)
        if misc.next_instruction or misc.busy_until is not None or misc._pipeline_exit != _OUT:
            none = False
            misc.clock_tick(cycle_num)
        if sync.next_instruction or sync.blocked_mutex or sync.busy_until is not None or sync._pipeline_exit != _OUT:
            none = False
            sync.clock_tick(cycle_num)
        if (
            mover.next_instruction
            or mover.tdma_commands
            or mover.busy_until is not None
            or mover._pipeline_exit != _OUT
        ):
            none = False
            mover.clock_tick(cycle_num)
        if (
            config.next_instruction
            or config.prev_cycle_setc16_or_wrcfg
            or config.busy_until is not None
            or config._pipeline_exit != _OUT
        ):
            none = False
            config.clock_tick(cycle_num)
        if packer.next_instruction or packer.busy_until is not None or packer._pipeline_exit != _OUT:
            none = False
            packer.clock_tick(cycle_num)
        if (
            unpacker0.next_instruction
            or unpacker0.blocked
            or unpacker0._deferred_dvalid is not None
            or unpacker0.busy_until is not None
            or unpacker0._pipeline_exit != _OUT
        ):
            none = False
            unpacker0.clock_tick(cycle_num)
        if (
            unpacker1.next_instruction
            or unpacker1.blocked
            or unpacker1._deferred_dvalid is not None
            or unpacker1.busy_until is not None
            or unpacker1._pipeline_exit != _OUT
        ):
            none = False
            unpacker1.clock_tick(cycle_num)
        if none and not self._instructions_wait():
            if quiet and self._is_held():
                self.held = True
                return False
            self._quiet = self.may_be_held and not self._costed
        for thread, gate in self._gates:
            if thread.mop_instruction_fifo:
                none = False
                thread.mop_expander.clock_tick(cycle_num)
            if thread.replay_instruction_fifo:
                none = False
                thread.replay_expander.clock_tick(cycle_num)
            if (
                thread.wait_gate_instruction_fifo
                or gate.latchedWaitInstruction is not None
                or gate.latch_wait
                or gate.mutex_stall
                or gate.backend_enforced_stall
            ):
                none = False
                gate.clock_tick(cycle_num)
        return none

    def next_wake_cycle(self, cycle_num: int) -> int | None:
        if self.held or (self._resting and not self._work_waits()):
            return None
        following = cycle_num + 1
        if not self._costed and any(not gate.is_clock_idle() for _, gate in self._gates):
            return following
        soonest = None
        for unit in self.units:
            when = unit.next_wake_cycle(cycle_num)
            if when == following:
                return following
            if when is not None and (soonest is None or when < soonest):
                soonest = when
        return soonest
