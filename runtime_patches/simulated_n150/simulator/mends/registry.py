# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All mends in the order they are applied."""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.mend import Mend
from runtime_patches.simulated_n150.simulator.mends import (
    address_counters,
    core,
    data_format,
    integer_division,
    lookups,
    moves,
    noc,
    packer,
    unpacker,
    vector,
)


def all_mends() -> list[Mend]:
    """Every mend; the data formats come before the units that read them."""
    return [
        integer_division.MEND,
        data_format.MEND,
        vector.MEND,
        unpacker.MEND,
        packer.MEND,
        address_counters.MEND,
        noc.MEND,
        lookups.MEND,
        core.MEND,
        moves.MEND,
    ]
