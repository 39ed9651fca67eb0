# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder of a tiny Llama with random weights and a tokenizer of bytes, which a simulated chip serves."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ..checkpoint.random_weights import random_state_dict
from ..config import LlamaConfig, RopeScaling
from ..tiny import tiny_for

SPECIAL = ("<s>", "</s>")
BOS, EOS = 256, 257


def config(tp: int = 1) -> LlamaConfig:
    """Return the config for TP groups of `tp` chips."""
    return tiny_for(
        tp,
        vocab_size=EOS + 1,
        max_position_embeddings=512,
        rope_scaling=RopeScaling(),
        bos_token_id=BOS,
        eos_token_ids=(EOS,),
    )


def write(folder: Path, shape: LlamaConfig | None = None, seed: int = 0) -> LlamaConfig:
    """Write config, weights (bfloat16) and tokenizer into a folder, made if absent."""
    shape = shape or config()
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.to(torch.bfloat16) for name, tensor in random_state_dict(shape, seed).items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(shape.to_hf_dict() | {"torch_dtype": "bfloat16"}, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": BOS, "eos_token_id": EOS}))
    _tokenizer().save(str(folder / "tokenizer.json"))
    names = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "model_max_length": shape.max_position_embeddings}
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return shape


def _tokenizer() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer
