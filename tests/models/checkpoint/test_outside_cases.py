# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Folders as other projects leave them: each gives transformers' prompt tokens and greedy tokens, or is refused by
name."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from models.llama31_8b.checkpoint.tokenizer import Tokenizer
from models.llama31_8b.config import ChatTemplateError, ModelLoadError
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.load import load_model
from tests.support.gguf_files import edit_json, untied, write_gguf, write_hf_folder

MESSAGES = [{"role": "user", "content": "the <|im_end|> in 12 and the end é🎉"}]
Edit = Callable[[Path], Any]


def edited(name: str, **changes: Any) -> Edit:
    """Return an edit of a JSON file of the folder; None removes a field."""
    return lambda folder: edit_json(folder / name, **changes)


config = partial(edited, "config.json")


def tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Edit:
    """Return an edit of the weights by a function that changes the dictionary."""

    def edit(folder: Path) -> None:
        state = load_file(folder / "model.safetensors")
        change(state)
        save_file({name: tensor.contiguous().clone() for name, tensor in state.items()}, folder / "model.safetensors")

    return edit


def stale_index(folder: Path) -> None:
    names = {"model.norm.weight": "model-00001-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


head_of_embeddings = tensors(lambda state: state.update({"lm_head.weight": state["model.embed_tokens.weight"]}))
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
SAME: dict[str, Edit] = {
    "as it is": lambda folder: None,
    "tied with an equal head": lambda folder: (config(tie_word_embeddings=True)(folder), head_of_embeddings(folder)),
    "stale index": stale_index,
    "theta in rope_parameters": config(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e4}),
    "both generations agree": config(
        rope_scaling=LLAMA3, rope_theta=1e4, rope_parameters={**LLAMA3, "rope_theta": 1e4}
    ),
    "linear by its old name": config(rope_scaling={"type": "linear", "factor": 2.0}),
    "no head_dim": config(head_dim=None),
    "no RoPE field but theta": config(rope_scaling=None, rope_parameters=None, rope_theta=2e4),
    "float64": tensors(lambda state: state.update({name: part.double() for name, part in state.items()})),
    "frequencies of old exporters": tensors(
        lambda state: state.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(32)})
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_as_transformers_on_the_same_folder(case, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_hf_folder(tmp_path, untied(eos_token_ids=()))
    SAME[case](tmp_path)
    ours = load_model(tmp_path)
    ids = ours.tokenizer.apply_chat_template(MESSAGES)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert ids == theirs.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    given = torch.tensor([ids])
    wanted = model.generate(given, max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0)
    made = generate(ours.model, [ids], max_new_tokens=8, eos_token_ids=())
    assert made.token_ids[0] == wanted[0, len(ids) :].tolist() and len(made.token_ids[0]) == 8


def test_words_are_split_by_tokenizer_json_whatever_the_class(tmp_path):
    """transformers 5 splits by GPT-2's rules where tokenizer_class is GPT2Tokenizer, as SmolLM2's is, and reads 12 as
    one token."""
    from tokenizers import Tokenizer as Backend

    write_hf_folder(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    text = "the 12 and 123 in"
    ids = Tokenizer.from_folder(tmp_path).encode(text)
    assert ids == Backend.from_file(str(tmp_path / "tokenizer.json")).encode(text).ids


def pointer(name: str) -> Edit:
    """Return an edit that leaves Git LFS's pointer in the place of a file."""
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"
    return lambda folder: (folder / name).write_text(text)


def renamed(name: str, other: str) -> Edit:
    return lambda folder: (folder / name).rename(folder / other)


NORM = "model.layers.1.input_layernorm.weight"
REFUSED: dict[str, tuple[Edit, str]] = {
    "another head beside tied embeddings": (config(tie_word_embeddings=True), "lm_head.weight differs .*tie_word_emb"),
    "AWQ": (config(quantization_config={"quant_method": "awq", "bits": 4}), "quantised by awq"),
    "compressed tensors": (config(compression_config={"format": "int"}), 'quantised by {"format": "int"}'),
    "int8": (
        tensors(lambda state: state.update({NORM: state[NORM].to(torch.int8)})),
        f"{NORM} is stored as I8, which means quantised weights; supported: F64, F32, F16, BF16",
    ),
    "FP8": (tensors(lambda state: state.update({NORM: state[NORM].to(torch.float8_e4m3fn)})), "stored as F8_E4M3"),
    "NaN": (tensors(lambda state: state[NORM].fill_(float("nan"))), f"model.safetensors: tensor {NORM} has 256 of 256"),
    "infinity": (
        tensors(lambda state: state[NORM][3:4].fill_(float("inf"))),
        f"{NORM} has 1 of 256 numbers NaN or inf",
    ),
    "two scalings": (
        config(rope_scaling=LLAMA3, rope_parameters={"rope_type": "linear", "factor": 2.0}),
        "rope_parameters give .*linear.*, but rope_scaling gives .*llama3",
    ),
    "a special token that is none": (
        edited("tokenizer_config.json", added_tokens_decoder={"3": 7}),
        "tokenizer.json or a file beside it is damaged",
    ),
    "templates without a name": (edited("tokenizer_config.json", chat_template=[{"a": "x"}]), "beside it is damaged"),
    "two thetas": (
        config(rope_theta=1e4, rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
        r"rope_theta is 10000.0 but rope_parameters.rope_theta is 500000.0",
    ),
    "a tensor is missing": (tensors(lambda state: state.pop(NORM)), f"tensor {NORM} is missing"),
    "a tensor of another shape": (
        tensors(lambda state: state.update({NORM: torch.ones(255)})),
        rf"{NORM} has shape \[255\], the config needs \[256\]",
    ),
    "a tensor too many": (
        tensors(lambda state: state.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(256)})),
        "unexpected tensor model.layers.0.self_attn.q_proj.bias",
    ),
    "a pickle": (renamed("model.safetensors", "pytorch_model.bin"), "pytorch_model.bin is a pickle, convert it"),
    "more tokens than rows": (config(vocab_size=300), "tokens but the model only 300|has shape .* the config needs"),
    "weights are a pointer": (pointer("model.safetensors"), r"model.safetensors .*Git LFS pointer.*git lfs pull"),
    "tokenizer is a pointer": (pointer("tokenizer.json"), r"tokenizer.json .*Git LFS pointer.*git lfs pull"),
    "an adapter": (renamed("config.json", "adapter_config.json"), "no config.json .* it holds an adapter .*merge"),
    "a shard without an index": (
        renamed("model.safetensors", "model-00001-of-00002.safetensors"),
        "no model.safetensors .* model-00001-of-00002.safetensors is there without its index",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case, tmp_path):
    write_hf_folder(tmp_path)
    edit, message = REFUSED[case]
    edit(tmp_path)
    with pytest.raises((ModelLoadError, FileNotFoundError), match=message):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("{{ messages[7]['content'].upper() }}", "refuses these messages"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "refuses these messages"),
        (None, "chat_template is not set"),
    ],
)
def test_every_error_of_a_template_is_named(text, message, tmp_path):
    write_hf_folder(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", chat_template=text)
    with pytest.raises(ChatTemplateError, match=message):
        Tokenizer.from_folder(tmp_path).apply_chat_template(MESSAGES)


def test_gguf_files_of_other_byte_order_unknown_types_and_nan_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.gguf"
    write_gguf(path, extra={"output_norm.weight": np.full(256, np.nan, np.float32)})
    with pytest.raises(ModelLoadError, match=r"m\.gguf: tensor model.norm.weight has 256 of 256 numbers NaN"):
        load_model(path)
    write_gguf(path)
    data = path.read_bytes()
    path.write_bytes(data[:4] + data[4:8][::-1] + data[8:])
    with pytest.raises(ModelLoadError, match="big-endian"):
        load_model(path)
    at = data.rindex(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8  # of its type: one dimension
    path.write_bytes(data[:at] + (199).to_bytes(4, "little") + data[at + 4 :])
    with pytest.raises(ModelLoadError, match="tensors of type 199"):
        load_model(path)
    assert [entry.name for entry in (tmp_path / "cache" / "gguf").iterdir()] == [".lock"]
