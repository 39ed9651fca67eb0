# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The vector unit's conditional execution and configuration.

Rules: SFPENCC.md, SFPSETCC.md, SFPPUSHC.md, SFPPOPC.md, SFPCOMPC.md and SFPCONFIG.md of tt-isa-documentation,
WormholeB0/TensixTile/TensixCoprocessor. Patched: LoadMacroConfig.Misc combined with its old value; LReg 12's
default is 1/65536; an instruction whose result register is 12 or above, with the backdoor open, is stored as
the template of a scheduled instruction instead of being executed.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.backends.vector import VectorUnit as V

from runtime_patches.simulated_n150.simulator.behaviour.vector.crosslane import CrossLaneInstructions
from runtime_patches.simulated_n150.simulator.behaviour.vector.lanewise import SIGN, U32
from runtime_patches.simulated_n150.simulator.behaviour.vector.state import LANES

_COMBINE = {
    1: lambda a, b: b,
    2: lambda a, b: ~b,
    3: lambda a, b: a & b,
    4: lambda a, b: a | b,
    5: lambda a, b: a & ~b,
    6: lambda a, b: a | ~b,
    7: lambda a, b: ~a & b,
    8: lambda a, b: ~a | b,
    9: lambda a, b: ~a & ~b,
    10: lambda a, b: ~a | ~b,
    11: lambda a, b: a != b,
    12: lambda a, b: a == b,
}
_DEEPEST = 8
_DEFAULT_CONSTANT = {11: -1.0, 12: 1 / 65536.0, 13: -0.67487759, 14: -0.34484843}
# Instructions with a result register in bits 7:4 that the backdoor can store as a template.
_STORABLE = frozenset(
    "SFPABS SFPAND SFPCAST SFPCOMPC SFPDIVP2 SFPENCC SFPEXEXP SFPEXMAN SFPIADD SFPLZ SFPMOV SFPNOT SFPOR SFPPOPC "
    "SFPPUSHC SFPSETCC SFPSETEXP SFPSETMAN SFPSETSGN SFPSHFT SFPSWAP SFPTRANSP SFPXOR SFPADD SFPADDI SFPMAD "
    "SFPMUL SFPMULI SFPSHFT2 SFP_STOCH_RND SFPLUTFP32".split()
)


class ControlInstructions(CrossLaneInstructions):
    """Flags, the flag stack, SFPCONFIG and the backdoor."""

    def store_template(self, instruction_info) -> bool:
        """Store the instruction as a template if it is addressed to the backdoor; return whether it was."""
        if instruction_info["name"] not in _STORABLE:
            return False
        register = instruction_info["raw_instruction"] >> 4 & 15
        if register < 12 or self.any_option(V.DISABLE_BACKDOOR_LOAD):
            return False
        for macro in self.loadMacroConfig:
            macro.instructionTemplate[register - 12] = instruction_info["raw_instruction"]
        return True

    def handle_sfpencc(self, instruction_info, issue_thread, instr_args):
        mode, immediate = instr_args["instr_mod1"], instr_args["imm12_math"]
        if mode & V.SFPENCC_MOD1_EI:
            self.use_flags[:] = bool(immediate & V.SFPENCC_IMM2_E)
        elif mode & V.SFPENCC_MOD1_EC:
            np.logical_not(self.use_flags, out=self.use_flags)
        self.flags[:] = bool(immediate & V.SFPENCC_IMM2_R) if mode & V.SFPENCC_MOD1_RI else True
        self.flags_changed()

    def handle_sfpsetcc(self, instruction_info, issue_thread, instr_args):
        mode = instr_args["instr_mod1"]
        if mode & V.SFPSETCC_MOD1_CLEAR:
            flags = np.zeros(LANES, dtype=bool)
        elif mode & V.SFPSETCC_MOD1_IMM_BIT0:
            flags = np.full(LANES, bool(instr_args["imm12_math"] & 1))
        else:
            values = self.registers[instr_args["lreg_c"]]
            if mode & V.SFPSETCC_MOD1_LREG_NE0:
                flags = values != 0
            else:
                flags = (values & SIGN) != 0
            if mode & V.SFPSETCC_MOD1_LREG_GTE0:
                flags = ~flags
        self.put_flags(flags & self.use_flags)

    def handle_sfppushc(self, instruction_info, issue_thread, instr_args):
        if len(self.flagStack) >= _DEEPEST:
            raise ValueError("SFPPUSHC on a full flag stack")
        self.flagStack.append((self.flags.copy(), self.use_flags.copy()))

    def handle_sfppopc(self, instruction_info, issue_thread, instr_args):
        mode = instr_args["instr_mod1"]
        if self.flagStack:
            flags, use_flags = self.flagStack[-1]
        else:
            flags, use_flags = np.zeros(LANES, dtype=bool), np.zeros(LANES, dtype=bool)
        if mode == 0:
            if not self.flagStack:
                raise ValueError("SFPPOPC on an empty flag stack")
            self.flagStack.pop()
            self.flags, self.use_flags = flags.copy(), use_flags.copy()
        else:
            if len(self.flagStack) == _DEEPEST:
                self.flagStack[0] = (flags, use_flags)
            if mode <= 12:
                self.flags, self.use_flags = _COMBINE[mode](self.flags, flags), use_flags.copy()
            elif mode == 13:
                self.flags = ~self.flags
            else:
                self.flags, self.use_flags = np.full(LANES, mode == 14), np.ones(LANES, dtype=bool)
        self.flags_changed()

    def handle_sfpcompc(self, instruction_info, issue_thread, instr_args):
        outer_flags, outer_use = True, True
        if self.flagStack:
            outer_flags, outer_use = self.flagStack[-1]
        self.flags = ~self.flags & outer_flags & outer_use & self.use_flags
        self.flags_changed()

    def handle_sfpconfig(self, instruction_info, issue_thread, instr_args):
        mode, target = instr_args["instr_mod1"], instr_args["config_dest"]
        immediate = instr_args["imm16_math"]
        is_value = mode & V.MOD1_IMM16_IS_VALUE
        for lane in range(LANES):
            column = lane & 7
            if mode & V.MOD1_IMM16_IS_LANE_MASK and not immediate >> (column * 2) & 1:
                continue
            if self.use_flags[column] and not self.flags[column]:
                continue
            value = immediate if is_value else int(self.registers[0, column])
            self._configure(lane, target, value, mode)
        if target == 15:
            self.configuration_changed()

    def _configure(self, lane, target, value, mode):
        macro = self.loadMacroConfig[lane]
        is_value = mode & V.MOD1_IMM16_IS_VALUE
        if target < 4:
            macro.instructionTemplate[target] = int(self.registers[0, lane & 7])
        elif target < 8:
            macro.sequence[target - 4] = value
        elif target == 8:
            old = macro.storeMod0 | macro.usesLoadMod0ForStore << 4 | macro.unitDelayKind << 8
            macro.misc(self._combined(old, value, mode) & 0xFFF)
        elif 11 <= target <= 14:
            constant = _DEFAULT_CONSTANT[target] if is_value else None
            self.registers[target, lane] = np.float32(constant).view(U32) if is_value else self.registers[0, lane & 7]
        elif target == 15:
            original = self.laneConfig[lane]
            new = self._combined(original, value, mode)
            self.laneConfig[lane] = new | (original & ~0xFFFF) if is_value else new

    @staticmethod
    def _combined(old, value, mode):
        return {
            0: value,
            V.MOD1_BITWISE_OR: old | value,
            V.MOD1_BITWISE_AND: old & value,
            V.MOD1_BITWISE_XOR: old ^ value,
        }[mode & 6]
