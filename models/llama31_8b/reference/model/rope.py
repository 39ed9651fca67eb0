# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding in the half-split layout of Hugging Face checkpoints."""

from __future__ import annotations

import torch

from ...config import LlamaConfig
from ...rope_frequencies import inverse_frequencies


class RotaryTable:
    """Cosines and signed sines by position, grown on demand up to the model's context.

    Computed on the CPU for every device: a GPU's powers and cosines round differently, and decisions would too.
    """

    def __init__(self, config: LlamaConfig, dtype: torch.dtype) -> None:
        with torch.device("cpu"):
            self.frequencies = inverse_frequencies(config)
        self.limit, self.dtype = config.max_position_embeddings, dtype
        self.cos = self.sin = torch.empty((0, config.head_dim), dtype=dtype)

    def rows(self, positions: torch.Tensor | slice, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (cos, sin) for positions below `end`: each [..., 1, head_dim], the first half of sin negated."""
        if end > len(self.cos):
            self._grow(min(self.limit, max(end, 2 * len(self.cos), 1024)))
        return self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)

    def _grow(self, positions: int) -> None:
        angles = torch.arange(positions, device="cpu").float()[:, None] * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat((cos, cos), dim=1).to(self.cos.device, self.dtype)
        self.sin = torch.cat((-sin, sin), dim=1).to(self.sin.device, self.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate x [..., heads, head_dim] by the rows of a RotaryTable."""
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    return torch.addcmul(x * cos, swapped, sin)
