# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: every stored type, row order, metadata, RoPE scaling, and what is refused by name."""

import gguf
import numpy as np
import pytest
import torch

from models.llama31_8b.checkpoint.gguf import GgufModel
from models.llama31_8b.config import ModelLoadError, RopeScaling
from tests.support.gguf_files import TINY, untied, write_gguf

# Largest error of a weight against the largest weight of its block of 32, by the bits a type keeps.
STEPS = {
    "F32": 0.0,
    "F16": 2**-11,
    "BF16": 2**-8,
    "Q8_0": 1 / 127,
    "Q5_0": 1 / 15,
    "Q5_1": 1 / 15,
    "Q4_0": 1 / 7,
    "Q4_1": 1 / 7,
}


@pytest.mark.parametrize("quantisation", STEPS)
def test_tensors_come_back_within_the_step_of_their_type(tmp_path, quantisation):
    path = tmp_path / "m.gguf"
    state = write_gguf(path, quantisation=quantisation)
    model = GgufModel(path)
    assert set(model.names) == set(state)
    assert model.stored_bytes() == sum(model.tensor(name).nbytes for name in model.names)
    halves = {"F16": torch.float16, "BF16": torch.bfloat16}
    for name, original in state.items():
        tensor = model.tensor(name)
        assert tensor.shape == original.shape
        assert tensor.dtype == (torch.float32 if original.ndim == 1 else halves.get(quantisation, torch.float32))
        if original.ndim == 1:
            assert torch.equal(tensor, original), name
            continue
        blocks = original.reshape(-1, 32)
        error = (tensor.float().reshape(-1, 32) - blocks).abs().amax(1) / blocks.abs().amax(1)
        assert error.max() <= STEPS[quantisation] * 1.001, f"{name}: {error.max()}"


