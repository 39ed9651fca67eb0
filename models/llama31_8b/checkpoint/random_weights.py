# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random weights for tests and for shapes whose trained weights are not at hand."""

from __future__ import annotations

import torch

from ..config import LlamaConfig
from .tensor_shapes import tensor_shapes


def random_state_dict(config: LlamaConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random float32 tensors by Hugging Face name: matrices of variance 1 / inputs, norms around 1."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = 1 + 0.1 * noise if len(shape) == 1 else noise / shape[-1] ** 0.5
    return tensors
