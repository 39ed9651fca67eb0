# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The vector unit's instructions that compare, swap and move between registers and lanes.

Rules: SFPSHFT2.md, SFPSWAP.md and SFPTRANSP.md of tt-isa-documentation,
WormholeB0/TensixTile/TensixCoprocessor. Patched: SFPSHFT2's modes 0, 1, 2, 4 and 6 were not modelled (6 shifts
by an immediate; 4 has a documented defect of the silicon: the lane that should become zero takes an older
neighbour), and SFPSWAP ignored ENABLE_DEST_INDEX (argmin and argmax, which topk sorts its indices with) and
EXCHANGE_SRCB_SRCC.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.backends.vector import VectorUnit as V

from runtime_patches.simulated_n150.simulator.behaviour.vector.conversions import ConvertingInstructions
from runtime_patches.simulated_n150.simulator.behaviour.vector.lanewise import (
    U32,
    order_key,
    shifted,
    signed_immediate,
)
from runtime_patches.simulated_n150.simulator.behaviour.vector.state import LANES

_GROUPS = np.arange(LANES) // 8
_ROTATED = np.where(np.arange(LANES) & 7, np.arange(LANES) - 1, np.arange(LANES) + 7)
_FIRST_OF_GROUP = (np.arange(LANES) & 7) == 0
COPY4, CHAINED_COPY4, ROTATE_AND_COPY4, ROTATE, SHIFT_LANES, SHIFT_REGISTER, SHIFT_IMMEDIATE = range(7)
_SMALLEST_ROWS = {mode: np.isin(_GROUPS, sorted(rows)) for mode, rows in V.SFPSWAP_MOD1_MIN_ROWS.items()}


class CrossLaneInstructions(ConvertingInstructions):
    """SFPSHFT2, SFPSWAP, SFPTRANSP."""

    def __init__(self, backend):
        super().__init__(backend)
        # What the last rotation read, which SFPSHFT2's mode 4 wrongly shifts in on silicon.
        self._last_rotated = np.zeros(LANES, dtype=U32)

    def handle_sfpshft2(self, instruction_info, issue_thread, instr_args):
        mode, target = instr_args["instr_mod1"], instr_args["lreg_dest"]
        source = instr_args["lreg_src_c"]
        registers = self.registers
        backdoor_off = target < 12 or self.any_option(V.DISABLE_BACKDOOR_LOAD)
        if mode == SHIFT_REGISTER:
            self.put(target, shifted(registers[instr_args["imm12_math"] & 15], registers[source]))
        elif mode == SHIFT_IMMEDIATE:
            # The immediate's own low bits name the register to shift, unless a macro names another.
            shifted_register = instr_args.get("scheduled_vb", instr_args["imm12_math"] & 15)
            self.put(target, shifted(registers[shifted_register], signed_immediate(instr_args)))
        elif mode in (ROTATE, SHIFT_LANES):
            values = registers[source].copy()
            if mode == SHIFT_LANES:
                moved = np.where(_FIRST_OF_GROUP, self._last_rotated[_ROTATED], values[_ROTATED])
                self.put(target, moved)
            elif backdoor_off:
                if target < 12:
                    self._last_rotated = values
                self.put(target, values[_ROTATED])
        elif mode in (COPY4, CHAINED_COPY4, ROTATE_AND_COPY4):
            if not backdoor_off:
                return
            if mode == COPY4:
                last = np.zeros(LANES, dtype=U32)
            elif mode == CHAINED_COPY4:
                last = np.concatenate([registers[0][8:], np.zeros(8, dtype=U32)])
            else:
                values = registers[source].copy()
                last = values[_ROTATED]
                if target < 12:
                    self._last_rotated = values
            for index, following in enumerate((registers[1].copy(), registers[2].copy(), registers[3].copy(), last)):
                self.put(index, following)
        else:
            raise ValueError(f"SFPSHFT2 with undefined mode {mode}")

    def handle_sfpswap(self, instruction_info, issue_thread, instr_args):
        mode, d, c = instr_args["instr_mod1"], instr_args["lreg_dest"], instr_args["lreg_src_c"]
        if d >= 12 and d != 16 and not self.any_option(V.DISABLE_BACKDOOR_LOAD):
            return
        registers = self.registers
        old_c, old_d = registers[c].copy(), registers[d].copy()
        if mode == V.SFPSWAP_MOD1_UNCONDITIONAL:
            swap = np.ones(LANES, dtype=bool)
        else:
            c_smaller = order_key(old_c) < order_key(old_d)
            smallest_to_d = _SMALLEST_ROWS.get(mode, False)
            swap = np.where(smallest_to_d, c_smaller, ~c_smaller)
            if self.any_option(V.EXCHANGE_SRCB_SRCC):
                swap ^= self.option(V.EXCHANGE_SRCB_SRCC).astype(bool)
        enabled = self.enabled()
        if enabled is not None:
            swap &= enabled
        if not self.any_option(V.ENABLE_DEST_INDEX):
            self.put(c, old_d, swap)
            self.put(d, old_c, swap)
            return
        indexed = self.option(V.ENABLE_DEST_INDEX).astype(bool)
        for register, values in ((c, old_d), (d, old_c)):
            self.put(register, values, swap if register < 4 else swap & ~indexed)
        c_index, d_index = 4 + (c & 3), 4 + (d & 3)
        old_c_index, old_d_index = registers[c_index].copy(), registers[d_index].copy()
        self.put(c_index, old_d_index, swap & indexed)
        self.put(d_index, old_c_index, swap & indexed)

    def handle_sfptransp(self, instruction_info, issue_thread, instr_args):
        if instr_args["lreg_dest"] >= 12 and not self.any_option(V.DISABLE_BACKDOOR_LOAD):
            return
        enabled = self.enabled()
        for base in (0, 4):
            block = self.registers[base : base + 4].reshape(4, 4, 8)
            turned = block.transpose(1, 0, 2).copy()
            if enabled is None:
                block[:] = turned
            else:
                np.copyto(block, turned, where=np.broadcast_to(enabled.reshape(4, 8), (4, 4, 8)))
