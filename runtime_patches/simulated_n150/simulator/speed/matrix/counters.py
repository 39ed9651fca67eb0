# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A thread's register write counters, with the fields of its address modes remembered by the words that hold them."""

from __future__ import annotations

from operator import itemgetter

from framework.pe.tensix.backend import RWC
from framework.pe.tensix.util import TensixConfigurationConstants as Constants

MODES = 8
_FIELDS = {
    "AB": ("SrcAClear", "SrcACR", "SrcAIncr", "SrcBClear", "SrcBCR", "SrcBIncr"),
    "DST": ("DestClear", "DestCToCR", "DestCR", "DestIncr", "FidelityClear", "FidelityIncr"),
    "BIAS": ("BiasClear", "BiasIncr"),
}


def _names(mode: int) -> list[str]:
    return [f"ADDR_MOD_{part}_SEC{mode}_{field}" for part, fields in _FIELDS.items() for field in fields]


class Counters(RWC):
    """The installed counters; applyAddrMod looks up one tuple instead of fifteen fields."""

    def __init__(self, backend):
        super().__init__(backend)
        Constants.use_blackhole(False)
        self._base = Constants.get_addr32("ADDR_MOD_SET_Base")
        # The words that hold each mode: of one part all fields are in one word.
        self._words = [
            itemgetter(*sorted({Constants.get_addr32(name) for name in _names(mode)})) for mode in range(MODES)
        ]
        self._known: list[dict[tuple[int, ...], tuple[int, ...]]] = [{} for _ in range(MODES)]

    def applyAddrMod(self, thread_id, addrmod, updateFidelityPhase=True):  # the simulator's names
        words = self.backend.config_unit.threadConfig[thread_id]
        mode = addrmod + 4 if self.ExtraAddrModBit or words[self._base] & 1 else addrmod
        if mode >= MODES:
            super().applyAddrMod(thread_id, addrmod, updateFidelityPhase)
            return
        known, key = self._known[mode], self._words[mode](words)
        fields = known.get(key)
        if fields is None:
            value = self.backend.getThreadConfigValue
            fields = known[key] = tuple(value(thread_id, name) for name in _names(mode))
        (
            a_clear,
            a_carried,
            a_step,
            b_clear,
            b_carried,
            b_step,
            dst_clear,
            dst_to_carry,
            dst_carried,
            dst_step,
            phase_clear,
            phase_step,
            bias_clear,
            bias_step,
        ) = fields

        if a_clear:
            self.SrcA = self.SrcA_Cr = 0
        elif a_carried:
            self.SrcA_Cr += a_step
            self.SrcA = self.SrcA_Cr
        else:
            self.SrcA += a_step

        if b_clear:
            self.SrcB = self.SrcB_Cr = 0
        elif b_carried:
            self.SrcB_Cr += b_step
            self.SrcB = self.SrcB_Cr
        else:
            self.SrcB += b_step

        if dst_clear:
            self.Dst = self.Dst_Cr = 0
        elif dst_to_carry:
            self.Dst += dst_step
            self.Dst_Cr = self.Dst
        elif dst_carried:
            self.Dst_Cr += dst_step
            self.Dst = self.Dst_Cr
        else:
            self.Dst += dst_step

        if updateFidelityPhase:
            self.FidelityPhase = 0 if phase_clear else self.FidelityPhase + phase_step

        if bias_clear:
            self.ExtraAddrModBit = 0
        elif bias_step & 3:
            self.ExtraAddrModBit = (self.ExtraAddrModBit + 1) & 1
