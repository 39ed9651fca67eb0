# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the cost model knows of a RISC-V core, where compiled code has it too (interpreter.py: a row of numbers)."""

from __future__ import annotations

import numpy as np
from framework.pe.rv.cost import RV_REGION_COUNT, STALL_REASON_COUNT, RiscvCostState

from runtime_patches.simulated_n150.simulator.speed.burst import interpreter


def _number(index: int) -> property:
    def read(self):
        return self._row[index]

    def write(self, value):
        self._row[index] = value

    return property(read, write)


def _numbers(first: int, count: int) -> property:
    def read(self):
        return self._row[first : first + count]

    def write(self, values):
        for i, value in enumerate(values):
            self._row[first + i] = value

    return property(read, write)


class IssueCosts(RiscvCostState):
    """A core's state of the cost model, as `state` has it, in a row of numbers; NotImplementedError for a chip whose
    cores have a cache, a store queue, or products in flight, which Wormhole's have not."""

    _ready = _numbers(interpreter.READY, 32)
    _stall_until = _number(interpreter.STALL_UNTIL)
    _stall_reason = _number(interpreter.STALL_REASON)
    _store_ready = _number(interpreter.STORE_READY)
    stall_cycles = _number(interpreter.STALL_CYCLES)
    stall_by_reason = _numbers(interpreter.STALL_BY_REASON, STALL_REASON_COUNT)
    loads_by_region = _numbers(interpreter.LOADS_BY_REGION, RV_REGION_COUNT)
    l1_stores = _number(interpreter.L1_STORES)
    pending_stall = _number(interpreter.PENDING_STALL)

    def __init__(self, state: RiscvCostState) -> None:
        words = np.zeros(interpreter.COSTS, np.int64)
        self._row, self.address = memoryview(words), words.ctypes.data
        self._slots = words[interpreter.LOAD_SLOTS :][: interpreter.LOAD_SLOT_COUNT]
        super().__init__(state.model)
        if self.coalesced_stores or self._l0_enabled or self.multiply_latency is not None:
            raise NotImplementedError(f"costs of {self.model.arch}'s cores in compiled code")
        if state.model.load_slots != interpreter.LOAD_SLOT_COUNT:
            raise NotImplementedError(f"{state.model.load_slots} load slots in compiled code")
        for first, cycles in (
            (interpreter.LOAD_LATENCY, self.load_latency),
            (interpreter.SLOT_CYCLES, self.load_slot_cycles),
            (interpreter.STORE_PERIOD, [self.l1_store_period]),
            (interpreter.MULTIPLY, [self.multiply]),
            (interpreter.DIVIDE, [self.divide_general]),
            (interpreter.DIVIDE_TRIVIAL, [self.divide_trivial]),
            (interpreter.DIVIDE_LOWEST, [self.divide_int_min]),
        ):
            for i, value in enumerate(cycles):
                self._row[first + i] = value or 0
        self.spin_restore(state.spin_signature(0), 0)
        self.spin_add_counters(state.spin_counters())

    @property
    def _load_slots(self):
        return self._slots  # an array, as lists are written into it

    @_load_slots.setter
    def _load_slots(self, values):
        self._slots[:] = values

    def issue(self, word: int, cycle: int, words: memoryview) -> bool:
        """Do as can_issue, of a core with these registers."""
        return interpreter.may_issue(self.address, word, cycle, words[word >> 15 & 31], words[word >> 20 & 31])

    def can_issue(self, instr, cycle_num, register_file):
        a, b = (register_file[instr >> place & 31].read_uint() for place in (15, 20))
        return interpreter.may_issue(self.address, instr, cycle_num, a, b)
