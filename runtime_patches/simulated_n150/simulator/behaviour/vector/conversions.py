# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The vector unit's conversions, roundings and table look-ups.

Rules: SFPCAST.md, SFPSTOCHRND_FloatFloat.md, SFPSTOCHRND_FloatInt.md, SFPSTOCHRND_IntInt.md, SFPLUT.md and
SFPLUTFP32.md of tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor. Stochastic rounding draws from
the documented generator (the simulator rounded to nearest instead); the rest is as it was.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.backends.vector import VectorUnit as V

from runtime_patches.simulated_n150.simulator.behaviour.vector.arithmetic import multiply_add
from runtime_patches.simulated_n150.simulator.behaviour.vector.lanewise import (
    EXPONENT,
    FRACTION,
    MAGNITUDE,
    NEAREST,
    SIGN,
    U32,
    LanewiseInstructions,
    exponent_of,
)
from runtime_patches.simulated_n150.simulator.behaviour.vector.state import LANES

_LARGEST = {2: 255, 3: 127, 6: 65535, 7: 32767}
_SIGNED = (3, 7)


def _eighth_table_entry(entries):
    """Return SFPLUT's 8-bit entries (sign, exponent below 127, 4 fraction bits; all ones is zero) as FP32."""
    value = (
        (entries >> U32(7)) << U32(31)
        | (U32(127) - ((entries >> U32(4)) & U32(7))) << U32(23)
        | (entries & U32(15)) << U32(19)
    )
    return np.where(entries == 0xFF, U32(0), value)


def _half_table_entry(entries):
    """Return SFPLUTFP32's 16-bit entries as FP32; the largest exponent means zero."""
    exponent = (entries >> U32(10)) & U32(31)
    rebased = np.where(exponent == 31, U32(0), exponent + U32(112))
    return (entries >> U32(15)) << U32(31) | rebased << U32(23) | (entries & U32(0x3FF)) << U32(13)


