# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""SFPLOADMACRO: a load that also schedules up to four instructions for later cycles.

Rule: SFPLOADMACRO.md of tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor, functional model. The
simulator refused the instruction. Instructions that run in one cycle read the registers as they were before
it. Not modelled: that a multiply-add's result appears one cycle later than other results; software that
follows the documented scheduling rules cannot see it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from framework.pe.tensix.backends.vector import VectorUnit as V
from framework.pe.tensix.util import TensixInstructionDecoder

from runtime_patches.simulated_n150.simulator.behaviour.vector.crosslane import SHIFT_REGISTER
from runtime_patches.simulated_n150.simulator.behaviour.vector.memory import MemoryInstructions

SIMPLE, MULTIPLY, ROUND, STORE = range(4)
_EXECUTES = (
    frozenset(
        "SFPABS SFPAND SFPCAST SFPCOMPC SFPCONFIG SFPDIVP2 SFPENCC SFPEXEXP SFPEXMAN SFPIADD SFPLZ SFPMOV SFPNOP "
        "SFPNOT SFPOR SFPPOPC SFPPUSHC SFPSETCC SFPSETEXP SFPSETMAN SFPSETSGN SFPSHFT SFPSWAP SFPTRANSP "
        "SFPXOR".split()
    ),
    frozenset("SFPADD SFPADDI SFPLUT SFPLUTFP32 SFPMAD SFPMUL SFPMULI SFPNOP".split()),
    frozenset("SFPNOP SFPSHFT2 SFP_STOCH_RND".split()),
    frozenset(("SFPSTORE",)),
)
# SFPNOP occupies no sub-unit when it is an ordinary instruction.
SUB_UNIT = {name: unit for unit, names in enumerate(_EXECUTES) for name in names if name != "SFPNOP"}
_VC_FIELDS = ("lreg_c", "lreg_src_c")


@dataclass
class Scheduled:
    """An instruction that waits in a sub-unit. A store has its address instead of an instruction."""

    unit: int
    delay: int
    counts_instructions: bool
    thread: int
    info: dict | None = None
    arguments: dict | None = None
    store: tuple[int, int, int] | None = None


