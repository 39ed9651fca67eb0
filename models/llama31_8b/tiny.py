# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llamas that are small enough to run on simulated chips, with random weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .config import LlamaConfig, RopeScaling

TINY = LlamaConfig(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=64,
    max_position_embeddings=256,
    rope_scaling=RopeScaling("llama3", factor=8.0, original_max_position_embeddings=64),
    name="tiny",
)
# 12 tiles of columns in the residual and the vocabulary, one in each DRAM bank: the least that sharded steps read
# evenly. The MLP's 14 and the fused product's 8 do not fill the banks evenly, as those of Llama 3.1 8B do not.
BANKED = replace(
    TINY,
    vocab_size=384,
    hidden_size=384,
    intermediate_size=448,
    num_hidden_layers=1,
    max_position_embeddings=64,
    name="banked",
)


def tiny_for(tp: int, **changes: Any) -> LlamaConfig:
    """Return TINY with a key/value head and a part of the MLP for each of `tp` chips. changes: other fields."""
    return replace(
        TINY,
        intermediate_size=TINY.intermediate_size if tp == 1 else 64 * tp,
        num_attention_heads=TINY.num_attention_heads * tp,
        num_key_value_heads=TINY.num_key_value_heads * tp,
        **changes,
    )
