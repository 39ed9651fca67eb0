# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint as a reference model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ..checkpoint.load import Checkpoint, load_state_dict
from .model.model import ReferenceLlama


@dataclass(frozen=True)
class LoadedModel(Checkpoint):
    """A checkpoint with the reference model of its weights, ready to run."""

    model: ReferenceLlama


def load_model(
    source: str | Path | None = None,
    dtype: torch.dtype | None = None,
    max_context: int | None = None,
    layers: int | None = None,
    device: str | torch.device | None = None,
) -> LoadedModel:
    """Load the config, reference model and tokenizer of a checkpoint.

    Args:
        source, max_context, layers: As of `Checkpoint.open`, which raises.
        dtype: Of the weights in memory; float32 by default.
        device: Of the weights; None for torch's default device, on which the model's other tensors are made.
    """
    found = Checkpoint.open(source, max_context, layers)
    dtype = dtype or torch.float32
    device = torch.get_default_device() if device is None else device
    stored = load_state_dict(found.folder, found.whole, layers)
    state = {name: tensor.to(device, dtype) for name, tensor in stored.items()}
    return LoadedModel(**vars(found), model=ReferenceLlama.from_state_dict(found.config, state, dtype=dtype))
