# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""LlamaConfig: presets, Hugging Face's config.json both ways, and refusals."""

import json
import math

import pytest

from models.llama31_8b.checkpoint.tensor_shapes import tensor_shapes
from models.llama31_8b.config import PRESETS, LlamaConfig, ModelLoadError, preset

BASE = PRESETS["smollm2-135m"].to_hf_dict()
LLAMA3 = PRESETS["llama-3.1-8b"].to_hf_dict()["rope_scaling"]
# Published parameter counts, in millions.
PARAMETERS = {
    "llama-3.1-8b": 8030,
    "llama-3.1-70b": 70554,
    "llama-3.2-1b": 1236,
    "llama-3.2-3b": 3213,
    "smollm2-135m": 134.5,
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_published_number_of_parameters(name):
    count = sum(math.prod(shape) for shape in tensor_shapes(preset(name)).values())
    assert count / 1e6 == pytest.approx(PARAMETERS[name], rel=1e-3)


@pytest.mark.parametrize("name", PRESETS)
def test_transformers_reads_and_writes_the_same(name, tmp_path):
    from transformers import LlamaConfig as HfConfig

    config = preset(name)
    assert LlamaConfig.from_hf_dict(config.to_hf_dict(), name=name) == config
    theirs = HfConfig(**config.to_hf_dict())
    theirs.architectures = ["LlamaForCausalLM"]
    theirs.save_pretrained(tmp_path)
    back = LlamaConfig.from_pretrained(tmp_path)
    assert back.with_layers(1) == LlamaConfig.from_hf_dict(config.to_hf_dict(), name=tmp_path.name).with_layers(1)
    assert back.num_hidden_layers == config.num_hidden_layers


def test_defaults_of_missing_fields():
    data = {key: value for key, value in BASE.items() if key not in ("num_key_value_heads", "head_dim", "eos_token_id")}
    config = LlamaConfig.from_hf_dict(data)
    assert (config.num_key_value_heads, config.head_dim, config.eos_token_ids) == (9, 64, ())
    assert LlamaConfig.from_hf_dict({**BASE, "eos_token_id": [5, 6]}).eos_token_ids == (5, 6)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"architectures": ["MistralForCausalLM"]},
            "'MistralForCausalLM' is not supported; supported: LlamaForCausalLM",
        ),
        ({"architectures": None, "model_type": "gpt2"}, "architecture 'gpt2' is not supported"),
        ({"attention_bias": True}, "attention_bias=True is not supported"),
        ({"mlp_bias": True}, "mlp_bias=True is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "RoPE scaling type 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, "at least 1, got 0.5"),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}}, "high_freq_factor > low_freq_factor, got 4.0 and 4.0"),
        ({"rope_scaling": {"rope_type": "linear"}}, "RoPE scaling of type linear lacks factor"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}},
            "type llama3 lacks high_freq_factor, original_max_position_embeddings",
        ),
        ({"rope_scaling": LLAMA3, "original_max_position_embeddings": 64}, "is 64, but that of the RoPE scaling 8192"),
        ({"rope_scaling": {**LLAMA3, "partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5 is not supported"),
        ({"rope_scaling": LLAMA3, "partial_rotary_factor": 0.25}, "partial_rotary_factor=0.25 is not supported"),
        ({"sliding_window": 4096}, "sliding_window=4096 is not supported: Llama attends to every token"),
        ({"num_key_value_heads": 4}, r"num_attention_heads \(9\) is not a multiple of num_key_value_heads \(4\)"),
        ({"head_dim": 63}, "head_dim must be even for RoPE, got 63"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer, got 0"),
        # Odd types, and numbers that are none.
        ({"rope_scaling": "llama3"}, 'rope_scaling must be an object or null, got "llama3"'),
        ({"rope_scaling": {"rope_type": "linear", "factor": "8"}}, 'factor must be a number, got "8"'),
        ({"architectures": "LlamaForCausalLM"}, "architectures must be a list of names, got .LlamaForCausalLM"),
        ({"architectures": [["x"]]}, r"architecture .*x.* is not supported"),
        ({"rms_norm_eps": []}, r"rms_norm_eps must be a number, got \[\]"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be finite and above 0, got 0"),
        ({"rope_theta": math.nan}, "rope_theta must be a finite number, got NaN"),
        ({"rope_theta": 10**400}, r"rope_theta must be a finite number, got 10{56}\.\.\."),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": 0}}, "low_freq_factor must be above 0"),
        (
            {"rope_scaling": {"rope_type": "linear", "original_max_position_embeddings": 0.5}},
            "positive integer, got 0.5",
        ),
        ({"head_dim": ""}, "head_dim must be a positive integer, got ''"),
        ({"tie_word_embeddings": "false"}, 'tie_word_embeddings must be true or false, got "false"'),
        ({"eos_token_id": "2"}, 'eos_token_id must be token ids of at least 0, got "2"'),
        ({"eos_token_id": [[2]]}, r"eos_token_id must be token ids of at least 0, got \[\[2\]\]"),
        ({"bos_token_id": [1]}, r"bos_token_id must be one id, got \[1\]"),
    ],
)
def test_refused_with_the_field_and_its_value(change, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**BASE, **change}))
    with pytest.raises(ModelLoadError, match=f"{tmp_path}/config.json: .*{message}"):
        LlamaConfig.from_pretrained(tmp_path)


def test_files_that_are_absent_hold_no_object_or_lack_fields(tmp_path):
    with pytest.raises(FileNotFoundError, match="no config.json in"):
        LlamaConfig.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelLoadError, match=r"the config of .* is not an object but \[\]"):
        LlamaConfig.from_pretrained(tmp_path)
    data = {key: value for key, value in BASE.items() if key not in ("vocab_size", "num_attention_heads")}
    with pytest.raises(ModelLoadError, match="config lacks vocab_size, num_attention_heads"):
        LlamaConfig.from_hf_dict(data)


def test_unknown_preset_lists_what_exists():
    with pytest.raises(ValueError, match="no preset named 'gpt'; presets: llama-3.1-8b, "):
        preset("gpt")


@pytest.mark.parametrize(
    "content",
    [b'{"a": "\xe9"}', b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}"],
    ids=["Latin-1", "byte order mark", "nested too deep", "an integer too long"],
)
def test_files_that_no_json_parser_takes(content, tmp_path):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelLoadError, match="config.json is not valid JSON: "):
        LlamaConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("eos", ['"2"', "[[2]]", "true"])
def test_odd_ids_of_a_generation_config_are_refused(eos, tmp_path):
    from models.llama31_8b.checkpoint.load import read_config

    (tmp_path / "config.json").write_text(json.dumps(BASE))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": %s}' % eos)
    with pytest.raises(ModelLoadError, match="generation_config.json: eos_token_id must be token ids"):
        read_config(tmp_path)
