# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder of a tiny Llama with random weights and a tokenizer of bytes, which a simulated chip serves."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ..checkpoint.tensor_shapes import tensor_shapes
from ..config import LlamaConfig

SPECIAL = ("<s>", "</s>")
VOCABULARY = 256 + len(SPECIAL)


def config(tp: int = 1, layers: int = 2, positions: int = 512) -> LlamaConfig:
    """Return the config: a KV head per chip of a TP group."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96 if tp == 1 else 64 * tp,
        num_hidden_layers=layers,
        num_attention_heads=2 * tp,
        num_key_value_heads=tp,
        head_dim=64,
        max_position_embeddings=positions,
        name="tiny",
    )


def write(folder: Path, shape: LlamaConfig | None = None, seed: int = 0) -> LlamaConfig:
    """Write config, weights (bfloat16) and tokenizer into a folder, made if absent."""
    shape = shape or config()
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, size in tensor_shapes(shape).items():
        scale = size[-1] ** -0.5 if "embed" not in name else 1.0
        drawn = torch.randn(size, generator=generator) * scale
        state[name] = (torch.ones(size) if "norm" in name else drawn).to(torch.bfloat16)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_hugging_face(shape), indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 256, "eos_token_id": 257}))
    _tokenizer().save(str(folder / "tokenizer.json"))
    names = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "model_max_length": shape.max_position_embeddings}
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return shape


def _hugging_face(shape: LlamaConfig) -> dict:
    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta",
    )  # fmt: skip
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tie_word_embeddings,
        "bos_token_id": 256,
        "eos_token_id": 257,
        **{name: getattr(shape, name) for name in names},
    }


def _tokenizer() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer
