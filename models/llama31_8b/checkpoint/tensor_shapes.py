# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The tensors a checkpoint must hold, checked from file headers before any weight is read, their numbers, and random
ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import LlamaConfig, ModelLoadError

if TYPE_CHECKING:
    import torch

LM_HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def is_weight(name: str) -> bool:
    """Return False for the RoPE frequencies that old exporters also store; they are computed from the config."""
    return not name.endswith(".rotary_emb.inv_freq")


def tensor_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Return {Hugging Face name: shape (`[out, in]` for projections)} of every tensor; lm_head only if untied."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    query = config.num_attention_heads * config.head_dim
    key_value = config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, hidden)}
    for layer in range(config.num_hidden_layers):
        block = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (key_value, hidden),
            "self_attn.v_proj": (key_value, hidden),
            "self_attn.o_proj": (hidden, query),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (ffn, hidden),
            "mlp.up_proj": (ffn, hidden),
            "mlp.down_proj": (hidden, ffn),
        }
        shapes.update({f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()})
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = (config.vocab_size, hidden)
    return shapes


def check_shapes(config: LlamaConfig, found: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Compare a checkpoint's header with what the config asks for.

    A stored `lm_head` beside tied embeddings is allowed (the loader compares them). Raises ModelLoadError
    naming the first missing, misshapen or unexpected tensor and how many more there are.
    """
    wanted = tensor_shapes(config)
    missing = [name for name in wanted if name not in found]
    wrong = [name for name in wanted if name in found and tuple(found[name]) != wanted[name]]
    extra = [name for name in found if name not in wanted and name != LM_HEAD and is_weight(name)]
    if missing:
        raise ModelLoadError(f"{source}: tensor {missing[0]} is missing{_more(missing)}")
    if wrong:
        raise ModelLoadError(
            f"{source}: tensor {wrong[0]} has shape {list(found[wrong[0]])}, "
            f"the config needs {list(wanted[wrong[0]])}{_more(wrong)}"
        )
    if extra:
        raise ModelLoadError(f"{source}: unexpected tensor {extra[0]}: not part of a Llama model{_more(extra)}")


def check_finite(tensor: torch.Tensor, name: str, file: Path) -> None:
    """Raise ModelLoadError for NaN or infinity in a tensor of `file`."""
    import torch

    if not math.isfinite(float(tensor.sum(dtype=torch.float32))):  # one pass over gigabytes of weights
        wrong = int((~tensor.isfinite()).sum())
        if wrong:
            raise ModelLoadError(f"{file}: tensor {name} has {wrong} of {tensor.numel()} numbers NaN or infinite")


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more like it)" if len(names) > 1 else ""


def random_state_dict(config: LlamaConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random float32 tensors by Hugging Face name: matrices of variance 1 / inputs, norms around 1."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = 1 + 0.1 * noise if len(shape) == 1 else noise / shape[-1] ** 0.5
    return tensors
