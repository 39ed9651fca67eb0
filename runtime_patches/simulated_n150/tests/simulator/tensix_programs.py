# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A Tensix backend with L1, for tests of the packers and unpackers."""

from __future__ import annotations

import numpy as np
from framework.memory.memory import AddressableMemory
from framework.pe.tensix.backend import TensixBackend
from framework.pe.tensix.util import TensixConfigurationConstants as Constants
from framework.pe.tensix.util import TensixCoprocessorDiagnostics

from runtime_patches.simulated_n150.tests.simulator.vector_programs import word

L1_BYTES = 0x20000
FACE = 256


def make_backend() -> TensixBackend:
    backend = TensixBackend(TensixCoprocessorDiagnostics(), cfg_state_size=47, thd_state_size=57, blackhole=False)
    backend.addressable_memory = AddressableMemory(L1_BYTES)
    return backend


def configure(backend, **fields: int) -> None:
    """Set configuration fields of state 0 by the names of cfg_defines.h."""
    for key, value in fields.items():
        place = Constants.get_addr32(key)
        mask, shift = Constants.get_mask(key), Constants.get_shamt(key)
        old = backend.config_unit.config[0][place]
        backend.config_unit.config[0][place] = (old & ~mask) | (value << shift & mask)


def configure_packer(backend, out_format: int, in_format: int, wide: bool, exponent_section: int = 1) -> None:
    """Packer 0 alone, 256 datums from Dst row 0 to byte 0x1000 (after the tile header of 16 bytes)."""
    configure(
        backend,
        THCON_SEC0_REG1_L1_Dest_addr=(0x1000 >> 4) - 1,
        THCON_SEC0_REG1_Out_data_format=out_format,
        THCON_SEC0_REG1_In_data_format=in_format,
        THCON_SEC0_REG1_Disable_zero_compress=1,
        THCON_SEC0_REG1_Exp_section_size=exponent_section,
        THCON_SEC0_REG2_Unpack_limit_address=0x1FFFF,
        PCK_DEST_RD_CTRL_Read_32b_data=int(wide),
        PCK_EDGE_OFFSET_SEC0_mask=0xFFFF,
        PACK_COUNTERS_SEC0_pack_reads_per_xy_plane=16,
    )
    backend.getADC(2).Packers.Channel[1].X = FACE - 1


def pack(backend, last: int = 1, zero: int = 0) -> None:
    """One PACR of packer 0 by thread 2."""
    backend.packer_unit.next_instruction.append((word("PACR", PackSel=1, Last=last, ZeroWrite=zero), 2))
    backend.packer_unit.clock_tick(1)


def bfloat16_patterns(values: np.ndarray) -> np.ndarray:
    return (np.asarray(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.int64)


def to_dst(patterns: np.ndarray) -> np.ndarray:
    """bfloat16 patterns as Dst holds them: sign, seven fraction bits, exponent."""
    return patterns & 0x8000 | (patterns & 0x7F) << 8 | patterns >> 7 & 0xFF


def from_source(bits: np.ndarray) -> np.ndarray:
    """What SrcA or SrcB hold (sign, ten fraction bits, exponent) as floats."""
    bits = bits.astype(np.int64)
    single = bits >> 18 << 31 | (bits & 0xFF) << 23 | (bits >> 8 & 0x3FF) << 13
    return single.astype(np.uint32).view(np.float32)
