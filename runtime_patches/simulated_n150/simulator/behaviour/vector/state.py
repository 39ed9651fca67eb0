# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""State of the vector unit with the 32 lanes of a register in one array, and the lane mask that gates writes.

Rules (tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor: VectorUnit.md "Lane Predication Masks"
and "PRNG", LReg.md): a lane is enabled unless LaneConfig[lane & 7].ROW_MASK has the bit of its row, and then
either always or as LaneFlags says; registers 0-7 take results, 16 only those of scheduled instructions, 8-15
none.
"""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.backends.vector import VectorUnit
from framework.pe.tensix.registers import LReg

LANES = 32
REGISTERS = 17
SCHEDULED_ONLY = 16
_ROW_MASK_SHIFT, _ROW_MASK_BITS = VectorUnit.ROW_MASK


class ArrayRegister(LReg):
    """An LReg whose lanes are a row of the unit's register array."""

    def __init__(self, row: np.ndarray) -> None:
        super().__init__()
        self.data = row

    def __getitem__(self, lane):
        return int(self.data[lane])

    def __setitem__(self, lane, value):
        assert not self.read_only
        self.data[lane] = self._coerce(value)

    def setHardwiredValue(self, value):  # the simulator's name
        super().setHardwiredValue(value)
        if self.hard_wired_value is not None:
            self.data[:] = self.hard_wired_value


class VectorState(VectorUnit):
    """Registers, flags and configuration as arrays; the instruction handlers are in the subclasses."""

    def __init__(self, backend):
        super().__init__(backend)
        if backend.blackhole:
            raise ValueError("the patched vector unit is Wormhole's; the device is a Blackhole")
        self.registers = np.zeros((REGISTERS, LANES), dtype=np.uint32)
        originals = self.lregs
        self.lregs = [ArrayRegister(self.registers[index]) for index in range(REGISTERS)]
        for register, original in zip(self.lregs, originals, strict=True):
            register.data[:] = [original[lane] for lane in range(LANES)]
            register.read_only = original.read_only
            register.hard_wired_value = original.hard_wired_value
        self.flags = np.zeros(LANES, dtype=bool)
        self.use_flags = np.zeros(LANES, dtype=bool)
        self.random_state = np.zeros(LANES, dtype=np.uint32)
        self._rows_off = None
        self._enabled = None
        self._enabled_known = True

    # -- lane mask -------------------------------------------------------------------------------------------

    @property
    def laneFlags(self):  # the simulator's name
        return self.flags

    @laneFlags.setter
    def laneFlags(self, values):
        self.flags = np.array(values, dtype=bool)
        self._enabled_known = False

    @property
    def useLaneFlagsForLaneEnable(self):
        return self.use_flags

    @useLaneFlagsForLaneEnable.setter
    def useLaneFlagsForLaneEnable(self, values):
        self.use_flags = np.array(values, dtype=bool)
        self._enabled_known = False

    def enabled(self):
        """Return a boolean array of the enabled lanes, or None when all 32 are."""
        if not self._enabled_known:
            enabled = ~self.use_flags | self.flags
            if self._rows_off is not None:
                enabled &= ~self._rows_off
            self._enabled = None if enabled.all() else enabled
            self._enabled_known = True
        return self._enabled

    def flags_changed(self) -> None:
        """Note that flags, use_flags or laneConfig were written."""
        self._enabled_known = False

    def configuration_changed(self) -> None:
        """Note that laneConfig was written."""
        off = np.array([bool(self.laneConfig[lane & 7] >> (_ROW_MASK_SHIFT + lane // 8) & 1) for lane in range(LANES)])
        self._rows_off = off if off.any() else None
        self._enabled_known = False

    def isLaneEnabled(self, lane):
        enabled = self.enabled()
        return True if enabled is None else bool(enabled[lane])

    def option(self, key) -> np.ndarray:
        """Return a LaneConfig field of all lanes."""
        first, bits = key
        return (np.array(self.laneConfig, dtype=np.uint32) >> first) & ((1 << bits) - 1)

    def any_option(self, key) -> bool:
        """Return whether a one-bit LaneConfig field is set in some lane."""
        bit = 1 << key[0]
        return any(value & bit for value in self.laneConfig)

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, register: int, values, lanes="enabled") -> None:
        """Write values to a register in the given lanes (default: the enabled ones); no-op unless writable."""
        if register >= 8 and register != SCHEDULED_ONLY:
            return
        if isinstance(lanes, str):
            lanes = self.enabled()
        if lanes is None:
            self.registers[register] = values
        else:
            np.copyto(self.registers[register], values, where=lanes, casting="unsafe")

    def put_flags(self, values) -> None:
        """Write LaneFlags in the enabled lanes."""
        enabled = self.enabled()
        if enabled is None:
            self.flags[:] = values
        else:
            np.copyto(self.flags, values, where=enabled)
        self._enabled_known = False

    def advance_random(self, lanes) -> np.ndarray:
        """Return the generator's present values; its state then moves on in the given lanes (None: all)."""
        state = self.random_state.copy()
        taps = state & np.uint32(0x80200003)
        parity = np.zeros(LANES, dtype=np.uint32)
        for bit in (31, 21, 1, 0):
            parity ^= (taps >> np.uint32(bit)) & np.uint32(1)
        following = ((parity ^ np.uint32(1)) << np.uint32(31)) | (state >> np.uint32(1))
        if lanes is None:
            self.random_state[:] = following
        else:
            np.copyto(self.random_state, following, where=lanes)
        return state
