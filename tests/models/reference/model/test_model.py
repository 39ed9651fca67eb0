# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks of queries, token trees and layer groups of the reference model, what it refuses, and transformers' logits."""

import pytest
import torch
import transformers
from loguru import logger

from models.llama31_8b.checkpoint.load import resolve_source
from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import ContextLengthError, RopeScaling
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, ExactAttention, SinkAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.load import load_model
from models.llama31_8b.reference.model import step as step_module
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.spec_decode.tree import TokenTree
from tests.support.attention_cases import filled, path_to, random_tokens, tiny_config

TOLERANCE = 2e-5  # of logits of order 1, float32, different shapes of the same products
FINE = GuessRange.both_ends(16, 4)


def test_blocks_of_queries_equal_one_block(model: ReferenceLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.tensor([random_tokens(23, seed=5)])
    parents = [-1, 0, 0, 1, 1, 2, 5, 5, 3] + [8] * 14
    for policy, tree in (
        (None, None),
        (None, TokenTree.from_parents(parents)),
        (SinkAttention(FINE), TokenTree.from_parents(parents)),
    ):
        expected = model.forward(tokens, filled(model, [60], 200), policy=policy, tree=tree, logits="all")
        with monkeypatch.context() as patch:
            patch.setattr(step_module, "QUERY_BLOCK", 5)
            blocked = model.forward(tokens, filled(model, [60], 200), policy=policy, tree=tree, logits="all")
        torch.testing.assert_close(blocked, expected, rtol=0, atol=TOLERANCE)


PARENTS = [-1, 0, 0, 1, 1, 2, -1, 6, 5, 5, 3]


@pytest.mark.parametrize("policy", [None, ExactAttention(FINE)], ids=["dense", "exact"])
def test_tree_nodes_equal_their_paths_decoded_one_by_one(model: ReferenceLlama, policy) -> None:
    cache = filled(model, [70, 41], 200)
    nodes = torch.tensor([random_tokens(len(PARENTS), seed=20), random_tokens(len(PARENTS), seed=21)])
    logits = model.forward(
        nodes, cache.clone(), policy=policy, tree=TokenTree.from_parents(PARENTS), logits="all", commit=False
    )
    for user in range(2):
        for node in range(len(PARENTS)):
            single = cache.user(user).clone()
            for ancestor in path_to(PARENTS, node):
                alone = model.forward(nodes[user, ancestor].view(1, 1), single, policy=policy)
            torch.testing.assert_close(logits[user, node], alone[0, 0], rtol=0, atol=TOLERANCE)


def test_a_group_feeds_its_first_hidden_state_to_all_its_attentions() -> None:
    """EasySpec's algorithm 2 on two layers, from the model's own parts at one position (attention = its
    value)."""
    config = tiny_config(num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
    model = ReferenceLlama.random(config, seed=9)
    _, hidden = model.forward(torch.tensor([[5]]), model.new_cache(), layer_groups=[[0, 1]], logits="none", hidden=True)

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean() + config.rms_norm_eps).sqrt() * weight

    start = x = model.embedding[5]
    rows = config.num_key_value_heads * config.head_dim
    for layer in model.layers:  # one cached token: softmax weight 1, so attention returns the token's value
        value = layer.qkv.weight[-rows:] @ norm(start, layer.attention_norm)
        x = x + layer.o.weight @ value
        gate, up = (layer.gate_up.weight @ norm(x, layer.mlp_norm)).chunk(2)
        x = x + layer.down.weight @ (torch.nn.functional.silu(gate) * up)
    torch.testing.assert_close(hidden[0, 0], norm(x, model.norm), rtol=0, atol=TOLERANCE)


ONE = torch.tensor([[1], [1]])
# Calls with an empty cache of two users and 50 positions.
BAD_CALLS = [
    (lambda model, cache: model.forward(ONE * 89, cache), "token id 89 is outside the vocabulary of 89 ids"),
    (lambda model, cache: model.forward(-ONE, cache), "token id -1 is outside"),
    (lambda model, cache: model.forward(ONE[:1], cache), r"tokens have shape \[1, 1\]; expected \[2, T\]"),
    (lambda model, cache: model.forward(ONE[:, :0], cache), r"shape \[2, 0\]"),
    (lambda model, cache: model.forward(ONE, cache, logits="some"), "got 'some'"),
    (lambda model, cache: model.forward(ONE, cache, layer_groups=[[0], [2]]), r"layers 0 to 2 once.*\[\[0\], \[2\]\]"),
    (lambda model, cache: model.forward(ONE, cache, layer_groups=[[1, 0], [2]]), "in order"),
    (lambda model, cache: model.forward(ONE.expand(2, 2), cache, tree=TokenTree.chain(1)), "tree.enter has shape"),
    (
        lambda model, cache: model.forward(ONE.expand(2, 51), cache),
        r"0 cached \+ 51 new tokens exceed .* capacity of 50",
    ),
    (lambda model, cache: model.prefill([[1], [2] * 51], cache), "user 1 has 51 tokens; the limit is 50"),
    (lambda model, cache: model.prefill([[1], []], cache), "prompt of user 1 is empty"),
    (lambda model, cache: model.prefill([[1], [100]], cache), "token id 100 is outside"),
    (lambda model, cache: model.prefill([[1]], cache), "1 prompts for a cache of 2 users"),
    (lambda model, cache: model.new_cache(1, 257), "cache capacity 257 exceeds the context of tiny: 256"),
    (lambda model, cache: model.new_cache(0), "got batch 0 and capacity 256"),
    (lambda model, cache: cache.commit(1), r"lengths would be \[1, 1\], written are \[0, 0\]"),
    (lambda model, cache: cache.keep(1, [0]), r"below the 0 written ones, got \[0\]"),
    (lambda model, cache: cache.truncate([1, 0]), r"cannot truncate committed lengths \[0, 0\] to \[1, 0\]"),
    (lambda model, cache: cache.view([1, 1]), "distinct users"),
    (lambda model, cache: cache.user(2), "user 2 is outside this cache of 2 users"),
]


@pytest.mark.parametrize("call, message", BAD_CALLS)
def test_bad_calls_are_named_and_change_nothing(model: ReferenceLlama, call, message: str) -> None:
    cache = model.new_cache(2, 50)
    with pytest.raises((ValueError, IndexError, ContextLengthError), match=message):
        call(model, cache)
    assert cache.lengths.tolist() == [0, 0]


def test_bfloat16_follows_float32(model: ReferenceLlama) -> None:
    half = ReferenceLlama.random(tiny_config(), seed=2, dtype=torch.bfloat16)
    prompt = random_tokens(120)
    cache = half.new_cache(1)
    half.prefill([prompt], cache)
    logits = half.forward(torch.tensor([[3]]), cache, policy=ALSpecAttention(0.1, 32))
    reference = model.new_cache(1)
    model.prefill([prompt], reference)
    expected = model.forward(torch.tensor([[3]]), reference)
    assert cache.keys[0].dtype == torch.bfloat16 and logits.dtype == torch.float32
    assert torch.corrcoef(torch.stack([logits.flatten(), expected.flatten()]))[0, 1] > 0.99


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
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config.to_hf_dict())).eval()
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    theirs.tie_weights()
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
def test_smollm2_agrees_with_transformers() -> None:
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
    agree(loaded.model.forward(text, loaded.model.new_cache(1, text.shape[1]), logits="all"), expected, "SmolLM2")
