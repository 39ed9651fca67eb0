# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference model against transformers in float32."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import LlamaConfig, RopeScaling
from models.llama31_8b.reference.alspec.policies import ExactAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.model import ReferenceLlama
from tests.support.attention_cases import random_tokens, tiny_config

LLAMA3 = RopeScaling(
    "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)
CONFIGS = {
    "multi-head, untied": tiny_config(num_key_value_heads=4),
    "gqa 2, tied": tiny_config(tie_word_embeddings=True),
    "gqa 3 of 9 heads, tied": tiny_config(
        num_attention_heads=9, num_key_value_heads=3, hidden_size=72, tie_word_embeddings=True
    ),
    "multi-query, llama3 rope": tiny_config(num_key_value_heads=1, rope_scaling=LLAMA3, rope_theta=500000.0),
    "gqa, llama3 rope, head_dim apart from hidden": tiny_config(head_dim=16, rope_scaling=LLAMA3),
    "gqa, linear rope": tiny_config(rope_scaling=RopeScaling("linear", factor=4.0)),
    "wide rows, so no transposed copies": tiny_config(
        hidden_size=1056, intermediate_size=1100, num_hidden_layers=2, rms_norm_eps=1e-6
    ),
}


def hf_model(config: LlamaConfig, weights: dict[str, torch.Tensor]):
    """transformers' Llama with these weights."""
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config.to_hf_dict())).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    model.generation_config.eos_token_id = None
    return model


def agree(ours: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
    """Every logit within 1e-4 of the range of the logits."""
    error = (ours - theirs).abs().max().item()
    span = (theirs.max() - theirs.min()).item()
    logger.info("{}: max abs error {:.3e}, {:.3e} of the logit range", what, error, error / span)
    assert error <= 1e-4 * span


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_agree_with_transformers(name: str) -> None:
    config = CONFIGS[name]
    weights = random_state_dict(config, seed=3)
    model = ReferenceLlama.from_state_dict(config, weights)
    theirs = hf_model(config, weights)
    tokens = torch.tensor([random_tokens(200, seed=1), random_tokens(200, seed=2)])
    with torch.no_grad():
        expected = theirs(tokens).logits
    agree(model.forward(tokens, model.new_cache(2), logits="all"), expected, f"{name}, one pass")

    cache = model.new_cache(2)
    agree(model.prefill(tokens[:, :190], cache, chunk_size=48), expected[:, 189], f"{name}, chunked prefill")
    policy = ExactAttention(chunk_size=32)
    steps = [model.forward(tokens[:, i : i + 1], cache, policy=policy)[:, 0] for i in range(190, 200)]
    agree(torch.stack(steps, dim=1), expected[:, 190:], f"{name}, decoding")


@pytest.mark.model
def test_smollm2_agrees_with_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    from models.llama31_8b.checkpoint.load import resolve_source
    from models.llama31_8b.reference.load import load_model

    monkeypatch.delenv("HF_MODEL", raising=False)
    loaded = load_model()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(resolve_source()[0], dtype=torch.float32).eval()
    prompt = loaded.tokenizer.encode("The tide tables of the old harbour were kept in two books. In the first")
    result = generate(loaded.model, [prompt], max_new_tokens=32, eos_token_ids=())
    made = result.token_ids[0]
    assert len(made) == 32
    text = torch.tensor([prompt + made])
    with torch.no_grad():
        expected = theirs(text).logits
    # The text is their greedy one: each token is their likeliest after the ones before it. One pass says so.
    assert made == expected[0, len(prompt) - 1 : -1].argmax(-1).tolist()
    agree(
        loaded.model.forward(text, loaded.model.new_cache(1, text.shape[1]), logits="all"),
        expected,
        "SmolLM2",
    )
