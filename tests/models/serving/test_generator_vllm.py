# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The plugin's side of the contract played against the adapter: every request's text is the one it has alone. From the
plugin's parameters to draws: numbers of a seed and a position, and parameters that mean greedy."""

import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from models.llama31_8b import tiny
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.serving.draws import choose_on_host, number_at, penalised, requested_draws
from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM

from .plugin_side import BLOCK, USERS, WIDTH, Plugin, Request, TorchEngine, alone, drawn_request, prompt_of, serve


@pytest.fixture(scope="module")
def reference() -> ReferenceLlama:
    return ReferenceLlama.random(tiny.of_bytes(), seed=3)


@pytest.mark.parametrize("chooses, overlap", [("host", False), ("host", True), ("device", False), ("device", True)])
@pytest.mark.parametrize("seed", range(2))
def test_requests_that_come_and_go_get_the_text_they_have_alone(reference, seed, chooses, overlap):
    draw = random.Random(seed)
    plugin = Plugin.over_torch(reference, seed=seed, chooses=chooses)
    requests = [drawn_request(10 * seed + n, draw) for n in range(7)]
    expected = [alone(reference, r) for r in requests]
    serve(plugin, requests, seed, overlap)
    assert [r.tokens for r in requests] == expected
    launches = plugin.adapter.engine.launches
    assert ("sample resident" in launches) == (chooses == "device") and ("decode" in launches) == (chooses == "host")


