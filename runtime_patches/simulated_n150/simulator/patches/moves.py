# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""MOVA2D, the copy of SrcA rows to Dst that begins every unary operation, a block at a time.

Speed only: tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor/MOVA2D.md as the installed unit has
it, for 16-bit Dst words; TF32, the low halves of 32-bit words and blocked columns go the installed way.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.util import DataFormatConversions as Convert

from runtime_patches.simulated_n150.simulator.patch import Patch
from runtime_patches.simulated_n150.simulator.patches.data_format import DataFormat

# Source formats whose Dst words have an 8-bit exponent.
_WIDE_EXPONENT = frozenset(
    DataFormat[name] for name in ("FP32", "TF32", "BF16", "BFP8", "BFP4", "BFP2", "INT32", "INT16")
)
_BLOCKED = 3 << 9  # LaneConfig.BLOCK_DEST_MOV


def _apply() -> None:
    from framework.pe.tensix.backends.matrix import MatrixUnit

    installed = MatrixUnit.handle_mova2d

    def handle_mova2d(self, instruction_info, issue_thread, instr_args):
        backend = self.backend
        state = backend.getThreadConfigValue(issue_thread, "CFG_STATE_ID_StateID")
        overridden = self.getConfigValue(state, "ALU_FORMAT_SPEC_REG_SrcA_override")
        key = "ALU_FORMAT_SPEC_REG_SrcA_val" if overridden else "ALU_FORMAT_SPEC_REG0_SrcA"
        source_format = self.getConfigValue(state, key)
        if (
            backend.blackhole
            or source_format == DataFormat.TF32
            or instr_args["dest_32b_lo"]
            or any(backend.vector_unit.laneConfig[lane] & _BLOCKED for lane in range(8))
        ):
            installed(self, instruction_info, issue_thread, instr_args)
            return
        counters = backend.getRWC(issue_thread)
        target = instr_args["dst"] + backend.getThreadConfigValue(
            issue_thread, "DEST_TARGET_REG_CFG_MATH_Offset"
        )
        target += counters.Dst + self.getConfigValue(state, "DEST_REGW_BASE_Base")
        source = instr_args["src"] + counters.SrcA
        if instr_args["instr_mod"] >> 1 & 1:
            count, target, source = 8, target & 0x3F8, source & 0x38
        else:
            count, target, source = 1, target & 0x3FF, source & 0x3F
        datums = backend.getSrcA(self.srcABank).data[source : source + count].astype(np.int64)
        if not self.getConfigValue(state, "ALU_ACC_CTRL_Zero_Flag_disabled_src"):
            datums = np.where(datums & 0xFF, datums, 0)
        half = (
            backend.getThreadConfigValue(issue_thread, "FP16A_FORCE_Enable")
            or source_format not in _WIDE_EXPONENT
        )
        words = Convert.removeHighExponent(datums) if half else Convert.removeLowMantissa(datums)
        backend.getDst().setDst16bRows(np.arange(target, target + count), words)
        counters.applyAddrMod(issue_thread, self._read_addr_mode(instruction_info, instr_args))

    MatrixUnit.handle_mova2d = handle_mova2d


PATCH = Patch(
    name="row copies at once",
    rule="speed only: MOVA2D moves its rows as one block",
    source="tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor/MOVA2D.md",
    targets={"framework.pe.tensix.backends.matrix.MatrixUnit.handle_mova2d": "f2560eae8420aeb7"},
    apply=_apply,
)
