# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: every stored type, row order, metadata, RoPE scaling, and what is refused by name."""

from collections.abc import Callable

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


@pytest.fixture
def made(tmp_path) -> Callable[..., tuple[GgufModel, dict[str, torch.Tensor]]]:
    """`write_gguf` of a file, and what is read of it: the model and the weights written."""

    def make(*arguments, **options):
        state = write_gguf(tmp_path / "m.gguf", *arguments, **options)
        return GgufModel(tmp_path / "m.gguf"), state

    return make


@pytest.mark.parametrize("quantisation", STEPS)
def test_tensors_come_back_within_the_step_of_their_type(made, quantisation):
    model, state = made(quantisation=quantisation)
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
def test_types_only_llama_cpp_writes(made, kind):
    """Blocks of arbitrary bits with small scales: as the library reads them, rows put back in order."""
    qtype = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 60, (256, TINY.hidden_size // block * size), dtype=np.uint8)
    model, _ = made(raw={"blk.0.attn_q.weight": (raw, qtype)})
    expected = torch.from_numpy(gguf.dequantize(raw, qtype)).reshape(4, 32, 2, 256)
    expected = torch.cat([expected[:, :, 0], expected[:, :, 1]], dim=1).reshape(256, 256)
    assert torch.isfinite(expected).all() and expected.std() > 0
    assert torch.equal(model.tensor("model.layers.0.self_attn.q_proj.weight"), expected)


def test_a_type_the_library_cannot_dequantise_is_named(made):
    model, _ = made(raw={"blk.0.ffn_up.weight": (np.zeros((512, 256)), gguf.GGMLQuantizationType.F64)})
    with pytest.raises(ModelLoadError, match="tensor blk.0.ffn_up.weight is stored as F64"):
        model.tensor("model.layers.0.mlp.up_proj.weight")


def test_config_from_metadata(made):
    assert made()[0].config == untied(rms_norm_eps=1e-5)
    model, _ = made(untied(tie_word_embeddings=True), metadata={"tokenizer.ggml.eot_token_id": 3})
    assert model.config.tie_word_embeddings and "lm_head.weight" not in model.names
    assert model.config.eos_token_ids == (2, 3)


def test_head_dim_apart_from_hidden_size(made):
    model, state = made(untied(head_dim=32), metadata={"llama.attention.key_length": 32})
    assert model.config.head_dim == 32
    name = "model.layers.1.self_attn.k_proj.weight"
    assert torch.equal(model.tensor(name), state[name])


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_rope_scaling_is_recovered(made, factor):
    """Of what transformers' llama3 scaling divides each base frequency by."""
    from transformers import LlamaConfig as HfConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = dict(factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
    config = untied(rope_theta=500000.0, max_position_embeddings=131072, rope_scaling=RopeScaling("llama3", **scaling))
    theirs = HfConfig(**config.to_hf_dict())
    theirs.standardize_rope_params()
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs, device="cpu")
    factors = 500000.0 ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64) / scaled.double()
    model, _ = made(untied(rope_theta=500000.0), extra={"rope_freqs.weight": factors.float().numpy()})
    assert model.config.rope_scaling == config.rope_scaling


@pytest.mark.parametrize("kind, scaling", [("linear", RopeScaling("linear", factor=4.0)), ("none", RopeScaling())])
def test_linear_rope_scaling(made, kind, scaling):
    model, _ = made(metadata={"llama.rope.scaling.type": kind, "llama.rope.scaling.factor": 4.0})
    assert model.config.rope_scaling == scaling


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
    "foreign frequency factors": (
        dict(extra={"rope_freqs.weight": np.linspace(1.0, 8.0, 32, dtype=np.float32)}),
        "rope_freqs.weight are not llama3 RoPE scaling",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(made, case):
    options, message = REFUSED[case]
    with pytest.raises(ModelLoadError, match=message) as caught:
        made(**options)
    assert "m.gguf" in str(caught.value)


def version(number: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:4] + number.to_bytes(4, "little") + data[8:]


CUT = r"m\.gguf is a truncated or damaged GGUF file"
DAMAGED = {
    # Inside the header, the metadata, the tensor list and the data.
    **{f"cut at {end}": (lambda data, end=end: data[:end], CUT) for end in (6, 20, 100, 3000, -1)},
    "cut in the middle": (lambda data: data[: len(data) // 2], CUT),
    **{f"version {n}": (version(n), rf"m\.gguf: GGUF version {n}; supported: 2, 3") for n in (1, 4)},
    "text": (lambda data: b"hello, this is no model", "does not begin with the letters GGUF"),
    "empty": (lambda data: b"", "m.gguf is not a GGUF file"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_and_those_of_other_versions_are_told_apart(tmp_path, case):
    damage, message = DAMAGED[case]
    path = tmp_path / "m.gguf"
    write_gguf(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelLoadError, match=message):
        GgufModel(path)
