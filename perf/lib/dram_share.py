# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What share of a chip's DRAM rate an op reads at."""

from __future__ import annotations

from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S

BYTES_PER_CYCLE = DRAM_BYTES_PER_S / 1e9  # one cycle is one nanosecond


def of_roofline(read: int, cycles: float) -> float | None:
    """Return the share of the time that 288 GB/s take for `read` bytes, None for an op that reads none."""
    return read / (cycles * BYTES_PER_CYCLE) if read else None
