# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The frequencies of rotary position embedding, with Llama's two scalings."""

from __future__ import annotations

import math

import torch

from .config import LlamaConfig


def inverse_frequencies(config: LlamaConfig) -> torch.Tensor:
    """Return float32 [head_dim / 2], radians per position.

    `linear` scaling divides every frequency by the factor. `llama3` keeps wavelengths below
    original / high_freq_factor, divides those above original / low_freq_factor, and blends between.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling.rope_type == "linear":
        return frequencies / scaling.factor
    if scaling.rope_type == "llama3":
        turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)  # rotations in the old context
        blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        blend = blend.clamp(0.0, 1.0)
        return (1 - blend) * frequencies / scaling.factor + blend * frequencies
    return frequencies
