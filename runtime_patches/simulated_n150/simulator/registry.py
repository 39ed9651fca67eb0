# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All patches in the order in which they are applied: those that change results, then those that change speed alone."""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.behaviour import (
    address_counters,
    bandwidth,
    data_format,
    deadlock_watch,
    ethernet,
    integer_division,
    jumps,
    noc,
    operand_formats,
    packer,
    sent_writes,
    stream_registers,
    tile_view,
    unpacker,
    vector,
    waiting_loops,
)
from runtime_patches.simulated_n150.simulator.patch import Patch
from runtime_patches.simulated_n150.simulator.speed import (
    core,
    lookups,
    matrix,
    resting,
    strides,
    transport,
    unused_tiles,
)

_BEHAVIOUR = (
    integer_division,
    jumps,
    data_format,  # before the units that read formats
    vector,
    operand_formats,
    unpacker,
    packer,
    address_counters,
    noc,
    sent_writes,
    tile_view,
    stream_registers,
    waiting_loops,
    ethernet,
    deadlock_watch,
)
_SPEED = (unused_tiles, lookups, core, resting, strides, matrix, transport)


def behaviour_patches() -> list[Patch]:
    """Return the patches that change results, in order."""
    return [*(module.PATCH for module in _BEHAVIOUR), *bandwidth.PATCHES]


def speed_patches() -> list[Patch]:
    """Return the patches that change the simulator's speed alone, in order; they come after those of behaviour."""
    return [module.PATCH for module in _SPEED]


def all_patches() -> list[Patch]:
    """Return every patch in the order of application."""
    return behaviour_patches() + speed_patches()
