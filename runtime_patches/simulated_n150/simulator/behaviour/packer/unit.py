# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The four packers of a Tensix tile.

Rules: the pages of tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor/Packers:
InputAddressGenerator.md (what a PACR reads; ZeroWrite reads zeros), EdgeMasking.md, OutputAddressGenerator.md
(an exponent stream of its own for formats under 16 bits; both streams padded to 16 bytes at the end of a
datastream), README.md (accumulation).

Patched: formats under 16 bits, INT16, INT8, ZeroWrite, ReLU, accumulation in L1, the padding. A PACR is
handled as one array instead of datum by datum.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.backends.packer import PackerUnit
from framework.util.bits import get_nth_bit

from runtime_patches.simulated_n150.simulator.behaviour import block_float
from runtime_patches.simulated_n150.simulator.behaviour.data_format import DataFormat as F
from runtime_patches.simulated_n150.simulator.behaviour.packer import formats
from runtime_patches.simulated_n150.simulator.configuration_words import words_of

_TYPE_OF_SIZE = {1: np.uint8, 2: np.dtype("<u2"), 4: np.dtype("<u4")}


_EDGE_FIELDS = (
    "PCK_EDGE_MODE_mode",
    "PCK_EDGE_TILE_ROW_SET_SELECT_select",
    *(f"PCK_EDGE_OFFSET_SEC{section}_mask" for section in range(4)),
    *(f"TILE_ROW_SET_MAPPING_{table}_row_set_mapping_{row}" for table in range(4) for row in range(16)),
    "PACK_COUNTERS_SEC0_pack_reads_per_xy_plane",
)


