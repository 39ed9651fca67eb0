# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding in the half-split layout of Hugging Face checkpoints, with Llama's two
scalings."""

from __future__ import annotations

import math

import torch

from ..config import LlamaConfig


def inverse_frequencies(config: LlamaConfig) -> torch.Tensor:
    """float32 [head_dim / 2], radians per position.

    `linear` scaling divides every frequency by the factor. `llama3` keeps wavelengths below
    original / high_freq_factor, divides those above original / low_freq_factor, and blends between.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling.rope_type == "linear":
        return frequencies / scaling.factor
    if scaling.rope_type == "llama3":
        turns = (
            scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
        )  # rotations in the old context
        blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        blend = blend.clamp(0.0, 1.0)
        return (1 - blend) * frequencies / scaling.factor + blend * frequencies
    return frequencies


class RotaryTable:
    """Cosines and signed sines by position, grown on demand up to the model's context."""

    def __init__(self, config: LlamaConfig, dtype: torch.dtype) -> None:
        self.frequencies = inverse_frequencies(config)
        self.limit, self.dtype = config.max_position_embeddings, dtype
        self.cos = self.sin = torch.empty((0, config.head_dim), dtype=dtype)

    def rows(self, positions: torch.Tensor | slice, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(cos, sin) for positions below `end`: each [..., 1, head_dim], the first half of sin negated."""
        if end > len(self.cos):
            self._grow(min(self.limit, max(end, 2 * len(self.cos), 1024)))
        return self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)

    def _grow(self, positions: int) -> None:
        angles = torch.arange(positions, dtype=torch.int64).float()[:, None] * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat((cos, cos), dim=1).to(self.dtype)
        self.sin = torch.cat((-sin, sin), dim=1).to(self.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [..., heads, head_dim] rotated by the rows of a RotaryTable."""
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    return torch.addcmul(x * cos, swapped, sin)