def test_two_sequences_read_one_prefix(reference):
    plugin = Plugin.over_torch(reference)
    prefix = prompt_of(2 * BLOCK, 1)
    first, second = Request(prefix + prompt_of(9, 2), 3), Request(prefix + prompt_of(40, 3), 3)
    expected = [alone(reference, r) for r in (first, second)]
    plugin.prefill([first])
    second.pages, second.computed = first.pages[:2], 2 * BLOCK
    plugin.prefill([second])
    for _ in range(2):
        plugin.decode([second, first])
    assert [first.tokens, second.tokens] == expected


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("budget", [64, 48])
def test_others_decode_between_the_chunks_of_a_long_prompt(reference, budget, told):
    """Chunks that begin at blocks and inside them. told: whether the plugin takes the rows after a chunk for new ones;
    else their tokens and positions are still the ones on the device."""
    plugin = Plugin.over_torch(reference, chooses="device")
    short, long = Request(prompt_of(9, 1), 8), Request(prompt_of(200, 2), 2)
    expected = [alone(reference, r) for r in (short, long)]
    plugin.prefill([short])
    plugin.decode([short], overlap=True)
    chunks = 0
    while long.computed < long.length:
        plugin.prefill([long], budget)
        plugin.rows = None if told else [short]
        plugin.decode([short], overlap=True)
        chunks += 1
    plugin.settle()
    plugin.decode([short, long])
    plugin.decode([short])
    assert [short.tokens, long.tokens] == expected and chunks == -(-200 // budget)
    assert plugin.adapter.engine.launches[1 : 1 + chunks] == ["sample" if told else "sample resident"] * chunks


def test_what_the_chips_do_not_sample_is_sampled_on_the_host_by_the_same_numbers(reference):
    """All of the vocabulary at a temperature; the tokens are then kept by the adapter, not by the device."""
    plugin = Plugin.over_torch(reference, chooses="device")
    kinds = SamplingParams(0.9, seed=3), SamplingParams(0.5, top_p=0.8)
    requests = [Request(prompt_of(9 + 31 * n, n), 5, params) for n, params in enumerate(kinds)]
    expected = [alone(reference, r) for r in requests]
    plugin.prefill(requests)
    for _ in range(4):
        plugin.decode(requests, overlap=True)
    plugin.settle()
    assert [r.tokens for r in requests] == expected
    assert plugin.adapter.engine.launches == ["decode"] * 4


def test_a_step_that_does_not_continue_the_last_one_is_loaded(reference):
    """As after a prompt's last part, which a plugin may not report as a change of slots."""
    plugin = Plugin.over_torch(reference, chooses="device")
    requests = [Request(prompt_of(9, 1), 6), Request(prompt_of(40, 2), 6)]
    expected = [alone(reference, r) for r in requests]
    plugin.prefill(requests[:1])
    plugin.decode(requests[:1])
    plugin.prefill(requests[1:])
    plugin.rows = list(requests)
    for _ in range(5):
        plugin.decode([r for r in requests if r.wanted])
    assert [r.tokens for r in requests] == expected
    assert plugin.adapter.engine.launches[:3] == ["sample", "sample", "sample resident"]


def test_penalties_and_log_probabilities(reference):
    """By vLLM's formulas, after a step whose tokens only the device has."""
    plugin, request = Plugin.over_torch(reference, chooses="device"), Request(prompt_of(9, 1), 9)
    text = alone(reference, request)
    plugin.prefill([request])
    plugin.decode([request])
    plugin.decode([request])
    plugin.room(request, 13)
    last = len(request.tokens) - 1
    prompt, output = request.prompt, [*request.tokens[9:], text[last + 1]]  # the likeliest token has been put out
    called = dict(page_table=plugin.table([request], USERS), kv_cache=plugin.cache)

    def rows(of_slot_0, empty: int) -> torch.Tensor:
        others = [empty] * len(of_slot_0)
        return torch.tensor([of_slot_0, others, others], dtype=torch.int32)

    stale = dict(tokens=rows([0], 0), start_pos=torch.tensor([last - 1, -1, -1]))
    greedy = dict(temperature=[0.0] * USERS, top_k=[258] * USERS, top_p=[1.0] * USERS, seed=[None] * USERS)
    asked = dict(presence_penalty=[0.5, 0, 0], frequency_penalty=[9.0, 0, 0], repetition_penalty=[3.0, 1.0, 1.0])
    params = SimpleNamespace(**greedy, **asked, enable_log_probs=[True, False, False])
    history = dict(prompt_tokens=rows(prompt, -1), output_tokens=rows(output, -1))
    tokens, log_probs = plugin.adapter.decode_forward(
        **stale, **called, **history, sampling_params=params, reset_batch=False
    )
    assert plugin.adapter.engine.launches[-1] == "decode"
    now = dict(tokens=rows(request.tokens[-1:], 0), start_pos=torch.tensor([last, -1, -1]))
    logits = plugin.adapter.decode_forward(**now, **called)[0, 0]
    expected = logits.clone()
    for token in {*prompt, *output}:
        expected[token] *= 1 / 3 if expected[token] > 0 else 3
    for token in output:
        expected[token] -= 9.0
    for token in set(output):
        expected[token] -= 0.5
    chosen = int(expected.argmax())
    assert chosen != int(logits.argmax()) and tokens.shape == log_probs.shape == (USERS, 1)
    assert int(tokens[0, 0]) == chosen
    torch.testing.assert_close(log_probs[0, 0], logits.log_softmax(-1)[chosen])


def test_warm_ups_compile_before_they_trace(reference):
    adapter = Plugin.over_torch(reference).adapter
    for traced in (False, True):
        adapter.warmup_model_prefill(kv_cache=[[]], enable_trace=traced, can_sample_on_device=False)
        adapter.warmup_model_decode(
            kv_cache=[[]], enable_trace=traced, max_batch_size=USERS, num_blocks=WIDTH, can_sample_on_device=True
        )
    assert adapter.engine.warmed == ["prefill", "decode and sample", "prefill again", "decode and sample"]


def test_refusals(reference):
    adapter = LlamaForCausalLM(partial(TorchEngine, reference, USERS), USERS, 64)
    with pytest.raises(RuntimeError, match="allocate_kv_cache comes first"):
        adapter.warmup_model_decode([[]], False, USERS, WIDTH)
    with pytest.raises(ValueError, match="block size must be one of .* got 16"):
        adapter.allocate_kv_cache((4, 1, 16, 64), torch.bfloat16, 2)
    ready = Plugin.over_torch(reference).adapter
    with pytest.raises(ValueError, match='"sample_on_device_mode": "decode_only"'):
        ready.warmup_model_prefill([[]], False, can_sample_on_device=True)
    with pytest.raises(ValueError, match="row 0 has no tokens between positions 32 and 32"):
        ready.prefill_forward(torch.zeros(1, 32), torch.zeros(1, WIDTH), [[]], [32], [32])
    with pytest.raises(ValueError, match="tt_data_parallel must be 1, got 2"):
        LlamaForCausalLM.initialize_vllm_model(None, None, USERS, 64, tt_data_parallel=2)


def test_numbers_of_a_seed_are_uniform_and_of_nothing_else():
    numbers = [number_at(seed, position) for seed in (0, 5, -3, 2**63) for position in range(500)]
    assert len(set(numbers)) == len(numbers) and kstest(numbers, "uniform").pvalue > 1e-3
    assert number_at(5, 17) == number_at(5, 17) and 0 <= min(numbers) <= max(numbers) < 1


def test_draws_of_requests():
    params = SimpleNamespace(
        temperature=[0.0, 0.7, 0.7, 1.5, 1.0], top_k=[258, 1, 20, 258, -1], top_p=[1.0, 0.0, 0.9, 1.0, 1.0],
        seed=[1, 2, 3, None, 4],
    )  # fmt: skip
    draws = requested_draws(params, torch.tensor([3, 4, 5, 6, -1]), 258, lambda: 0.25)
    greedy = SamplingParams()
    assert [draw.params for draw in draws] == [
        greedy, greedy, SamplingParams(0.7, 20, 0.9), SamplingParams(1.5), greedy
    ]  # fmt: skip
    assert draws[2].number == number_at(3, 6) and draws[3].number == 0.25


# What vLLM's own checks let through.
REQUESTS = st.fixed_dictionaries(
    {
        "temperature": st.floats(0, allow_infinity=False) | st.floats(0, 1e-30),
        "top_k": st.integers(-1, 10) | st.integers(-1, 2**62),
        "top_p": st.floats(0, 1, exclude_min=True),
        "seed": st.none() | st.integers(-(2**63), 2**64),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0, exclude_min=True, allow_infinity=False),
    }
)


@given(REQUESTS, st.lists(st.integers(0, 5), max_size=4), st.floats(0, 1, exclude_max=True))
def test_whatever_a_request_asks_for_a_token_is_chosen(request, output, number):
    logits = torch.tensor([[0.25, -1e30, 3.0, 1e30, -2.5, 0.0]])
    params = SimpleNamespace(**{name: [value] for name, value in request.items()})
    (draw,) = draws = requested_draws(params, torch.tensor([7]), 6, lambda: number)
    history = torch.tensor([[3, -1]]), torch.tensor([[*output, -1]])
    given_logits = penalised(logits, params, *history)
    assert given_logits.isfinite().all()
    chosen = int(choose_on_host(given_logits, draws, torch.tensor([7])))
    assert 0 <= chosen < 6
    if draw.params.greedy or request["temperature"] < 1e-10 or request["top_p"] < 0.1:
        assert given_logits[0, chosen] == given_logits.max()
