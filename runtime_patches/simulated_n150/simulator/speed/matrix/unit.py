# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The matrix unit with each instruction's rows handled together.

Every method computes what the installed one computes, for the usual case; all others (half precision, INT8, blocked
columns, rows past the end of a register, diagnostics) go the installed way.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from framework.pe.tensix.backends import matrix as installed
from framework.pe.tensix.util import DataFormatConversions as Convert
from framework.pe.tensix.util import TensixConfigurationConstants as Constants

from runtime_patches.simulated_n150.simulator.behaviour.operand_formats import BF16_BITS, TF32_BITS, own_formats
from runtime_patches.simulated_n150.simulator.configuration_words import words_of

_FP16_BITS = 0x7FF1F  # without the exponent's highest three
_BLOCKED = 3 << 9  # LaneConfig.BLOCK_DEST_MOV

# What is remembered of the configuration depends on nothing but the words that hold these fields.
_THREAD_FIELDS = (
    "CFG_STATE_ID_StateID", "DEST_TARGET_REG_CFG_MATH_Offset", "FIDELITY_BASE_Phase", "FP16A_FORCE_Enable",
)  # fmt: skip
_STATE_FIELDS = (
    "ALU_FORMAT_SPEC_REG_SrcA_val", "ALU_FORMAT_SPEC_REG_SrcA_override", "ALU_FORMAT_SPEC_REG_SrcB_val",
    "ALU_FORMAT_SPEC_REG_SrcB_override", "ALU_FORMAT_SPEC_REG0_SrcA", "ALU_FORMAT_SPEC_REG1_SrcB",
    "ALU_ACC_CTRL_Fp32_enabled", "ALU_ACC_CTRL_INT8_math_enabled", "ALU_ACC_CTRL_Zero_Flag_disabled_src",
    "DEST_REGW_BASE_Base",
)  # fmt: skip

# Compiled functions serve once this many instructions have been executed: making numba ready takes as long as that
# many take without it. They serve at once where something else has made it ready.
COMPILED_AFTER = 500
_executed = 0


class Setting(NamedTuple):
    """What the configuration says to an instruction of a thread."""

    kept: int  # bits of a SrcA datum that count; 0: not a format with an 8-bit exponent
    kept_b: int  # bits of a SrcB datum that count in a product or a sum
    wide: int  # Dst has 32 bits
    phase: int  # FIDELITY_BASE
    dst_base: int
    copied: int  # bits of a SrcB datum that MOVB2D copies
    half: bool  # MOVA2D and MOVB2D write half precision
    flush: bool  # they flush denormals
    tf32: bool  # SrcA's format


