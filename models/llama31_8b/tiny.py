# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llamas with random weights, small enough to run on simulated chips, and a checkpoint of one with a tokenizer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
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


BOS, EOS = 256, 257  # after the 256 bytes
_SPECIAL = ("<s>", "</s>")
_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def of_bytes(tp: int = 1, **changes: Any) -> LlamaConfig:
    """Return a tiny config whose vocabulary is the bytes, for TP groups of `tp` chips. changes: other fields."""
    return tiny_for(
        tp,
        vocab_size=EOS + 1,
        max_position_embeddings=512,
        rope_scaling=RopeScaling(),
        bos_token_id=BOS,
        eos_token_ids=(EOS,),
        **changes,
    )


def of_random_weights(config: LlamaConfig) -> bool:
    """Return whether a config is one of `of_bytes`: so small a model of bytes is trained nowhere."""
    return (config.vocab_size, config.hidden_size) == (EOS + 1, TINY.hidden_size)


def write_checkpoint(folder: Path, config: LlamaConfig | None = None, layers: int | None = None) -> LlamaConfig:
    """Write a Hugging Face folder, made if absent: config, random weights (bfloat16), a tokenizer of bytes.

    config: by default `of_bytes()`. layers: keep only the first ones, which are the draft model of the whole. Returns
    the config that was written.
    """
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from .checkpoint.tensor_shapes import random_state_dict, tensor_shapes

    whole = config or of_bytes()
    kept = whole if layers is None else whole.with_layers(layers)
    folder.mkdir(parents=True, exist_ok=True)
    state = random_state_dict(whole)
    weights = {name: state[name].to(torch.bfloat16) for name in tensor_shapes(kept)}
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": _SPECIAL[0], "eos_token": _SPECIAL[1], "model_max_length": kept.max_position_embeddings}
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": _TEMPLATE, **names}
    for name, values in (
        ("tokenizer_config.json", described),
        ("generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS}),
        ("config.json", kept.to_hf_dict() | {"torch_dtype": "bfloat16"}),
    ):
        (folder / name).write_text(json.dumps(values, indent=1))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return kept
