# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Make tiny decoders of transformers with random weights, large enough to speculate in."""

from typing import Any

import torch
import transformers

import models.llama31_8b.huggingface as alspec
from models.llama31_8b.huggingface.speculation import _ATTRIBUTE

SHAPE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    # Scores far from uniform, so that the middle of a text counts in some queries and not in others.
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": None,
    "bos_token_id": None,
}
DECODERS = ("llama", "qwen3", "gemma")  # plain, with norms of queries and keys, with scaled embeddings


THRESHOLD, CHUNK = 0.5, 32


def texts(rows: int, tokens: int, seed: int = 2) -> torch.Tensor:
    """Return random ids, int64 [rows, tokens], none of them padding."""
    return torch.randint(1, 96, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def tiny_decoder(kind: str = "llama", attention: str = "alspec", **options: Any) -> Any:
    """Return a model of this model_type in eval mode, with the same weights whatever the attention. options: those of
    its config, over SHAPE."""
    settings = {**SHAPE, **({"sliding_window": None} if kind == "mistral" else {}), **options}
    config = transformers.AutoConfig.for_model(kind, **settings)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    model.generation_config.eos_token_id = None
    return model.eval()


class Layer(torch.nn.Module):
    """What the attention function looks at of a layer's module."""

    is_causal, num_key_value_groups = True, 2

    def __init__(self, speculation: alspec.AttentionSpeculation, layer: int = 0) -> None:
        super().__init__()
        self.layer_idx = layer
        setattr(self, _ATTRIBUTE, speculation)


@torch.no_grad()
def decoded(
    model: Any, ids: torch.Tensor, prefill: int, mask: torch.Tensor | None = None, width: int = 1, singles: int = 0
) -> torch.Tensor:
    """Return logits [rows, T - prefill, vocab] of given tokens, decoded after an exact prefill `width` at a time, the
    first `singles` one by one.

    ids: int64 [rows, T]; mask: int64 likewise, 0 for padding.
    """

    def places(start: int, end: int) -> dict[str, torch.Tensor]:
        """Return what tells a padded row where its tokens are."""
        if mask is None:
            return {}
        positions = (mask[:, :end].cumsum(1) - 1).clamp(min=0)
        return {"attention_mask": mask[:, :end], "position_ids": positions[:, start:]}

    out = model(input_ids=ids[:, :prefill], use_cache=True, **places(0, prefill))
    logits, start = [], prefill
    while start < ids.shape[1]:
        part = ids[:, start : start + (width if start >= prefill + singles else 1)]
        out = model(
            input_ids=part, past_key_values=out.past_key_values, use_cache=True, **places(start, start + part.shape[1])
        )
        logits.append(out.logits)
        start += part.shape[1]
    return torch.cat(logits, dim=1)