class MacroInstructions(MemoryInstructions):
    """SFPLOADMACRO, and the dispatch of every vector instruction."""

    def __init__(self, backend):
        super().__init__(backend)
        self._waiting: list[Scheduled] = []
        self._handlers = {**V.OPCODE_TO_HANDLER, "SFPLZ": "handle_sfplz"}
        self.opcode_to_method_map = dict.fromkeys(self._handlers, "dispatch")
        self._taken_units: frozenset[int] = frozenset()

    def dispatch(self, instruction_info, issue_thread, instr_args):
        """Execute one instruction, unless the backdoor stores it or a scheduled one has its sub-unit."""
        if self.store_template(instruction_info):
            return
        name = instruction_info["name"]
        if self._taken_units and SUB_UNIT.get(name) in self._taken_units:
            return
        getattr(self, self._handlers[name])(instruction_info, issue_thread, instr_args)

    # -- scheduling ------------------------------------------------------------------------------------------

    def handle_sfploadmacro(self, instruction_info, issue_thread, instr_args):
        word = instruction_info["raw_instruction"]
        macro_index, low = word >> 22 & 3, word >> 20 & 3
        high = word & 1
        target = high << 2 | low
        load_mode = word >> 16 & 15
        address, mode = self.get_dst_address(issue_thread, load_mode, word & 0x3FF)
        self.load(target, address, mode)
        self.backend.getRWC(issue_thread).applyPartialAddrMod(issue_thread, word >> 14 & 3)

        configuration = self.loadMacroConfig[0]
        sequence = configuration.sequence[macro_index]
        for unit in (SIMPLE, MULTIPLY, ROUND, STORE):
            bits = sequence >> (8 * unit) & 0xFF
            delay = bits >> 3 & 7
            if delay != 7:
                self._waiting = [held for held in self._waiting if (held.unit, held.delay) != (unit, delay)]
            if bits & 7 == 0:
                continue
            counts_instructions = bool(configuration.unitDelayKind >> unit & 1)
            scheduled = Scheduled(unit, delay, counts_instructions, issue_thread)
            if unit == STORE:
                own_mode = configuration.usesLoadMod0ForStore >> macro_index & 1
                store_mode = load_mode if own_mode else configuration.storeMod0
                scheduled.store = (self._store_source(bits, target, configuration), address, store_mode)
            else:
                scheduled.info, scheduled.arguments = self._instruction(bits, unit, target, configuration)
            self._waiting.append(scheduled)

    @staticmethod
    def _template(bits, configuration):
        """Return the decoded template that the sequence names, or None for the built-in SFPNOP (2) and SFPSTORE (3)."""
        choice = bits & 7
        if choice == 1:
            raise ValueError("SFPLOADMACRO schedules the undefined template 1")
        if choice < 4:
            return None
        return TensixInstructionDecoder.getInstructionInfo(configuration.instructionTemplate[choice - 4])

    def _store_source(self, bits, target, configuration):
        if bits & 0x40:
            return 16
        if not bits & 0x80:
            return target
        template = self._template(bits, configuration)
        return 0 if template is None else template["raw_instruction"] >> 20 & 15

    def _instruction(self, bits, unit, target, configuration):
        info = self._template(bits, configuration)
        if info is None or info["name"] not in _EXECUTES[unit] or info["name"] == "SFPNOP":
            return None, None
        arguments = dict(info["instr_args"])
        result = "lreg_ind" if info["name"] == "SFPLUT" else "lreg_dest"
        own_result = arguments[result] & 15
        vc_field = next((field for field in _VC_FIELDS if field in arguments), None)
        if bits & 0x80:
            arguments["scheduled_vb"] = target
            if "lreg_src_b" in arguments:
                arguments["lreg_src_b"] = target
            if vc_field is None:
                arguments["scheduled_vc"] = own_result
        else:
            if vc_field is None:
                arguments["scheduled_vc"] = target
            else:
                arguments[vc_field] = target
            if "lreg_src_b" not in arguments and info["name"] != "SFPSHFT2":
                arguments["scheduled_vb"] = own_result
        if info["name"] == "SFPSHFT2" and bits & 0x80 and arguments["instr_mod1"] == SHIFT_REGISTER:
            arguments["imm12_math"] = target
        arguments[result] = 16 if bits & 0x40 else target
        return info, arguments

    # -- time ------------------------------------------------------------------------------------------------

    def is_clock_idle(self):
        return not self._waiting and super().is_clock_idle()

    def hasInflightInstructionsFromThread(self, from_thread):  # the simulator's name
        return any(held.thread == from_thread for held in self._waiting) or super().hasInflightInstructionsFromThread(
            from_thread
        )

    def clock_tick(self, cycle_num):
        if not self._waiting:
            super().clock_tick(cycle_num)
            return
        due = [held for held in self._waiting if held.delay == 0]
        waiting = [held for held in self._waiting if held.delay > 0]
        if self.next_instruction or not any(held.counts_instructions for held in self._waiting):
            for held in waiting:
                held.delay -= 1
        self._waiting = waiting
        self._taken_units = frozenset(held.unit for held in due)
        # Everything in this cycle sees the registers and flags as they were before it.
        before = (self.registers.copy(), self.flags.copy(), self.use_flags.copy())
        after = tuple(array.copy() for array in before)
        try:
            for held in due:
                self._run(held)
                self._collect(before, after)
            super().clock_tick(cycle_num)
            self._collect(before, after)
        finally:
            self._taken_units = frozenset()
            self._restore(after)

    def _collect(self, before, after):
        """Move what the last instruction wrote into `after`, and give the next one the state of `before`."""
        for old, new, present in zip(before, after, (self.registers, self.flags, self.use_flags), strict=True):
            np.copyto(new, present, where=present != old)
        self._restore(before)

    def _restore(self, state):
        registers, flags, use_flags = state
        self.registers[:] = registers
        self.flags, self.use_flags = flags.copy(), use_flags.copy()
        self.flags_changed()

    def _run(self, held):
        if held.store is not None:
            source, address, mode = held.store
            self.store(source, address, self.resolve_format(held.thread, mode))
        elif held.info is not None:
            handler = self._handlers[held.info["name"]]
            getattr(self, handler)(held.info, held.thread, held.arguments)
