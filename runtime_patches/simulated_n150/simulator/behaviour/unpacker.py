# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Unpacking of block floats.

Rule: tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor/UNPACR_Regular.md, functional model: the
exponent section of one byte for 16 datums stands between the tile header and the datums, unless an exponent
is forced for all; datums may be 8, 4 or 2 bits; they become BF16 (or half precision for the formats with a
5-bit exponent).

The simulator knew no exponent section for bfloat8_b and bfloat4_b, could not address datums below a byte, and
had no conversion for either. Decoded datums are handed to its ordinary path as 16-bit ones.

Rule, same page, last lines: an UNPACR that keeps its bank advances the row it writes at by 16 only where
Unpack_Src_Reg_Set_Upd is set. The simulator always advanced it, which scrambled SrcB in the fast tilize of
tt-metal.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from framework.pe.tensix.backends.unpacker import UnPackerUnit
from framework.pe.tensix.registers import SrcRegister
from framework.util.bits import get_bits, get_nth_bit

from runtime_patches.simulated_n150.simulator.behaviour import block_float
from runtime_patches.simulated_n150.simulator.behaviour.data_format import DataFormat
from runtime_patches.simulated_n150.simulator.patch import Patch


class _DecodedMemory:
    """A stand-in for L1 while decoded datums go through the ordinary path."""

    def __init__(self, values: np.ndarray) -> None:
        self._bytes = values.astype("<u2").tobytes()

    def read(self, _address, size):
        return self._bytes[:size]