class MatrixUnit(installed.MatrixUnit):
    """The installed unit with faster handlers."""

    def __init__(self, backend):
        super().__init__(backend)
        if backend.blackhole:
            raise ValueError("the patched matrix unit is Wormhole's; the device is a Blackhole")
        Constants.use_blackhole(False)
        self._thread_words, self._state_words = words_of(_THREAD_FIELDS), words_of(_STATE_FIELDS)
        self._state_place = Constants.get_addr32("CFG_STATE_ID_StateID")
        self._settings: dict[tuple, Setting] = {}
        self._datapath = None
        self._own_formats = own_formats()

    def _setting(self, thread: int) -> Setting:
        unit = self.backend.config_unit
        words = unit.threadConfig[thread]
        key = self._thread_words(words), self._state_words(unit.config[words[self._state_place] & 1])
        found = self._settings.get(key)
        if found is None:
            found = self._settings[key] = self._read_setting(thread)
        return found

    def _read_setting(self, thread: int) -> Setting:
        formats = installed.DataFormat
        state = self.getThreadConfigValue(thread, "CFG_STATE_ID_StateID")
        style, wide = self.get_dataformat_and_useDst(thread, state)
        a, b = (
            self.getConfigValue(
                state,
                f"ALU_FORMAT_SPEC_REG_{source}_val"
                if self.getConfigValue(state, f"ALU_FORMAT_SPEC_REG_{source}_override")
                else f"ALU_FORMAT_SPEC_REG{number}_{source}",
            )
            for number, source in enumerate(("SrcA", "SrcB"))
        )
        wide_exponents = ("FP32", "TF32", "BF16", "BFP8", "BFP4", "BFP2", "INT32", "UINT16")
        kept = {formats.BF16: BF16_BITS, formats.TF32: TF32_BITS}.get(style, 0)
        return Setting(
            kept=kept,
            kept_b=(TF32_BITS if b == formats.TF32 else BF16_BITS) if self._own_formats else kept,
            wide=int(bool(wide)),
            phase=self.getThreadConfigValue(thread, "FIDELITY_BASE_Phase"),
            dst_base=self.getThreadConfigValue(thread, "DEST_TARGET_REG_CFG_MATH_Offset")
            + self.getConfigValue(state, "DEST_REGW_BASE_Base"),
            copied={formats.FP16: _FP16_BITS, formats.TF32: TF32_BITS}.get(b, BF16_BITS),
            half=bool(
                self.getThreadConfigValue(thread, "FP16A_FORCE_Enable")
                or a not in [formats[name] for name in wide_exponents]
            ),
            flush=not self.getConfigValue(state, "ALU_ACC_CTRL_Zero_Flag_disabled_src"),
            tf32=a == formats.TF32,
        )

    def _compiled(self):
        """Return the compiled functions, or None as long as too little was executed for numba to be worth its start."""
        global _executed
        if self._datapath is None:
            _executed += 1
            # numba imports that module with the first function it compiles or loads.
            if _executed <= COMPILED_AFTER and "numba.np.arrayobj" not in sys.modules:
                return None
            from runtime_patches.simulated_n150.simulator.speed.matrix import datapath

            self._datapath = datapath
        return self._datapath

    # -- products and sums -----------------------------------------------------------------------------------

    def perform_mvmul(self, issue_thread, dstRow, addrMod, broadcastSrcBRow, flipSrcA, flipSrcB, numRows, opcode=None):
        setting, backend = self._setting(issue_thread), self.backend
        counters = backend.rwc[issue_thread]
        row = counters.SrcA & 0x38
        datapath = self._datapath or self._compiled()
        if not setting.kept or row > 48 or datapath is None:
            super().perform_mvmul(issue_thread, dstRow, addrMod, broadcastSrcBRow, flipSrcA, flipSrcB, numRows, opcode)
            return
        count = numRows - 1 if broadcastSrcBRow else numRows
        dst = backend.dst
        datapath.multiply(
            backend.srcA[self.srcABank].data, backend.srcB[self.srcBBank].data, dst.dstBits, dst.dstRowValid,
            row, counters.SrcB & (0x3F if broadcastSrcBRow else 0x38), 0 if broadcastSrcBRow else 1,
            (dstRow + setting.dst_base + counters.Dst) & (0x400 - count), count,
            setting.kept, setting.kept_b, setting.wide, (counters.FidelityPhase + setting.phase) & 3,
        )  # fmt: skip
        if flipSrcA or flipSrcB:
            self.optionally_flip_src_banks(issue_thread, flipSrcA, flipSrcB, opcode)
        counters.applyAddrMod(issue_thread, addrMod)

    def _elementwise(self, thread: int, fields: dict, opcode: str) -> bool:
        """Execute ELWMUL, ELWADD or ELWSUB; return False, with nothing done, where the installed method has to."""
        setting, backend = self._setting(thread), self.backend
        datapath = self._datapath or self._compiled()
        if not setting.kept or datapath is None or backend.diags_settings.reportFPUCalculations():
            return False
        counters, dst, mode = backend.rwc[thread], backend.dst, fields["instr_mod19"]
        if opcode == "ELWMUL":
            operation, accumulate = (counters.FidelityPhase + setting.phase) & 3, 1
        else:
            operation = datapath.SUBTRACT if opcode == "ELWSUB" else datapath.ADD
            accumulate = fields["dest_accum_en"]
        datapath.elementwise(
            backend.srcA[self.srcABank].data, backend.srcB[self.srcBBank].data, dst.dstBits, dst.dstRowValid,
            counters.SrcA & 0x38, counters.SrcB & (0x3F if mode & 2 else 0x38), 0 if mode & 2 else 1,
            0 if mode & 1 else 1, (fields["dst"] + setting.dst_base + counters.Dst) & 0x3F8,
            setting.kept, setting.kept_b, setting.wide, operation, accumulate,
        )  # fmt: skip
        if released := fields["clear_dvalid"]:
            self.optionally_flip_src_banks(thread, released & 1, released & 2, opcode)
        counters.applyAddrMod(thread, fields["addr_mode"])
        return True

    def handle_elwmul(self, instruction_info, issue_thread, instr_args):
        if not self._elementwise(issue_thread, instr_args, "ELWMUL"):
            super().handle_elwmul(instruction_info, issue_thread, instr_args)

    def handle_elwadd(self, instruction_info, issue_thread, instr_args):
        if not self._elementwise(issue_thread, instr_args, "ELWADD"):
            super().handle_elwadd(instruction_info, issue_thread, instr_args)

    def handle_elwsub(self, instruction_info, issue_thread, instr_args):
        if not self._elementwise(issue_thread, instr_args, "ELWSUB"):
            super().handle_elwsub(instruction_info, issue_thread, instr_args)

    def handle_gmpool(self, instruction_info, issue_thread, instr_args):
        setting, backend = self._setting(issue_thread), self.backend
        if (
            not setting.kept
            or instr_args["instr_mod19"] != 1
            or instr_args["max_pool_index_en"]
            or backend.diags_settings.reportFPUCalculations()
        ):
            super().handle_gmpool(instruction_info, issue_thread, instr_args)
            return
        counters, dst, wide = backend.rwc[issue_thread], backend.dst, setting.wide
        row = counters.SrcA & 0x30
        datums = backend.srcA[self.srcABank].data[row : row + 16].astype(np.int64)
        scales = backend.srcB[self.srcBBank].data[counters.SrcB & 0x38].astype(np.int64) & 0xFF
        scales = scales[:, np.newaxis]
        # Sign, exponent (9 bits) and fraction (10 bits) in one number; so is minus infinity, all ones.
        exponents = datums & 0xFF
        patterns = (datums & 0x40000) << 1 | (exponents + scales) << 10 | datums >> 8 & setting.kept >> 8 & 0x3FF
        patterns[exponents == 0] = 0
        patterns[scales[:, 0] == 0] = 0xFFFFF

        place = (instr_args["dst"] + setting.dst_base + counters.Dst) & 0x3FC
        if wide:
            place = dst.adj32(place)
        if dst.dstRowValid[place]:
            high = dst.dstBits[place].astype(np.int64)
            low = dst.dstBits[place + 8].astype(np.int64) & 0xFFFF if wide else np.int64(0)
        else:
            high, low = np.full(16, 0xFFFF, dtype=np.int64), np.int64(0xFFFF if wide else 0)
        held = (high & 0x8000) << 4 | ((high & 0xFF) + 127) << 10 | (high & 0x7F00) >> 5 | low >> 13

        candidates = np.concatenate([held[np.newaxis], patterns])
        magnitudes = candidates & 0x7FFFF
        order = np.where(candidates >> 19, -magnitudes, magnitudes)
        best = candidates[order.argmax(axis=0), np.arange(16)]
        exponents, fractions = best >> 10 & 0x1FF, best & 0x3FF
        words = best >> 19 << 15 | (fractions & 0x3F8) << 5 | (exponents - 127) & 0xFF
        alive = exponents != 0
        dst.dstBits[place : place + 4] = 0
        dst.dstBits[place] = np.where(alive, words, 0)
        if wide:
            dst.dstBits[place + 8 : place + 12] = 0
            dst.dstBits[place + 8] = np.where(alive, (fractions & 7) << 13, 0)
        dst.dstRowValid[place : place + 4] = True
        if released := instr_args["clear_dvalid"]:
            self.optionally_flip_src_banks(issue_thread, released & 1, released & 2, "GMPOOL")
        counters.applyAddrMod(issue_thread, instr_args["addr_mode"])

    # -- clearing --------------------------------------------------------------------------------------------

    def handle_zeroacc(self, instruction_info, issue_thread, instr_args):
        mode, wide, where = instr_args["clear_mode"] & 3, instr_args["clear_mode"] >> 2 & 1, instr_args["dst"]
        if mode == 0:
            super().handle_zeroacc(instruction_info, issue_thread, instr_args)
            return
        words, valid = self.backend.dst.dstBits, self.backend.dst.dstRowValid
        if mode == 3:
            words[:] = 0
            valid[:] = False
        elif mode == 2:
            first = 512 if where & 1 else 0
            words[first : first + 512] = 0
            valid[first : first + 512] = False
        else:
            where &= 0xFF
            if wide and where < 32:
                # Both halves of 16 rows of 32 bits; the upper half's flag tells for both.
                words[32 * where : 32 * where + 32] = 0
                valid[32 * where : 32 * where + 8] = False
                valid[32 * where + 16 : 32 * where + 24] = False
            elif not wide and where < 64:
                words[16 * where : 16 * where + 16] = 0
                valid[16 * where : 16 * where + 16] = False
            self.backend.rwc[issue_thread].applyAddrMod(issue_thread, instr_args["AddrMode"] & 3)

    def handle_zerosrc(self, instruction_info, issue_thread, instr_args):
        backend, which = self.backend, instr_args["src_mask"]
        if backend.diags_settings.reportFPUCalculations() or (which & 1 and instr_args["zero_val"]):
            super().handle_zerosrc(instruction_info, issue_thread, instr_args)
            return
        for asked, registers, own, unpacker in (
            (which & 1, backend.srcA, self.srcABank, 0),
            (which & 2, backend.srcB, self.srcBBank, 1),
        ):
            if not asked:
                continue
            if instr_args["bank_mask"]:
                registers[0].data[:] = 0
                registers[1].data[:] = 0
            elif instr_args["write_mode"]:
                registers[own].data[:] = 0
            else:
                registers[backend.unpacker_units[unpacker].srcBank].data[:] = 0

    # -- copies ----------------------------------------------------------------------------------------------

    def _columns_are_blocked(self) -> bool:
        return any(value & _BLOCKED for value in self.backend.vector_unit.laneConfig[:8])

    def _copy_to_dst(self, setting: Setting, datums, target: int, rows: int, copied: int = TF32_BITS) -> None:
        """Copy Src datums, of which the bits `copied` count, as 16-bit words into rows of Dst."""
        if setting.flush:
            datums = np.where(datums & 0xFF, datums, 0)
        datums = datums & copied
        words = Convert.removeHighExponent(datums) if setting.half else Convert.removeLowMantissa(datums)
        dst = self.backend.dst
        dst.dstBits[target : target + rows] = words
        dst.dstRowValid[target : target + rows] = True

    def handle_mova2d(self, instruction_info, issue_thread, instr_args):
        setting, backend = self._setting(issue_thread), self.backend
        if setting.tf32 or instr_args["dest_32b_lo"] or self._columns_are_blocked():
            super().handle_mova2d(instruction_info, issue_thread, instr_args)
            return
        counters = backend.rwc[issue_thread]
        target = instr_args["dst"] + setting.dst_base + counters.Dst
        source = instr_args["src"] + counters.SrcA
        if instr_args["instr_mod"] & 2:
            count, target, source = 8, target & 0x3F8, source & 0x38
        else:
            count, target, source = 1, target & 0x3FF, source & 0x3F
        datums = backend.srcA[self.srcABank].data[source : source + count]
        self._copy_to_dst(setting, datums, target, count)
        counters.applyAddrMod(issue_thread, instr_args["addr_mode"])

    def handle_movb2d(self, instruction_info, issue_thread, instr_args):
        setting, backend, mode = self._setting(issue_thread), self.backend, instr_args["instr_mod"]
        if setting.tf32 or instr_args["dest_32b_lo"] or self._columns_are_blocked():
            super().handle_movb2d(instruction_info, issue_thread, instr_args)
            return
        counters = backend.rwc[issue_thread]
        target = instr_args["dst"] + setting.dst_base + counters.Dst
        source = instr_args["src"] + counters.SrcB
        if mode & 2:
            rows, count, target, source = 8, 1, target & 0x3F8, source & 0x3F
        elif mode & 4:
            rows, count, target, source = 4, 4, target & 0x3FC, source & 0x3C
        else:
            rows, count, target, source = 1, 1, target & 0x3FF, source & 0x3F
        datums = backend.srcB[self.srcBBank].data[source : source + count, : 1 if mode & 1 else 16]
        self._copy_to_dst(setting, datums, target, rows, setting.copied)
        counters.applyAddrMod(issue_thread, instr_args["addr_mode"])

    def handle_movd2b(self, instruction_info, issue_thread, instr_args):
        setting, backend = self._setting(issue_thread), self.backend
        # A 16-bit Dst has no TF32, half precision goes the installed way.
        if (
            not setting.kept
            or (setting.kept == TF32_BITS and not setting.wide)
            or instr_args["dest_32b_lo"]
            or self._columns_are_blocked()
        ):
            super().handle_movd2b(instruction_info, issue_thread, instr_args)
            return
        counters, dst = backend.rwc[issue_thread], backend.dst
        source = instr_args["dst"] + setting.dst_base + counters.Dst
        target = instr_args["src"] + counters.SrcB
        if instr_args["instr_mod"] & 2:
            count, source, target = 4, source & 0x3FC, target & 0x3C
        else:
            count, source, target = 1, source & 0x3FF, target & 0x3F
        place = dst.adj32(source) if setting.wide else source
        words = dst.dstBits[place : place + count]
        if setting.kept == TF32_BITS:
            low = dst.dstBits[place + 8 : place + 8 + count] & 0xFFFF
            datums = Convert.ShuffleTF32((words << 16 | low) >> 13)
        else:
            datums = Convert.ShuffleBF16(words)
        valid = dst.dstRowValid[place : place + count]
        if not valid.all():
            datums[~valid] = 0
        backend.srcB[self.srcBBank].data[target : target + count] = datums
        counters.applyAddrMod(issue_thread, instr_args["addr_mode"])

    def handle_trnspsrcb(self, instruction_info, issue_thread, instr_args):
        block = self.getSrcB().data[16:32]
        block[:] = block.T.copy()
