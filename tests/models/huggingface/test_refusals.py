# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What "alspec" cannot serve is refused by name, before it computes something else."""

import pytest
import torch

import models.llama31_8b.huggingface as alspec
from models.llama31_8b.huggingface.attention import alspec_attention
from models.llama31_8b.reference.model.step import GuessRange
from tests.models.huggingface.tiny_transformers import Layer, tiny_decoder

IDS = torch.ones((1, 8), dtype=torch.int64)
SLIDING = {"sliding_window": 16}


@pytest.mark.parametrize(
    "kind,options,message",
    [
        ("gemma2", {}, "model type 'gemma2' cannot be served: soft caps of attention scores.*=50.0"),
        ("mistral", SLIDING, "model type 'mistral' cannot be served: a sliding window of 16 tokens"),
        (
            "qwen2",
            {**SLIDING, "use_sliding_window": True, "max_window_layers": 1},
            "model type 'qwen2' cannot be served: 2 layers of sliding_attention .sliding_window=16",
        ),
        ("gemma3_text", SLIDING, "model type 'gemma3_text' cannot be served: 3 layers of sliding_attention"),
    ],
)
def test_model_types_with_other_attention(kind, options, message) -> None:
    model = tiny_decoder(kind, **options)
    with pytest.raises(alspec.UnsupportedAttentionError, match=message), torch.no_grad():
        model(input_ids=IDS)


def test_attaching_names_the_model_that_cannot_be_served() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    with pytest.raises(alspec.UnsupportedAttentionError, match="'gemma2' cannot be served: soft caps"):
        alspec.AttentionSpeculation().attach(tiny_decoder("gemma2"))
    message = "LlamaForCausalLM has attn_implementation='sdpa': load it with attn_implementation='alspec'"
    with pytest.raises(alspec.UnsupportedAttentionError, match=message):
        alspec.AttentionSpeculation().attach(tiny_decoder(attention="sdpa"))
    with pytest.raises(alspec.UnsupportedAttentionError, match="'t5' cannot be served: it is an encoder and"):
        shape = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
        alspec.AttentionSpeculation().attach(T5ForConditionalGeneration(T5Config(**shape)))


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"chunk_size": 48}, "chunk_size 48 is not a multiple of tail_alignment 32"),
        ({"budget": 0.9, "chunk_size": GuessRange(16, 16, 16)}, "budget 0.9 beside GuessRange"),
        ({"step_tokens": 0}, "step_tokens must be a positive integer, got 0"),
    ],
)
def test_wrong_settings(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        alspec.AttentionSpeculation(**settings)


def attend(mask=None, placed: bool = True, **options):
    query, key = torch.randn(1, 4, 1, 16), torch.randn(1, 2, 80, 16)
    module = Layer(alspec.AttentionSpeculation())
    if not placed:
        del module.layer_idx
    return alspec_attention(module, query, key, key, mask, **{"scaling": 0.25, **options})


@pytest.mark.parametrize(
    "options,message",
    [
        ({"softcap": 30.0}, r"soft caps of attention scores \(softcap\)"),
        ({"sliding_window": 64}, r"a sliding window \(sliding_window\)"),
        ({"s_aux": torch.zeros(4)}, r"learned attention sinks \(s_aux\)"),
        ({"position_bias": torch.zeros(1)}, r"position biases \(position_bias\)"),
        ({"is_causal": False}, "its attention is not causal"),
        ({"placed": False}, "Layer has no layer_idx"),
        ({"dropout": 0.1}, "attention dropout 0.1.*model.eval"),
        ({"mask": torch.zeros(1, 1, 1, 80)}, r"a mask of torch.float32 \[1, 1, 1, 80\]; expected torch.bool"),
        ({"mask": torch.ones(1, 4, 1, 80, dtype=torch.bool)}, r"torch.bool \[1, 4, 1, 80\]"),
        (
            {"position_ids": torch.tensor([[69]])},
            "80 keys for a token at position 69, without a mask: a static cache's unwritten keys",
        ),
    ],
)
def test_what_a_model_hands_over(options, message) -> None:
    with pytest.raises(alspec.UnsupportedAttentionError, match=message):
        attend(**options)
