# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All patches in the order they are applied."""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch
from runtime_patches.simulated_n150.simulator.patches import (
    address_counters,
    core,
    data_format,
    deadlock_watch,
    ethernet,
    integer_division,
    issue,
    jumps,
    lookups,
    matrix,
    noc,
    packer,
    polling,
    resting,
    stream_registers,
    strides,
    tile_view,
    transport,
    unpacker,
    unused_tiles,
    vector,
    waiting_loops,
)


def all_patches() -> list[Patch]:
    """Every patch; the data formats come before the units that read them."""
    return [
        integer_division.PATCH,
        jumps.PATCH,
        data_format.PATCH,
        vector.PATCH,
        unpacker.PATCH,
        packer.PATCH,
        address_counters.PATCH,
        noc.PATCH,
        tile_view.PATCH,
        stream_registers.PATCH,
        waiting_loops.PATCH,
        unused_tiles.PATCH,
        ethernet.PATCH,
        deadlock_watch.PATCH,
        lookups.PATCH,
        core.PATCH,
        resting.PATCH,
        strides.PATCH,
        issue.PATCH,
        matrix.PATCH,
        transport.PATCH,
        polling.PATCH,
    ]