class ConvertingInstructions(LanewiseInstructions):
    """SFPCAST, SFPSTOCHRND, SFPLUT, SFPLUTFP32."""

    def handle_sfpcast(self, instruction_info, issue_thread, instr_args):
        target = instr_args["lreg_dest"]
        values = self.registers[instr_args["lreg_src_c"] & 15]
        magnitude = (values & MAGNITUDE).astype(np.int64)
        length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
        leading = np.where(magnitude == 0, 157, 32 - length)
        normal = (magnitude << (leading & 31)) & 0xFFFFFFFF
        result = (values & SIGN).astype(np.int64) + ((157 - leading) << 23) + (normal >> 8)
        if instr_args["instr_mod1"] & 1:
            drawn = (self.advance_random(self.enabled()) >> U32(9)) & U32(0xFE)
            result += (normal & 0xFE) > drawn
        else:
            result += ((normal & 0x80) != 0) & ((normal & 0x17F) != 0)
        self.put(target, (result & 0xFFFFFFFF).astype(U32))

    def handle_sfp_stoch_rnd(self, instruction_info, issue_thread, instr_args):
        mode = instr_args["instr_mod1"]
        target = instr_args["lreg_dest"]
        if target >= 12 and target != 16 and not self.any_option(V.DISABLE_BACKDOOR_LOAD):
            return
        values = self.registers[instr_args["lreg_src_c"]]
        threshold = np.full(LANES, NEAREST)
        if instruction_info["raw_instruction"] >> 21 & 1:
            threshold = self.advance_random(self.enabled()) & FRACTION
        kind = mode & 7
        if kind in (V.SFP_STOCH_RND_FP32_TO_FP16A, V.SFP_STOCH_RND_FP32_TO_FP16B):
            result = self._round_float(values, 13 if kind == V.SFP_STOCH_RND_FP32_TO_FP16A else 16, threshold)
        elif kind in _LARGEST:
            result = self._round_to_integer(values, kind, threshold)
        else:
            if mode & 8:
                distance = U32(instr_args["imm8_math"] & 31)
            else:
                distance = self.registers[instr_args["lreg_src_b"]] & U32(31)
            result = self._round_shifted(values, distance, kind == V.SFP_STOCH_RND_INT32_TO_INT8, threshold)
        self.put(target, result)

    @staticmethod
    def _round_float(values, dropped_bits, threshold):
        mask = U32((1 << dropped_bits) - 1)
        dropped = values & mask
        kept = values - dropped
        # A fraction of all ones carries into the exponent, which is the rounding wanted.
        rounded = np.where((dropped << U32(23 - dropped_bits)) >= threshold, kept + mask + U32(1), kept)
        exponent = values & EXPONENT
        rounded = np.where(exponent == EXPONENT, values & U32(0xFF800000), rounded)
        return np.where(exponent == 0, U32(0), rounded)

    @staticmethod
    def _round_to_integer(values, kind, threshold):
        largest = _LARGEST[kind]
        exponent = exponent_of(values).astype(np.int64) - 127
        significand = ((values & FRACTION) | U32(0x800000)).astype(np.int64)
        in_range = np.clip(exponent, -1, 15)
        scaled = np.where(in_range >= 0, significand << np.maximum(in_range, 0), significand >> 1)
        rounded = (scaled >> 23) + ((scaled & 0x7FFFFF) >= threshold.astype(np.int64))
        magnitude = np.minimum(rounded, largest)
        magnitude = np.where(exponent < -1, 0, np.where(exponent >= 16, largest, magnitude)).astype(U32)
        if kind not in _SIGNED:
            return magnitude
        return np.where(magnitude == 0, U32(0), magnitude | (values & SIGN))

    @staticmethod
    def _round_shifted(values, distance, signed, threshold):
        scaled = ((values & MAGNITUDE).astype(np.int64) << 23) >> np.asarray(distance).astype(np.int64)
        rounded = (scaled >> 23) + ((scaled & 0x7FFFFF) >= threshold.astype(np.int64))
        magnitude = np.minimum(rounded, 127 if signed else 255).astype(U32)
        if not signed:
            return magnitude
        return np.where(magnitude == 0, U32(0), magnitude | (values & SIGN))

    def _table_result(self, target, a, b, c, argument, keeps_sign, indirect):
        result = np.empty(LANES, dtype=U32)
        multiply_add(a, b, c, result)
        if keeps_sign:
            result = (result & MAGNITUDE) | (argument & SIGN)
        if indirect and target != 16:
            self._put_indirect(result)
        else:
            self.put(target, result)

    def handle_sfplut(self, instruction_info, issue_thread, instr_args):
        mode, target = instr_args["instr_mod0"], instr_args["lreg_ind"]
        if mode & 3:
            raise ValueError(f"SFPLUT with reserved mode bits {mode}")
        if target >= 12 and not self.any_option(V.DISABLE_BACKDOOR_LOAD):
            return
        registers = self.registers
        argument = registers[3].copy()
        size = argument & MAGNITUDE
        entries = np.where(
            size < V.SFPLUT_RANGE_1_0,
            registers[0],
            np.where(size < V.SFPLUT_RANGE_2_0, registers[1], registers[2]),
        )
        a = _eighth_table_entry((entries >> U32(8)) & U32(0xFF))
        c = _eighth_table_entry(entries & U32(0xFF))
        keeps_sign, indirect = mode & V.SFPLUT_MOD0_SGN_RETAIN, mode & V.SFPLUT_MOD0_INDIRECT_VD
        self._table_result(target, a, size, c, argument, keeps_sign, indirect)

    def handle_sfplutfp32(self, instruction_info, issue_thread, instr_args):
        mode, target = instr_args["instr_mod1"], instr_args["lreg_dest"] & 15
        if target >= 12 and not self.any_option(V.DISABLE_BACKDOOR_LOAD):
            return
        registers = self.registers
        argument = registers[3].copy()
        size = argument & MAGNITUDE
        piece = (size >= V.SFPLUT_RANGE_1_0).astype(np.int64) + (size >= V.SFPLUT_RANGE_2_0)
        lanes = np.arange(LANES)
        if not mode & V.SFPLUTFP32_MOD1_FP16_6ENTRY_TABLE1:
            a, c = registers[piece, lanes], registers[4 + piece, lanes]
        elif mode & V.SFPLUTFP32_MOD1_FP16_3ENTRY_TABLE == V.SFPLUTFP32_MOD1_FP16_3ENTRY_TABLE:
            entry = registers[piece, lanes]
            a, c = _half_table_entry(entry >> U32(16)), _half_table_entry(entry & U32(0xFFFF))
        else:
            second_table = mode & V.SFPLUTFP32_MOD1_FP16_6ENTRY_TABLE2 == V.SFPLUTFP32_MOD1_FP16_6ENTRY_TABLE2
            last_cut = V.SFPLUT_RANGE_4_0 if second_table else V.SFPLUT_RANGE_3_0
            cuts = np.array([V.SFPLUT_RANGE_0_5, V.SFPLUT_RANGE_1_5, last_cut], dtype=U32)
            half = np.where(size >= cuts[piece], U32(16), U32(0))
            a = _half_table_entry((registers[piece, lanes] >> half) & U32(0xFFFF))
            c = _half_table_entry((registers[4 + piece, lanes] >> half) & U32(0xFFFF))
        keeps_sign, indirect = mode & V.SFPLUTFP32_MOD1_SGN_RETAIN, mode & V.SFPLUTFP32_MOD1_INDIRECT_VD
        self._table_result(target, a, size, c, argument, keeps_sign, indirect)