class Packer(PackerUnit):
    """All formats and stages; the input addresses are the installed ones."""

    def __init__(self, backend):
        super().__init__(backend)
        for packer in self.packerI:
            packer.exponentAddress = 0
            packer.exponentsDue = []
        self._edge_words, self._edge_masks = words_of(_EDGE_FIELDS), {}

    # -- output addresses ------------------------------------------------------------------------------------

    def generate_output_address(self, stateID, issue_thread, packMask, flush, last, addrMod, ovrdThreadId):
        active = self.participating_packers(packMask)
        counters_used = set()
        first_address = 0
        for index in range(4):
            prefix = self.getIPackerConfig(index, 4, 1, 8)

            def config(name, prefix=prefix):
                return self.getConfigValue(stateID, prefix + name)

            address = config("L1_Dest_addr") + (0 if config("Sub_l1_tile_header_size") else 1)
            if index == 0:
                first_address = address
            elif first_address >> 31 & 1:
                address += first_address
            if index not in active:
                continue
            counter = issue_thread
            if ovrdThreadId:
                counter = config("Addr_cnt_context") % 3
            counters_used.add(counter)
            address += self._counted_offset(stateID, counter) & ~0xF
            if config("Add_l1_dest_addr_offset"):
                raise ValueError(f"packer {index}: an address offset from the TDMA-RISC is not modelled")
            limit_prefix = self.getIPackerConfig(index, 2, 2)
            if address > self.getConfigValue(stateID, limit_prefix + "Unpack_limit_address") * 2 + 1:
                address -= self.getConfigValue(stateID, limit_prefix + "Unpack_fifo_size") * 2
            self._refuse_compression(stateID, index)
            self._open_streams(index, F(config("Out_data_format")), address, config("Exp_section_size"))
            if last or flush:
                self.packerI[index].datastreamNeedsNewAddr = True
        self._advance_output_counters(issue_thread, counters_used, addrMod)

    def _counted_offset(self, state, counter):
        channel = self.backend.getADC(counter).Packers.Channel[1]
        return (
            self.getConfigValue(state, "PCK0_ADDR_BASE_REG_1_Base")
            + channel.Y * self.getConfigValue(state, "PCK0_ADDR_CTRL_XY_REG_1_Ystride")
            + channel.Z * self.getConfigValue(state, "PCK0_ADDR_CTRL_ZW_REG_1_Zstride")
            + channel.W * self.getConfigValue(state, "PCK0_ADDR_CTRL_ZW_REG_1_Wstride")
        )

    def _refuse_compression(self, state, index):
        prefix = self.getIPackerConfig(index, 2, 1)
        if self.getConfigValue(state, prefix + "All_pack_disable_zero_compress_ovrd"):
            disabled = get_nth_bit(self.getConfigValue(state, prefix + "All_pack_disable_zero_compress"), index)
        else:
            disabled = self.getConfigValue(state, prefix + "Disable_zero_compress")
        if not disabled:
            raise NotImplementedError(f"packer {index} is asked for zero compression, which is not modelled")

    def _open_streams(self, index, out_format, address, exponent_section):
        packer = self.packerI[index]
        packer.outDataFormat = out_format
        if not packer.datastreamNeedsNewAddr:
            return
        packer.datastreamNeedsNewAddr = False
        if out_format & 2:
            packer.exponentAddress = (address & 0x1FFFF) << 4
            address += exponent_section
        packer.byteAddress = (address & 0x1FFFF) << 4
        packer.tpgX = packer.tpgY = 0
        packer.exponentsDue = []

    def _advance_output_counters(self, issue_thread, counters, mode):
        def option(name):
            return self.backend.getThreadConfigValue(issue_thread, f"ADDR_MOD_PACK_SEC{mode}_{name}")

        for counter in counters:
            channel = self.backend.getADC(counter).Packers.Channel[1]
            if option("YdstClear"):
                channel.Y = channel.Y_Cr = 0
            elif option("YdstCR"):
                channel.Y = channel.Y_Cr = (channel.Y_Cr + option("YdstIncr")) & 0x1FFF
            else:
                channel.Y = (channel.Y + option("YdstIncr")) & 0x1FFF
            if option("ZdstClear"):
                channel.Z = channel.Z_Cr = 0
            else:
                channel.Z = (channel.Z + option("ZdstIncr")) & 0xFF

    # -- datums ----------------------------------------------------------------------------------------------

    def handle_pacr(self, instruction_info, issue_thread, instr_args):
        mask, mode = instr_args["PackSel"], self._read_addr_mode(instruction_info, instr_args)
        flush, zero_write = get_nth_bit(instr_args["Flush"], 0), get_nth_bit(instr_args["ZeroWrite"], 0)
        last, other_thread = instr_args["Last"], instr_args["OvrdThreadId"]
        state = self.backend.getThreadConfigValue(issue_thread, "CFG_STATE_ID_StateID")
        self.generate_input_address(state, issue_thread, flush, zero_write, mode, mask, other_thread)
        self.generate_output_address(state, issue_thread, mask, flush, last, mode, other_thread)
        stages = self._stages(state)
        for index in self.participating_packers(mask):
            packer = self.packerI[index]
            if packer.inputNumDatums > 0:
                bits = self._fetch(state, index, stages, bool(zero_write))
                self._write(packer, bits, stages, bool(self._packer_option(state, index, "Pack_L1_Acc")))
            if last or flush:
                self._close_streams(packer)

    def _packer_option(self, state, index, name):
        return self.getConfigValue(state, self.getIPackerConfig(index, 4, 1, 8) + name)

    def _stages(self, state):
        """Return the configuration that all packers share, read once per PACR."""
        read = {
            name: self.getConfigValue(state, f"PCK_DEST_RD_CTRL_{name}")
            for name in ("Read_32b_data", "Read_unsigned", "Read_int8", "Round_10b_mant")
        }
        read["relu"] = self.getConfigValue(state, "STACC_RELU_ApplyRelu") & 3
        read["threshold"] = self.getConfigValue(state, "STACC_RELU_ReluThreshold") if read["relu"] else 0
        return read

    def _fetch(self, state, index, stages, zero_write):
        """Return the datums of one PACR after the early conversion and ReLU."""
        packer = self.packerI[index]
        count = packer.inputNumDatums
        if packer.inputSource == PackerUnit.InputSource.L1:
            raise ValueError(f"packer {index}: packing from L1 instead of Dst is not modelled")
        first, start = packer.inputSourceAddr >> 4, packer.inputSourceAddr & 15
        passed = self._unmasked(state, index, start, count)
        if zero_write:
            return np.zeros(count, dtype=np.int64)
        dst = self.backend.getDst()
        rows = first + np.arange((start + count - 1 >> 4) + 1) & 0x3FF
        wide = bool(stages["Read_32b_data"])
        block = (dst.getDst32bRows if wide else dst.getDst16bRows)(rows)
        raw = block.reshape(-1)[start:][:count]
        intermediate = packer.inDataFormat
        bits = formats.early(raw, wide, intermediate, bool(stages["Read_int8"]), bool(stages["Round_10b_mant"]))
        if passed is not None:
            bits = np.where(passed, bits, 0)
        half = intermediate in (F.FP16, F.FP8, F.BFP8a)
        return formats.relu(bits, stages["relu"], stages["threshold"], half)

    def _masks_of_lines(self, state, index):
        """Return (mask of each line of a tile or None where all datums pass, lines per plane), made anew where the
        configuration has changed."""
        key = index, self._edge_words(self.backend.config_unit.config[state])
        found = self._edge_masks.get(key)
        if found is None:
            masks, reads_per_plane = self.edge_masks_for_pacr(state, index)
            passing = all(mask == 0xFFFF for mask in masks)
            found = self._edge_masks[key] = None if passing else np.array(masks), reads_per_plane
        return found

    def _unmasked(self, state, index, start, count):
        """Return which datums the edge masks let through, from column `start` on; None for all. Advance the tile
        position."""
        packer = self.packerI[index]
        masks, reads_per_plane = self._masks_of_lines(state, index)
        line, position = packer.tpgY, packer.tpgX
        packer.tpgY = (line + (position + count) // 16) % reads_per_plane
        packer.tpgX = (position + count) % 16
        if masks is None:
            return None
        datums = np.arange(count)
        lines = (line + (position + datums) // 16) % reads_per_plane
        return (masks[lines & 15] >> (start + datums & 15) & 1).astype(bool)

    def _write(self, packer, bits, stages, accumulates):
        out = packer.outDataFormat
        if out.isBFPFormat():
            if accumulates:
                raise ValueError(f"accumulation in L1 is not modelled for {out.name}")
            self._write_block_floats(packer, bits)
            return
        values = formats.late(bits, packer.inDataFormat, out, bool(stages["Read_unsigned"]))
        size = out.bits // 8
        memory = self.backend.addressable_memory
        if accumulates:
            old = np.frombuffer(memory.read(packer.byteAddress, len(values) * size), dtype=_TYPE_OF_SIZE[size])
            values = formats.accumulate(old.astype(np.int64), values, out)
        memory.write(packer.byteAddress, values.astype(_TYPE_OF_SIZE[size]).tobytes())
        packer.byteAddress += len(values) * size

    def _write_block_floats(self, packer, bits):
        out = packer.outDataFormat
        if len(bits) % block_float.GROUP:
            raise ValueError(f"packing {len(bits)} datums as {out.name}: only whole groups of 16 are modelled")
        datums, shared = block_float.share_exponent(*formats.block_float_parts(bits, out))
        if out.bits < 8:
            datums = block_float.truncate(datums, out.bits)
        raw = block_float.join_bytes(datums, out.bits).tobytes()
        memory = self.backend.addressable_memory
        memory.write(packer.byteAddress, raw)
        packer.byteAddress += len(raw)
        exponents = shared.astype(np.uint8).tobytes()
        memory.write(packer.exponentAddress, exponents)
        packer.exponentAddress += len(exponents)

    def _close_streams(self, packer):
        """Pad what a closed datastream wrote to 16 bytes with zeros."""
        if packer.outDataFormat is None:
            return
        memory = self.backend.addressable_memory
        names = ["byteAddress"] + (["exponentAddress"] if packer.outDataFormat.isBFPFormat() else [])
        for name in names:
            missing = -getattr(packer, name) % 16
            if missing:
                memory.write(getattr(packer, name), bytes(missing))
                setattr(packer, name, getattr(packer, name) + missing)