@pytest.mark.parametrize("kind", ["Q2_K", "Q6_K", "IQ4_NL", "TQ1_0"])
def test_types_only_llama_cpp_writes(tmp_path, kind):
    """Blocks of arbitrary bits with small scales: as the library reads them, rows put back in order."""
    qtype = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    rng = np.random.default_rng(3)
    raw = rng.integers(
        0, 60, (TINY.num_attention_heads * TINY.head_dim, TINY.hidden_size // block * size), dtype=np.uint8
    )
    write_gguf(tmp_path / "m.gguf", raw={"blk.0.attn_q.weight": (raw, qtype)})
    expected = torch.from_numpy(gguf.dequantize(raw, qtype)).reshape(4, 32, 2, 256)
    expected = torch.cat([expected[:, :, 0], expected[:, :, 1]], dim=1).reshape(256, 256)
    assert torch.isfinite(expected).all() and expected.std() > 0
    assert torch.equal(GgufModel(tmp_path / "m.gguf").tensor("model.layers.0.self_attn.q_proj.weight"), expected)


def test_a_type_the_library_cannot_dequantise_is_named(tmp_path):
    wide = np.zeros((512, 256)), gguf.GGMLQuantizationType.F64
    write_gguf(tmp_path / "m.gguf", raw={"blk.0.ffn_up.weight": wide})
    model = GgufModel(tmp_path / "m.gguf")
    with pytest.raises(ModelLoadError, match="tensor blk.0.ffn_up.weight is stored as F64"):
        model.tensor("model.layers.0.mlp.up_proj.weight")


def test_config_from_metadata(tmp_path):
    write_gguf(tmp_path / "m.gguf")
    assert GgufModel(tmp_path / "m.gguf").config == untied(rms_norm_eps=1e-5)
    tied = untied(tie_word_embeddings=True)
    write_gguf(tmp_path / "m.gguf", tied, metadata={"tokenizer.ggml.eot_token_id": 3})
    model = GgufModel(tmp_path / "m.gguf")
    assert model.config.tie_word_embeddings and "lm_head.weight" not in model.names
    assert model.config.eos_token_ids == (2, 3)


def test_head_dim_apart_from_hidden_size(tmp_path):
    config = untied(head_dim=32)
    state = write_gguf(tmp_path / "m.gguf", config, metadata={"llama.attention.key_length": 32})
    model = GgufModel(tmp_path / "m.gguf")
    assert model.config.head_dim == 32
    name = "model.layers.1.self_attn.k_proj.weight"
    assert torch.equal(model.tensor(name), state[name])


def _llama3_factors(scaling: dict, theta: float, head_dim: int) -> np.ndarray:
    """What transformers' llama3 scaling divides each base frequency by."""
    from transformers import LlamaConfig as HfConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    hf = HfConfig(
        head_dim=head_dim,
        rope_theta=theta,
        max_position_embeddings=131072,
        rope_scaling={"rope_type": "llama3", **scaling},
    )
    hf.standardize_rope_params()
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](hf, device="cpu")
    base = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return (base / scaled.double()).float().numpy()


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_rope_scaling_is_recovered(tmp_path, factor):
    scaling = dict(factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
    factors = _llama3_factors(scaling, 500000.0, 64)
    write_gguf(tmp_path / "m.gguf", untied(rope_theta=500000.0), extra={"rope_freqs.weight": factors})
    assert GgufModel(tmp_path / "m.gguf").config.rope_scaling == RopeScaling("llama3", **scaling)


def test_foreign_frequency_factors_are_refused(tmp_path):
    factors = np.linspace(1.0, 8.0, 32, dtype=np.float32)
    write_gguf(tmp_path / "m.gguf", extra={"rope_freqs.weight": factors})
    with pytest.raises(ModelLoadError, match="rope_freqs.weight are not llama3 RoPE scaling"):
        GgufModel(tmp_path / "m.gguf")


def test_linear_rope_scaling(tmp_path):
    write_gguf(tmp_path / "m.gguf", metadata={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
    assert GgufModel(tmp_path / "m.gguf").config.rope_scaling == RopeScaling("linear", factor=4.0)
    write_gguf(tmp_path / "m.gguf", metadata={"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0})
    assert GgufModel(tmp_path / "m.gguf").config.rope_scaling == RopeScaling()


REFUSED = {
    "yarn": (dict(metadata={"llama.rope.scaling.type": "yarn"}), "RoPE scaling 'yarn' is not supported"),
    "experts": (dict(metadata={"llama.expert_count": 8}), "mixture of 8 experts"),
    "partial rotary": (dict(metadata={"llama.rope.dimension_count": 32}), "RoPE on 32 of 64 dimensions"),
    "adapter": (dict(metadata={"general.type": "adapter"}), "holds no model but its general.type is 'adapter'"),
    "split": (dict(metadata={"split.count": 3}), "split into 3 GGUF files"),
    "layer too many": (
        dict(extra={"blk.2.attn_norm.weight": np.ones(256, np.float32)}),
        "unexpected tensor blk.2.attn_norm",
    ),
    "architecture": (dict(architecture="qwen2"), "GGUF architecture 'qwen2' is not supported; supported: 'llama'"),
    "per-layer heads": (dict(metadata={"llama.attention.head_count_kv": [2, 4]}), "metadata describe no model .*list"),
    "missing embedding": (dict(drop=("token_embd.weight",)), "tensor token_embd.weight is missing"),
    "key of another type": (dict(metadata={"llama.context_length": "big"}), "metadata describe no model .*'big'"),
    "no heads": (dict(metadata={"llama.attention.head_count": 0}), "metadata describe no model .*zero"),
    "missing key": (dict(metadata={"llama.context_length": None}), "metadata lacks llama.context_length"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(tmp_path, case):
    options, message = REFUSED[case]
    write_gguf(tmp_path / "odd.gguf", **options)
    with pytest.raises(ModelLoadError, match=message) as caught:
        GgufModel(tmp_path / "odd.gguf")
    assert "odd.gguf" in str(caught.value)


@pytest.mark.parametrize("keep", [6, 20, 100, 3000, 0.5, -1])
def test_truncated_files(tmp_path, keep):
    """Cut inside the header, the metadata, the tensor list, the data, and before the last byte."""
    write_gguf(tmp_path / "whole.gguf")
    data = (tmp_path / "whole.gguf").read_bytes()
    end = int(len(data) * keep) if isinstance(keep, float) else keep
    (tmp_path / "cut.gguf").write_bytes(data[:end])
    with pytest.raises(ModelLoadError, match=r"cut\.gguf is a truncated or damaged GGUF file"):
        GgufModel(tmp_path / "cut.gguf")


@pytest.mark.parametrize("version", [1, 4])
def test_other_versions_are_not_called_damaged(tmp_path, version):
    write_gguf(tmp_path / "m.gguf")
    data = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(data[:4] + version.to_bytes(4, "little") + data[8:])
    with pytest.raises(ModelLoadError, match=rf"m\.gguf: GGUF version {version}; supported: 2, 3"):
        GgufModel(tmp_path / "m.gguf")


def test_not_a_gguf_file(tmp_path):
    (tmp_path / "text.gguf").write_text("hello, this is no model")
    with pytest.raises(ModelLoadError, match="does not begin with the letters GGUF"):
        GgufModel(tmp_path / "text.gguf")
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(ModelLoadError, match="empty.gguf is not a GGUF file"):
        GgufModel(tmp_path / "empty.gguf")