class BlockFloatUnpacker(UnPackerUnit):
    """The installed unpacker with the block-float formats added and the row advance made conditional."""

    def __init__(self, backend, unpacker_id):
        super().__init__(backend, unpacker_id)
        self._first_exponent = (0, 0)
        self._forced_exponent = None
        self._advances_row = False

    def generate_input_addresses_and_sizes(
        self, issue_thread, stateID, multiContextMode, whichContext, whichADC, rowSearch
    ):
        addressed = super().generate_input_addresses_and_sizes(
            issue_thread, stateID, multiContextMode, whichContext, whichADC, rowSearch
        )
        # Latched here with the rest of the configuration: the bank may be given up much later.
        self._advances_row = bool(
            self.getConfigValue(stateID, f"THCON_SEC{self.unpacker_id}_REG2_Unpack_Src_Reg_Set_Upd")
        )
        in_format = DataFormat(addressed[-1])
        if not in_format.isBFPFormat():
            return addressed
        addressed = list(addressed)
        section = f"THCON_SEC{self.unpacker_id}_"
        descriptor = self.getConfigValue(stateID, section + "REG0_TileDescriptor", 4)
        first_datum, count = self._first_datum(
            descriptor, stateID, issue_thread, multiContextMode, whichContext, whichADC, rowSearch
        )
        dimensions = self.get_xyzw_dim(descriptor, stateID, multiContextMode, whichContext)
        address = self.get_inaddr(descriptor, stateID, multiContextMode, whichContext)
        if self.getConfigValue(stateID, section + "REG2_Force_shared_exp"):
            self._forced_exponent = self.getConfigValue(stateID, f"UNP{self.unpacker_id}_FORCED_SHARED_EXP_shared_exp")
        else:
            self._forced_exponent = None
            self._first_exponent = (address, first_datum)
            if in_format.bits == 8 or not get_nth_bit(descriptor[0], 5):
                address += ceil(ceil(int(np.prod(dimensions)) / 16) / 16) * 16
        size = in_format.bits / 8
        start = address + first_datum * size
        if start != int(start):
            raise ValueError(f"unpacker {self.unpacker_id}: block-float datum {first_datum} starts inside a byte")
        addressed[0] = self.wrapAddr(stateID, int(start))
        addressed[1], addressed[2] = size, count
        if not addressed[7]:
            addressed[5] = int(size * 16)
        return tuple(addressed)

    def _first_datum(self, descriptor, state, issue_thread, multi_context, which_context, which_adc, row_search):
        dimensions = self.get_xyzw_dim(descriptor, state, multi_context, which_context)
        blobs = get_bits(descriptor[3], 8, 11)
        return self.get_first_datum_and_inputNumDatums(
            descriptor, state, issue_thread, which_adc, which_context, True, row_search, multi_context, blobs,
            *dimensions, 0,
        )  # fmt: skip

    def _exponents(self, count: int) -> np.ndarray:
        """Return the exponent of each of the next `count` datums."""
        if self._forced_exponent is not None:
            return np.full(count, self._forced_exponent, dtype=np.int64)
        address, first_datum = self._first_exponent
        first, last = first_datum // 16, (first_datum + count - 1) // 16
        raw = np.frombuffer(self.backend.addressable_memory.read(address + first, last - first + 1), dtype=np.uint8)
        return raw.astype(np.int64)[(first_datum + np.arange(count)) // 16 - first]

    def perform_unpack(self, stateID, issue_thread, inputNumDatums, inAddr_Datums, outAddr, datumSizeBytes,
                       inDataFormat, outDataFormat, unpackToDst, transpose, allDatumsAreZero, rowStride,
                       unpackRowWidth):  # fmt: skip
        in_format = DataFormat(inDataFormat)
        if not in_format.isBFPFormat():
            super().perform_unpack(
                stateID, issue_thread, inputNumDatums, inAddr_Datums, outAddr, datumSizeBytes, inDataFormat,
                outDataFormat, unpackToDst, transpose, allDatumsAreZero, rowStride, unpackRowWidth,
            )  # fmt: skip
            return
        if in_format != DataFormat(outDataFormat):
            raise ValueError(
                f"unpacker {self.unpacker_id}: {in_format.name} to {DataFormat(outDataFormat).name} is undefined; a "
                "block float has to have the same format on both sides"
            )
        bits = in_format.bits
        rows = inputNumDatums // 16
        count = rows * 16
        row_bytes = 2 * bits
        starts = inAddr_Datums + rowStride * np.arange(rows)
        memory = self.backend.addressable_memory
        if rowStride == row_bytes:
            raw = memory.read(inAddr_Datums, rows * row_bytes)
        else:
            raw = b"".join(memory.read(int(start), row_bytes) for start in starts)
        datums = block_float.split_bytes(np.frombuffer(raw, dtype=np.uint8), bits)
        exponents = self._exponents(count)
        wide = block_float.has_wide_exponent(in_format)
        values = block_float.to_bfloat16(datums, exponents) if wide else block_float.to_half(datums, exponents)
        ordinary = DataFormat.BF16 if wide else DataFormat.FP16
        self.backend.addressable_memory = _DecodedMemory(values)
        try:
            super().perform_unpack(
                stateID, issue_thread, count, 0, outAddr, 2, ordinary, ordinary, unpackToDst, transpose,
                allDatumsAreZero, 32, 16,
            )  # fmt: skip
        finally:
            self.backend.addressable_memory = memory

    def handle_set_src_to_zero(self, instruction_info, issue_thread, args):
        """Execute an UNPACR_NOP that clears a bank, or both: the installed rule, the bank written at once."""
        is_b = self.unpacker_id == 1
        get = self.backend.getSrcB if is_b else self.backend.getSrcA
        matrix_unit = self.backend.matrix_unit
        own_wait = get_nth_bit(args, 4)
        waited_for = self.srcBank if own_wait else (matrix_unit.srcBBank if is_b else matrix_unit.srcABank)
        if get(waited_for).getAllowedClient() != SrcRegister.SrcClient.Unpackers:
            self.blocked = True
            self.blocked_wait_bank = waited_for
            self.repeat_instruction = (instruction_info, issue_thread)
            return
        self.blocked = False
        self.blocked_wait_bank = self.repeat_instruction = None
        # SrcA may be cleared to minus infinity; a bank keeps 19 bits, of which all are set then.
        value = 0xFFFFFFFF if not is_b and get_nth_bit(args, 2) else 0
        for bank in range(2):
            if get_nth_bit(args, 3) or bank == self.srcBank:
                get(bank).data[:] = np.uint32(value)

    def flip_src_banks(self, flipSrc, issue_thread, outDataFormat=None):
        if flipSrc or self._advances_row:
            super().flip_src_banks(flipSrc, issue_thread, outDataFormat)


def _apply() -> None:
    import framework.pe.tensix.backend as backend

    backend.UnPackerUnit = BlockFloatUnpacker


PATCH = Patch(
    name="unpackers",
    rule="16 datums of 8, 4 or 2 bits share an exponent byte; the row advances only with Unpack_Src_Reg_Set_Upd",
    source="tt-isa-documentation, UNPACR_Regular.md and FloatBitPatterns.md",
    targets={"framework.pe.tensix.backends.unpacker": "a53b680bcd4c9e4d"},
    apply=_apply,
)
