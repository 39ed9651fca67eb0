# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Small GGUF files and Hugging Face folders for the loader tests."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import LlamaConfig

TINY = LlamaConfig(
    vocab_size=320,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=1024,
    rope_theta=10000.0,
    bos_token_id=1,
    eos_token_ids=(2,),
    name="tiny",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% "
    "endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_vocabulary(size: int = 320) -> tuple[list[str], list[int], list[str]]:
    """Return (tokens, token types, merges) of a byte-level BPE: control tokens, bytes, merges, padding."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|spare|>"]
    merges = ["t h", "th e", "i n", "Ġ the", "1 2", "12 3", "\u010a \u010a", "a n", "an d"]
    letters = bytes_to_unicode()
    tokens = control + [letters[byte] for byte in range(256)] + [merge.replace(" ", "") for merge in merges]
    padding = [f"<pad{index}>" for index in range(size - len(tokens))]
    types = [3] * len(control) + [1] * (len(tokens) - len(control)) + [5] * len(padding)
    return tokens + padding, types, merges


def tokenizer_tables(size: int = 320, **changes: Any) -> dict[str, Any]:
    """Return the tokenizer of `tiny_vocabulary` by GGUF keys. changes: other tables; None removes one."""
    tokens, types, merges = tiny_vocabulary(size)
    tables = {"model": "gpt2", "pre": "smollm", "tokens": tokens, "token_type": types, "merges": merges}
    tables |= {"bos_token_id": 1, "eos_token_id": 2, **changes}
    return {f"tokenizer.ggml.{key}": value for key, value in tables.items() if value is not None}


def interleaved_rows(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Put half-split rows of each head in llama.cpp's order: row 2i is i, row 2i + 1 is d / 2 + i."""
    d = weight.shape[0] // n_heads
    order = [h * d + half * (d // 2) + i for h in range(n_heads) for i in range(d // 2) for half in (0, 1)]
    return weight[order]


def gguf_names(config: LlamaConfig, state: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Rename a Hugging Face state dict to llama.cpp's names and row order."""
    names, result = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers), {}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in state.items():
        count = heads.get(name.split(".")[-2])
        value = interleaved_rows(tensor, count) if count else tensor
        result[names.get_name(name, (".weight",))] = value.contiguous().numpy()
    return result


def write_gguf(
    path: Path,
    config: LlamaConfig = TINY,
    *,
    quantisation: str = "F32",
    seed: int = 0,
    metadata: Mapping[str, Any] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    raw: Mapping[str, tuple[np.ndarray, gguf.GGMLQuantizationType]] | None = None,
    drop: tuple[str, ...] = (),
    architecture: str = "llama",
) -> dict[str, torch.Tensor]:
    """Write random weights as a GGUF file; returns the Hugging Face state dict they were made from.

    `metadata` adds or replaces keys (None removes one); `extra` adds or replaces tensors; `raw`
    replaces tensors by quantised bytes; `drop` leaves some out.
    """
    state = random_state_dict(config, seed)
    writer = gguf.GGUFWriter(path, architecture)
    facts: dict[str, Any] = {
        "general.name": "tiny",
        "llama.block_count": config.num_hidden_layers,
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "llama.rope.dimension_count": config.head_dim,
        "llama.rope.freq_base": config.rope_theta,
        **tokenizer_tables(config.vocab_size, add_bos_token=False),
        "tokenizer.chat_template": CHAT_TEMPLATE,
        **(metadata or {}),
    }
    for key, value in facts.items():
        if value is not None:
            kind = gguf.GGUFValueType.UINT32 if type(value) is int else gguf.GGUFValueType.get_type(value)
            writer.add_key_value(key, value, kind)
    for name, value in {**gguf_names(config, state), **(extra or {})}.items():
        if name not in drop:
            kind = gguf.GGMLQuantizationType["F32" if value.ndim == 1 else quantisation]
            stored = (raw or {}).get(name, (gguf.quantize(value, kind), kind))
            writer.add_tensor(name, stored[0], raw_dtype=stored[1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return state


def write_hf_folder(
    folder: Path,
    config: LlamaConfig = TINY,
    *,
    shards: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> dict[str, torch.Tensor]:
    """Write config.json, tokenizer files and safetensors; returns the state dict."""
    from models.llama31_8b.checkpoint.gguf_tokenizer import build_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.to(dtype) for name, tensor in random_state_dict(config, seed).items()}
    (folder / "config.json").write_text(json.dumps(config.to_hf_dict()))
    metadata = tokenizer_tables(config.vocab_size, add_bos_token=False) | {"tokenizer.chat_template": CHAT_TEMPLATE}
    tokenizer, tokenizer_config = build_tokenizer(metadata, folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    names, weight_map = list(state), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors" if shards > 1 else "model.safetensors"
        mine = names[shard::shards]
        save_file({name: state[name] for name in mine}, folder / file)
        weight_map |= dict.fromkeys(mine, file)
    if shards > 1:
        edit_json(folder / "model.safetensors.index.json", metadata={}, weight_map=weight_map)
    return state


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    data = {**(json.loads(path.read_text()) if path.is_file() else {}), **changes}
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def untied(config: LlamaConfig = TINY, **changes: Any) -> LlamaConfig:
    """Return TINY with changes."""
    return replace(config, **changes)


def write_reciting_folder(folder: Path, tokens: Sequence[str], config: LlamaConfig = TINY) -> list[int]:
    """Write a folder as write_hf_folder does, of a model that recites these different tokens over and over after any
    prompt; returns their ids."""
    from models.llama31_8b.checkpoint.tokenizer import Tokenizer

    state = write_hf_folder(folder, config)
    tokenizer = Tokenizer.from_folder(folder)
    ids = [tokenizer.encode(token, add_special_tokens=False) for token in tokens]
    assert all(len(found) == 1 for found in ids) and len(set(map(tuple, ids))) == len(ids), ids
    cycle = [found[0] for found in ids]
    # An axis of the hidden state per token; layers add nothing.
    embedding, head = torch.zeros(2, config.vocab_size, config.hidden_size)
    embedding[:, len(cycle) - 1] = 1.0
    for place, token in enumerate(cycle):
        embedding[token] = torch.eye(config.hidden_size)[place]
        head[cycle[(place + 1) % len(cycle)], place] = 1.0
    state |= {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    for name, weight in state.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.zero_()
    save_file(state, folder / "model.safetensors")
    return cycle
