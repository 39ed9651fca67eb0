# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The vector unit's loads from and stores to Dst.

Rules: SFPLOAD.md and SFPSTORE.md of tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor. Patched:
the loads INT16, UINT16, LO16, HI16 and INT32_SM failed or read nothing; the stores INT8_COMP failed and
obeyed the load's block and exchange options; MOD0_FMT_SRCB did not count BFP8, BFP4, BFP2 and INT16 of the
8-bit-exponent family as bfloat16; addresses wrap at 1024 rows.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.backends.vector import VectorUnit as V
from framework.pe.tensix.util import DataFormatConversions as Convert

from runtime_patches.simulated_n150.simulator.behaviour.vector.control import ControlInstructions
from runtime_patches.simulated_n150.simulator.behaviour.vector.lanewise import MAGNITUDE, SIGN, U32
from runtime_patches.simulated_n150.simulator.behaviour.vector.state import LANES

_ROW_OF_LANE = np.arange(LANES) // 8
_COLUMN_OF_LANE = (np.arange(LANES) & 7) * 2
_WIDE = frozenset(
    (
        V.MOD0_FMT_FP32,
        V.MOD0_FMT_INT32,
        V.MOD0_FMT_INT32_ALL,
        V.MOD0_FMT_INT32_SM,
        V.MOD0_FMT_LO16,
        V.MOD0_FMT_HI16,
    )
)
_WIDE_LOADS = _WIDE - {V.MOD0_FMT_LO16, V.MOD0_FMT_HI16}
# Formats of SrcB (ISA names FP32 TF32 BF16 BFP8 BFP4 BFP2 INT32 INT16) that make SRCB mean bfloat16.
_BFLOAT16_FAMILY = frozenset((0, 4, 5, 6, 7, 15, 8, 9))


def _negated_where_signed(values):
    """Convert between sign-magnitude and two's complement, magnitudes kept to 31 bits."""
    return np.where(values & SIGN, U32(0) - (values & MAGNITUDE), values)


def _sign_and_magnitude(values, bits, first):
    sign = (values >> U32(15)) << U32(31)
    return sign | ((values >> U32(first)) & U32((1 << bits) - 1))


class MemoryInstructions(ControlInstructions):
    """SFPLOAD, SFPSTORE."""

    def resolve_format(self, issue_thread, mode):
        """Replace MOD0_FMT_SRCB by the format it stands for."""
        if mode != V.MOD0_FMT_SRCB:
            return mode
        state = self.backend.getThreadConfigValue(issue_thread, "CFG_STATE_ID_StateID")
        if self.getConfigValue(state, "ALU_ACC_CTRL_SFPU_Fp32_enabled"):
            return V.MOD0_FMT_FP32
        overridden = self.getConfigValue(state, "ALU_FORMAT_SPEC_REG_SrcB_override")
        key = "ALU_FORMAT_SPEC_REG_SrcB_val" if overridden else "ALU_FORMAT_SPEC_REG1_SrcB"
        source_format = self.getConfigValue(state, key)
        return V.MOD0_FMT_BF16 if source_format in _BFLOAT16_FAMILY else V.MOD0_FMT_FP16

    def get_dst_address(self, issue_thread, mod0, imm10):
        mode = self.resolve_format(issue_thread, mod0)
        state = self.backend.getThreadConfigValue(issue_thread, "CFG_STATE_ID_StateID")
        counter = self.backend.getRWC(issue_thread).Dst + self.getConfigValue(state, "DEST_REGW_BASE_Base")
        if mode == V.MOD0_FMT_INT32_ALL:
            counter &= 3
        offset = self.backend.getThreadConfigValue(issue_thread, "DEST_TARGET_REG_CFG_MATH_Offset")
        return (imm10 + offset + counter) & 0x3FF, mode

    def _places(self, address, exchange):
        columns = _COLUMN_OF_LANE
        if address & 2:
            columns = columns + 1
        elif self.any_option(exchange):
            columns = columns + self.option(exchange)[np.arange(LANES) & 7].astype(np.int64)
        return ((address & ~3) + _ROW_OF_LANE) & 0x3FF, columns

    def _active(self, mode, block):
        """Return the lanes that take part: None for all."""
        active = None if mode == V.MOD0_FMT_INT32_ALL else self.enabled()
        if self.any_option(block):
            allowed = ~self.option(block).astype(bool)
            active = allowed if active is None else active & allowed
        return active

    def handle_sfpload(self, instruction_info, issue_thread, instr_args):
        immediate = self._read_dest_reg_addr(instr_args)
        mode, target = instr_args["instr_mod0"], instr_args["lreg_ind"]
        address, mode = self.get_dst_address(issue_thread, mode, immediate)
        if target < 8:
            self.load(target, address, mode)
        self.backend.getRWC(issue_thread).applyPartialAddrMod(issue_thread, instr_args["sfpu_addr_mode"])

    def load(self, target, address, mode):
        rows, columns = self._places(address, V.DEST_RD_COL_EXCHANGE)
        active = self._active(mode, V.BLOCK_SFPU_RD_FROM_DEST)
        self.put(target, self._loaded(target, rows, columns, mode), active)
        if target < 4 and self.any_option(V.ENABLE_DEST_INDEX):
            captures = (self.option(V.ENABLE_DEST_INDEX) & self.option(V.CAPTURE_DEFAULT_DEST_INDEX)).astype(bool)
            if active is not None:
                captures &= active
            self.put(target + 4, ((rows << 4) | columns).astype(U32), captures)

    def _loaded(self, target, rows, columns, mode):
        dst = self.getDst()
        if mode in _WIDE_LOADS:
            block = dst.adj32(rows)
            high, low = dst.dstBits[block, columns], dst.dstBits[block + 8, columns]
            raw = (high << U32(16)) | (low & U32(0xFFFF))
            raw = np.where(dst.dstRowValid[block], raw, U32(0))
            datum = Convert.FP32InDstToFP32(raw)
            return _negated_where_signed(datum) if mode == V.MOD0_FMT_INT32_SM else datum
        if mode == V.MOD0_FMT_ZERO:
            return U32(0)
        raw = dst.dstBits[dst.adj16(rows), columns]
        raw = np.where(dst.dstRowValid[dst.adj16(rows)], raw, U32(0)) & U32(0xFFFF)
        old = self.registers[target]
        if mode == V.MOD0_FMT_BF16:
            return Convert.BF16InDstToBF16(raw) << U32(16)
        if mode == V.MOD0_FMT_FP16:
            return self._half_precision(raw)
        if mode == V.MOD0_FMT_INT8:
            return _sign_and_magnitude(raw, 7, 5)
        if mode == V.MOD0_FMT_INT8_COMP:
            return _negated_where_signed(_sign_and_magnitude(raw, 10, 5))
        if mode == V.MOD0_FMT_LO16_ONLY:
            return (old & U32(0xFFFF0000)) | raw
        if mode == V.MOD0_FMT_HI16_ONLY:
            return (raw << U32(16)) | (old & U32(0xFFFF))
        if mode == V.MOD0_FMT_INT16:
            return _sign_and_magnitude(raw, 15, 0)
        if mode == V.MOD0_FMT_HI16:
            return raw << U32(16)
        return raw

    def _half_precision(self, raw):
        sign, fraction, exponent = raw >> U32(15), (raw >> U32(5)) & U32(0x3FF), raw & U32(31)
        rebased = np.where(exponent == 0, U32(0), exponent + U32(112))
        if self.any_option(V.ENABLE_FP16A_INF):
            infinite = (exponent == 31) & (fraction == 0x3FF) & self.option(V.ENABLE_FP16A_INF).astype(bool)
            rebased, fraction = np.where(infinite, U32(255), rebased), np.where(infinite, U32(0), fraction)
        return sign << U32(31) | rebased << U32(23) | fraction << U32(13)

    def handle_sfpstore(self, instruction_info, issue_thread, instr_args):
        immediate = self._read_dest_reg_addr(instr_args)
        mode, source = instr_args["instr_mod0"], instr_args["lreg_ind"]
        address, mode = self.get_dst_address(issue_thread, mode, immediate)
        if source < 12 or self.any_option(V.DISABLE_BACKDOOR_LOAD):
            self.store(source, address, mode)
        self.backend.getRWC(issue_thread).applyPartialAddrMod(issue_thread, instr_args["sfpu_addr_mode"])

    def store(self, source, address, mode):
        rows, columns = self._places(address, V.DEST_WR_COL_EXCHANGE)
        active = self._active(mode, V.BLOCK_DEST_WR_FROM_SFPU)
        values = self.registers[source]
        if active is not None:
            rows, columns, values = rows[active], columns[active], values[active]
            if not len(rows):
                return
        dst = self.getDst()
        if mode in _WIDE:
            block = dst.adj32(rows)
            wide = self._stored_wide(values, mode)
            dst.dstBits[block, columns] = wide >> U32(16)
            dst.dstBits[block + 8, columns] = wide & U32(0xFFFF)
            dst.dstRowValid[block] = True
        else:
            block = dst.adj16(rows)
            dst.dstBits[block, columns] = self._stored_narrow(values, mode)
            dst.dstRowValid[block] = True

    @staticmethod
    def _stored_wide(values, mode):
        if mode == V.MOD0_FMT_LO16:
            return (values << U32(16)) | (values >> U32(16))
        if mode == V.MOD0_FMT_HI16:
            return values
        if mode == V.MOD0_FMT_INT32_SM:
            values = (values & SIGN) | (_magnitude_of_two_complement(values) & MAGNITUDE)
        return Convert.FP32ToDstFormatFP32(values)

    @staticmethod
    def _stored_narrow(values, mode):
        if mode == V.MOD0_FMT_BF16:
            kept = np.where((values & U32(0x7F800000)) == 0, values & SIGN, values) >> U32(16)
            return Convert.BF16ToDstFormatBF16(kept)
        if mode == V.MOD0_FMT_FP16:
            return Convert.FP16ToDstFormatFP16(_to_half_precision(values))
        if mode in (V.MOD0_FMT_INT8, V.MOD0_FMT_INT8_COMP):
            if mode == V.MOD0_FMT_INT8_COMP:
                values = (values & SIGN) | (_magnitude_of_two_complement(values) & MAGNITUDE)
            half = (values >> U32(31)) << U32(15) | U32(16 << 10) | (values & U32(0x3FF))
            return Convert.FP16ToDstFormatFP16(half)
        if mode == V.MOD0_FMT_HI16_ONLY:
            return values >> U32(16)
        if mode == V.MOD0_FMT_INT16:
            return (values >> U32(31)) << U32(15) | (values & U32(0x7FFF))
        if mode == V.MOD0_FMT_ZERO:
            return U32(0)
        return values & U32(0xFFFF)


def _magnitude_of_two_complement(values):
    return np.where(values & SIGN, U32(0) - values, values)


def _to_half_precision(values):
    """Truncate FP32 patterns to the coprocessor's half precision: flushed below, largest value above."""
    exponent = ((values >> U32(23)) & U32(0xFF)).astype(np.int64) - 112
    fraction = (values & U32(0x7FFFFF)) >> U32(13)
    fraction = np.where(exponent <= 0, U32(0), np.where(exponent > 31, U32(0x3FF), fraction))
    clipped = np.clip(exponent, 0, 31).astype(U32)
    return (values >> U32(31)) << U32(15) | clipped << U32(10) | fraction
