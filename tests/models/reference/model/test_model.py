# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Cache, chunked prefill, batches, token trees and layer groups of the reference model; logits of transformers."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import ContextLengthError, LlamaConfig, RopeScaling
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, ExactAttention, SinkAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model import step as step_module
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.spec_decode.tree import TokenTree
from tests.support.attention_cases import path_to, random_tokens, tiny_config

TOLERANCE = 2e-5  # of logits of order 1, float32, different shapes of the same products
FINE = GuessRange.both_ends(16, 4)


@pytest.fixture(scope="module")
def model() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(), seed=1)


def filled(model: ReferenceLlama, *lengths: int, capacity: int = 200) -> KVCache:
    cache = model.new_cache(len(lengths), capacity)
    model.prefill([random_tokens(n, seed=10 + i) for i, n in enumerate(lengths)], cache)
    return cache


@pytest.mark.parametrize("chunk", [1, 7, 64, 150])
def test_prefill_in_chunks_equals_prefill_at_once(model: ReferenceLlama, chunk: int) -> None:
    prompt = random_tokens(150)
    once, pieces = model.new_cache(1), model.new_cache(1)
    seen = []
    expected = model.prefill([prompt], once, chunk_size=150)
    logits = model.prefill([prompt], pieces, chunk_size=chunk, progress=lambda done, total: seen.append((done, total)))
    torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE)
    for a, b in zip(pieces.keys + pieces.values, once.keys + once.values):
        torch.testing.assert_close(a[:, :, :150], b[:, :, :150], rtol=0, atol=TOLERANCE)
    assert seen[-1] == (150, 150) and len(seen) == -(-150 // chunk)


def test_blocks_of_queries_equal_one_block(model: ReferenceLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.tensor([random_tokens(23, seed=5)])
    parents = [-1, 0, 0, 1, 1, 2, 5, 5, 3] + [8] * 14
    for policy, tree in (
        (None, None),
        (None, TokenTree.from_parents(parents)),
        (SinkAttention(FINE), TokenTree.from_parents(parents)),
    ):
        expected = model.forward(tokens, filled(model, 60), policy=policy, tree=tree, logits="all")
        with monkeypatch.context() as patch:
            patch.setattr(step_module, "QUERY_BLOCK", 5)
            blocked = model.forward(tokens, filled(model, 60), policy=policy, tree=tree, logits="all")
        torch.testing.assert_close(blocked, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("policy", [None, ExactAttention(FINE), SinkAttention(FINE)], ids=["dense", "exact", "sink"])
def test_a_batch_equals_its_users_one_by_one(model: ReferenceLlama, policy) -> None:
    lengths = [50, 50, 3, 90, 31, 32]
    cache = filled(model, *lengths)
    tokens = torch.tensor([random_tokens(4, seed=30 + i) for i in range(len(lengths))])
    singles = [cache.user(user).clone() for user in range(len(lengths))]
    for width in (1, 3):  # a decode step, then three tokens at once
        part, tokens = tokens[:, :width], tokens[:, width:]
        together = model.forward(part, cache, policy=policy, logits="all")
        for user, single in enumerate(singles):
            alone = model.forward(part[user : user + 1], single, policy=policy, logits="all")
            torch.testing.assert_close(together[user : user + 1], alone, rtol=0, atol=TOLERANCE)
    assert cache.lengths.tolist() == [n + 4 for n in lengths]


PARENTS = [-1, 0, 0, 1, 1, 2, -1, 6, 5, 5, 3]


@pytest.mark.parametrize("policy", [None, ExactAttention(FINE)], ids=["dense", "exact"])
def test_tree_nodes_equal_their_paths_decoded_one_by_one(model: ReferenceLlama, policy) -> None:
    cache = filled(model, 70, 41)
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


def test_keep_commits_an_accepted_path_in_order(model: ReferenceLlama) -> None:
    cache = filled(model, 70, 41)
    before = cache.user(0).clone()
    nodes = torch.tensor([random_tokens(len(PARENTS), seed=20), random_tokens(len(PARENTS), seed=21)])
    model.forward(nodes, cache, tree=TokenTree.from_parents(PARENTS), commit=False, logits="none")
    assert cache.lengths.tolist() == [70, 41]
    path = path_to(PARENTS, 9)
    cache.keep(0, path)
    cache.keep(1, [])
    assert cache.lengths.tolist() == [74, 41]
    for node in path:
        model.forward(nodes[0, node].view(1, 1), before)
    for kept, chain in zip(cache.keys + cache.values, before.keys + before.values):
        torch.testing.assert_close(kept[:1, :, :74], chain[:, :, :74], rtol=0, atol=TOLERANCE)
    with pytest.raises(ValueError, match=r"below the 0 written ones, got \[0\]"):
        cache.keep(1, [0])


def test_truncate_then_decode_equals_never_having_decoded(model: ReferenceLlama) -> None:
    cache, fresh = filled(model, 30, 30), filled(model, 30, 30)
    model.forward(torch.tensor([[1, 2, 3], [4, 5, 6]]), cache)
    cache.truncate([30, 30])
    token = torch.tensor([[7], [8]])
    assert torch.equal(model.forward(token, cache), model.forward(token, fresh))
    cache.truncate(5)
    assert cache.lengths.tolist() == [5, 5]
    with pytest.raises(ValueError, match=r"cannot truncate committed lengths \[5, 5\] to \[6, 5\]"):
        cache.truncate([6, 5])


def test_views_share_storage_and_lengths(model: ReferenceLlama) -> None:
    cache = filled(model, 12, 30, 7)
    view = cache.view([2, 0])
    assert view.lengths.tolist() == [7, 12]
    model.forward(torch.tensor([[1], [2]]), view, policy=ExactAttention(GuessRange.both_ends(4, 1)))
    assert cache.lengths.tolist() == [13, 30, 8]
    copy = view.clone()
    copy.truncate(1)
    assert cache.lengths.tolist() == [13, 30, 8] and copy.lengths.tolist() == [1, 1]
    swapped = cache.view([2, 1, 0])
    assert swapped.lengths.tolist() == [8, 30, 13]
    expected = model.forward(torch.tensor([[5]]), cache.user(2).clone())
    torch.testing.assert_close(
        model.forward(torch.tensor([[5], [6], [7]]), swapped)[:1], expected, rtol=0, atol=TOLERANCE
    )
    with pytest.raises(IndexError, match="user 3 is outside this cache of 3 users"):
        cache.user(3)
    with pytest.raises(ValueError, match="distinct users"):
        cache.view([1, 1])


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


BAD_CALLS = {
    "id too high": (dict(tokens=[[89]]), ValueError, "token id 89 is outside the vocabulary of 89 ids"),
    "id negative": (dict(tokens=[[-1]]), ValueError, "token id -1 is outside"),
    "wrong batch": (dict(tokens=[[1], [2]]), ValueError, r"tokens have shape \[2, 1\]; expected \[1, T\]"),
    "no tokens": (dict(tokens=[[]]), ValueError, r"shape \[1, 0\]"),
    "logits option": (dict(tokens=[[1]], logits="some"), ValueError, "got 'some'"),
    "layer missing": (
        dict(tokens=[[1]], layer_groups=[[0], [2]]),
        ValueError,
        r"layers 0 to 2 once.*\[\[0\], \[2\]\]",
    ),
    "layers swapped": (dict(tokens=[[1]], layer_groups=[[1, 0], [2]]), ValueError, "in order"),
    "tree too short": (
        dict(tokens=[[1, 2]], tree=TokenTree.from_parents([-1])),
        ValueError,
        r"tree.enter has shape \[1\]",
    ),
    "cache full": (
        dict(tokens=[[1] * 11]),
        ContextLengthError,
        "90 cached \\+ 11 new tokens exceed the cache capacity of 100",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_forward_arguments_are_named_and_change_nothing(model: ReferenceLlama, name: str) -> None:
    arguments, error, message = BAD_CALLS[name]
    cache = filled(model, 90, capacity=100)
    arguments = dict(arguments, tokens=torch.tensor(arguments["tokens"], dtype=torch.int64))
    with pytest.raises(error, match=message):
        model.forward(cache=cache, **arguments)
    assert cache.lengths.tolist() == [90]


def test_bad_prompts_are_named_before_any_work(model: ReferenceLlama) -> None:
    cache = model.new_cache(2, 50)
    with pytest.raises(ContextLengthError, match="user 1 has 51 tokens; the limit is 50"):
        model.prefill([[1], [2] * 51], cache)
    with pytest.raises(ValueError, match="prompt of user 1 is empty"):
        model.prefill([[1], []], cache)
    with pytest.raises(ValueError, match="token id 100 is outside"):
        model.prefill([[1], [100]], cache)
    with pytest.raises(ValueError, match="1 prompts for a cache of 2 users"):
        model.prefill([[1]], cache)
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        model.prefill([[1], [1]], cache, chunk_size=0)
    assert cache.lengths.tolist() == [0, 0]


def test_bad_caches_are_named(model: ReferenceLlama) -> None:
    with pytest.raises(ContextLengthError, match="cache capacity 257 exceeds the context of tiny: 256"):
        model.new_cache(1, 257)
    with pytest.raises(ValueError, match="got batch 0 and capacity 256"):
        model.new_cache(0)
    with pytest.raises(ValueError, match="got batch 1 and capacity 0"):
        model.new_cache(1, 0)
    with pytest.raises(ValueError, match=r"lengths would be \[1\], written are \[0\]"):
        model.new_cache(1).commit(1)


def test_bfloat16_follows_float32(model: ReferenceLlama) -> None:
    half = ReferenceLlama.random(tiny_config(), seed=1, dtype=torch.bfloat16)
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
