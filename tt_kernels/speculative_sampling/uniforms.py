# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Uniform random numbers as the op takes them."""

from __future__ import annotations

import torch

UNIFORM_BITS = 32


def uniform_words(uniforms: torch.Tensor) -> torch.Tensor:
    """Convert uniforms, float64 in [0, 1), to int64 words in [0, 2^32), rounded down."""
    return (uniforms.double() * 2.0**UNIFORM_BITS).floor().to(torch.int64)
