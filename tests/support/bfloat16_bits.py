# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of bfloat16 tensors written as bits: torch makes one NaN of many, which need not be the one meant."""

from __future__ import annotations

import torch


def set_bits(values: torch.Tensor, place: tuple[int, ...], bits: int) -> None:
    """Write the bits of a bfloat16 number at a place of a contiguous bfloat16 tensor."""
    values.view(torch.int16)[place] = bits - (bits >> 15 << 16)
