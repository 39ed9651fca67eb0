# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The vector unit's instructions that stay within a lane.

Rules: the functional model on each instruction's page of tt-isa-documentation,
WormholeB0/TensixTile/TensixCoprocessor. Departures of the simulator that are patched here: SFPLZ was missing,
SFPMOV from configuration and from the random generator was missing, stochastic rounding did not use the
generator, SFPIADD with both CC_NONE and CC_GTE0 must invert the flags, LoadMacroConfig.Misc was not combined
with its old value, SFPADD took 1.0 for its first factor and SFPMUL 0 for its addend whatever registers they named
(tt-metal's float32 row sums name the 1.0 second). Everything else gives what the simulator gave, computed for all
lanes together.

Where a page and the simulator differ on what an encoding with a source register in the immediate of
SFPAND, SFPOR and SFPXOR does, the simulator is followed: it was checked against the vendor's own simulator.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.backends.vector import VectorUnit as V

from runtime_patches.simulated_n150.simulator.behaviour.vector.arithmetic import multiply_add
from runtime_patches.simulated_n150.simulator.behaviour.vector.state import LANES, VectorState

U32 = np.uint32
SIGN = U32(0x80000000)
MAGNITUDE = U32(0x7FFFFFFF)
FRACTION = U32(0x7FFFFF)
EXPONENT = U32(0x7F800000)
NEAREST = U32(0x400000)
SFPLZ_CC_NE0, SFPLZ_NO_SIGN, SFPLZ_CC_COMPLEMENT = 2, 4, 8


def exponent_of(values):
    return (values >> U32(23)) & U32(0xFF)


def signed_immediate(arguments) -> int:
    immediate = arguments["imm12_math"] & 0xFFF
    return immediate - 0x1000 if immediate & 0x800 else immediate


def second_source(arguments) -> int:
    """Return the register read as VB: the result register, unless SFPLOADMACRO scheduled the
    instruction with another."""
    return arguments.get("scheduled_vb", arguments["lreg_dest"])


def shifted(values, amounts):
    """Return values << (amount & 31), or >> (-amount & 31) where the signed amount is negative; logical."""
    amounts = amounts.view(np.int32) if isinstance(amounts, np.ndarray) else np.int32(amounts)
    left = values << (amounts & 31).astype(U32)
    right = values >> (-amounts & 31).astype(U32)
    return np.where(amounts >= 0, left, right)


def order_key(values):
    """Return signed keys that order sign-magnitude (or FP32) patterns: -NaN < -inf < ... < -0 < +0 < ... < +NaN."""
    return np.where(values & SIGN, ~(values & MAGNITUDE), values).astype(U32).view(np.int32)


class LanewiseInstructions(VectorState):
    """Moves, bit operations, integers, fields of floats, conversions and multiply-adds."""

    # -- moves and bits --------------------------------------------------------------------------------------

    def handle_sfpmov(self, instruction_info, issue_thread, instr_args):
        mode, target, source = instr_args["instr_mod1"], instr_args["lreg_dest"], instr_args["lreg_c"]
        lanes = None if mode & V.SFPMOV_MOD1_ALL_LANES_ENABLED else self.enabled()
        if mode & V.SFPMOV_MOD1_FROM_SPECIAL:
            values = self._special(source, lanes)
        else:
            values = self.registers[source]
            if mode & V.SFPMOV_MOD1_NEGATE:
                values = values ^ SIGN
        self.put(target, values, lanes)

    def _special(self, source, lanes):
        if source == 9:
            return self.advance_random(lanes)
        if source == 15:
            return np.array(self.laneConfig, dtype=np.uint64).astype(U32)
        values = np.zeros(LANES, dtype=U32)
        for lane, macro in enumerate(self.loadMacroConfig):
            if source < 4:
                values[lane] = macro.instructionTemplate[source]
            elif source < 8:
                values[lane] = macro.sequence[source - 4]
            elif source == 8:
                values[lane] = macro.storeMod0 | macro.usesLoadMod0ForStore << 4 | macro.unitDelayKind << 8
        return values

    def handle_sfpnot(self, instruction_info, issue_thread, instr_args):
        self.put(instr_args["lreg_dest"], ~self.registers[instr_args["lreg_c"]])

    def _bitwise(self, operation, arguments):
        target = arguments["lreg_dest"]
        first = arguments.get("scheduled_vb", arguments["imm12_math"] or target)
        self.put(target, operation(self.registers[first], self.registers[arguments["lreg_c"]]))

    def handle_sfpand(self, instruction_info, issue_thread, instr_args):
        self._bitwise(np.bitwise_and, instr_args)

    def handle_sfpor(self, instruction_info, issue_thread, instr_args):
        self._bitwise(np.bitwise_or, instr_args)

    def handle_sfpxor(self, instruction_info, issue_thread, instr_args):
        self._bitwise(np.bitwise_xor, instr_args)

    def handle_sfpshft(self, instruction_info, issue_thread, instr_args):
        target = instr_args["lreg_dest"]
        if instr_args["instr_mod1"] & V.SFPSHFT_MOD1_ARG_IMM:
            amounts = signed_immediate(instr_args)
        else:
            amounts = self.registers[instr_args["lreg_c"]]
        self.put(target, shifted(self.registers[second_source(instr_args)], amounts))

    def handle_sfplz(self, instruction_info, issue_thread, instr_args):
        mode, target = instr_args["instr_mod1"], instr_args["lreg_dest"]
        values = self.registers[instr_args["lreg_c"]]
        if mode & SFPLZ_NO_SIGN:
            values = values & MAGNITUDE
        non_zero = values != 0
        self.put(target, 32 - np.frexp(values.astype(np.float64))[1])
        if target < 8:
            flags = non_zero if mode & SFPLZ_CC_NE0 else self.flags.copy()
            if mode & SFPLZ_CC_COMPLEMENT:
                flags = ~flags
            if mode & (SFPLZ_CC_NE0 | SFPLZ_CC_COMPLEMENT):
                self.put_flags(flags)

    def handle_sfpabs(self, instruction_info, issue_thread, instr_args):
        values = self.registers[instr_args["lreg_c"]]
        if instr_args["instr_mod1"] & V.SFPABS_MOD1_FLOAT:
            result = np.where(values > U32(0xFF800000), values, values & MAGNITUDE)
        else:
            result = np.where(values & SIGN, U32(0) - values, values)
        self.put(instr_args["lreg_dest"], result)

    # -- integers --------------------------------------------------------------------------------------------

    def handle_sfpiadd(self, instruction_info, issue_thread, instr_args):
        mode, target = instr_args["instr_mod1"], instr_args["lreg_dest"]
        values = self.registers[instr_args["lreg_c"]]
        if mode & V.SFPIADD_MOD1_ARG_IMM:
            result = values + U32(signed_immediate(instr_args) & 0xFFFFFFFF)
        elif mode & V.SFPIADD_MOD1_ARG_2SCOMP_LREG_DST:
            result = values - self.registers[second_source(instr_args)]
        else:
            result = values + self.registers[second_source(instr_args)]
        lanes = self.enabled()
        if target < 8 and mode & (V.SFPIADD_MOD1_CC_NONE | V.SFPIADD_MOD1_CC_GTE0) != V.SFPIADD_MOD1_CC_NONE:
            flags = self.flags.copy() if mode & V.SFPIADD_MOD1_CC_NONE else (result & SIGN) != 0
            if mode & V.SFPIADD_MOD1_CC_GTE0:
                flags = ~flags
            self.put_flags(flags)
        self.put(target, result, lanes)

    # -- fields of floats ------------------------------------------------------------------------------------

    def handle_sfpsetsgn(self, instruction_info, issue_thread, instr_args):
        target = instr_args["lreg_dest"]
        if instr_args["instr_mod1"] & V.SFPSETSGN_MOD1_ARG_IMM:
            sign = U32((instr_args["imm12_math"] & 1) << 31)
        else:
            sign = self.registers[second_source(instr_args)] & SIGN
        self.put(target, (self.registers[instr_args["lreg_c"]] & MAGNITUDE) | sign)

    def handle_sfpsetexp(self, instruction_info, issue_thread, instr_args):
        mode, target = instr_args["instr_mod1"], instr_args["lreg_dest"]
        if mode & V.SFPSETEXP_MOD1_ARG_IMM:
            exponent = U32((instr_args["imm12_math"] & 0xFF) << 23)
        elif mode & V.SFPSETEXP_MOD1_ARG_EXPONENT:
            exponent = self.registers[second_source(instr_args)] & EXPONENT
        else:
            exponent = (self.registers[second_source(instr_args)] & U32(0xFF)) << U32(23)
        self.put(target, (self.registers[instr_args["lreg_c"]] & ~EXPONENT) | exponent)

    def handle_sfpsetman(self, instruction_info, issue_thread, instr_args):
        target = instr_args["lreg_dest"]
        if instr_args["instr_mod1"] & V.SFPSETMAN_MOD1_ARG_IMM:
            fraction = U32((instr_args["imm12_math"] & 0xFFF) << 11) & FRACTION
        else:
            fraction = self.registers[second_source(instr_args)] & FRACTION
        self.put(target, (self.registers[instr_args["lreg_c"]] & ~FRACTION) | fraction)

    def handle_sfpexexp(self, instruction_info, issue_thread, instr_args):
        mode, target = instr_args["instr_mod1"], instr_args["lreg_dest"]
        bias = 0 if mode & V.SFPEXEXP_MOD1_NODEBIAS else 127
        result = exponent_of(self.registers[instr_args["lreg_c"]]) - U32(bias)
        lanes = self.enabled()
        if target < 8 and mode & (V.SFPEXEXP_MOD1_SET_CC_SGN_EXP | V.SFPEXEXP_MOD1_SET_CC_COMP_EXP):
            flags = (result & SIGN) != 0 if mode & V.SFPEXEXP_MOD1_SET_CC_SGN_EXP else self.flags.copy()
            if mode & V.SFPEXEXP_MOD1_SET_CC_COMP_EXP:
                flags = ~flags
            self.put_flags(flags)
        self.put(target, result, lanes)

    def handle_sfpexman(self, instruction_info, issue_thread, instr_args):
        hidden = 0 if instr_args["instr_mod1"] & V.SFPEXMAN_MOD1_PAD9 else 1 << 23
        values = self.registers[instr_args["lreg_c"]]
        self.put(instr_args["lreg_dest"], (values & FRACTION) | U32(hidden))

    def handle_sfpdivp2(self, instruction_info, issue_thread, instr_args):
        values = self.registers[instr_args["lreg_c"]]
        immediate = U32(instr_args["imm12_math"] & 0xFF)
        if instr_args["instr_mod1"] & V.SFPDIVP2_MOD1_ADD:
            exponent = exponent_of(values)
            moved = np.where(exponent == 0xFF, exponent, (exponent + immediate) & U32(0xFF))
        else:
            moved = immediate
        self.put(instr_args["lreg_dest"], (values & ~EXPONENT) | (moved << U32(23)))

    # -- constants and arithmetic ----------------------------------------------------------------------------

    def handle_sfploadi(self, instruction_info, issue_thread, instr_args):
        mode, target, immediate = instr_args["instr_mod0"], instr_args["lreg_ind"], instr_args["imm16"]
        if target >= 8:
            return
        if mode == V.SFPLOADI_MOD0_FLOATB:
            values = immediate << 16
        elif mode == V.SFPLOADI_MOD0_FLOATA:
            values = self.FP16toFP32(immediate)
        elif mode == V.SFPLOADI_MOD0_USHORT:
            values = immediate
        elif mode == V.SFPLOADI_MOD0_SHORT:
            values = ((immediate ^ 0x8000) - 0x8000) & 0xFFFFFFFF
        elif mode == V.SFPLOADI_MOD0_UPPER:
            values = (self.registers[target] & U32(0xFFFF)) | U32(immediate << 16)
        elif mode == V.SFPLOADI_MOD0_LOWER:
            values = (self.registers[target] & U32(0xFFFF0000)) | U32(immediate)
        else:
            raise ValueError(f"SFPLOADI with undefined mode {mode}")
        self.put(target, U32(values))

    def perform_mad(self, va, vb, vc, vd, mod1):
        """Execute SFPMAD and its special cases; va or vd may come from the low bits of register 7, lane by lane."""
        registers = self.registers
        factor = registers[va]
        if mod1 & V.SFPMAD_MOD1_INDIRECT_VA:
            factor = registers[registers[7] & U32(15), np.arange(LANES)]
        self._multiply_add_into(vd, factor, registers[vb], registers[vc], mod1)

    handle_add = handle_mul = V.handle_mad

    def _multiply_add_into(self, target, a, b, c, mode):
        if target >= 12 and target != 16 and not self.any_option(V.DISABLE_BACKDOOR_LOAD):
            return
        result = np.empty(LANES, dtype=U32)
        multiply_add(a, b, c, result)
        if mode & V.SFPMAD_MOD1_INDIRECT_VD and target != 16:
            self._put_indirect(result)
        else:
            self.put(target, result)

    def _put_indirect(self, values):
        targets = (self.registers[7] & U32(15)).copy()
        enabled = self.enabled()
        for lane in range(LANES):
            if targets[lane] < 8 and (enabled is None or enabled[lane]):
                self.registers[targets[lane], lane] = values[lane]

    def _immediate_lanes(self, arguments):
        return np.full(LANES, arguments["imm16_math"] << 16, dtype=U32)

    def handle_addi(self, instruction_info, issue_thread, instr_args):
        target = instr_args["lreg_dest"]
        addend = self.registers[instr_args.get("scheduled_vc", target)]
        immediate = self._immediate_lanes(instr_args)
        self._multiply_add_into(target, immediate, self.registers[10], addend, instr_args["instr_mod1"])

    def handle_muli(self, instruction_info, issue_thread, instr_args):
        target = instr_args["lreg_dest"]
        factor = self.registers[instr_args.get("scheduled_vc", target)]
        immediate = self._immediate_lanes(instr_args)
        self._multiply_add_into(target, immediate, factor, self.registers[9], instr_args["instr_mod1"])
