# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The plugin's side of the contract played against the adapter: every request's text is the one it has alone."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass, field

import pytest
import torch

from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.serving import tiny_checkpoint
from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM
from models.llama31_8b.serving.settings import model_settings

from .torch_engine import TorchEngine

USERS, BLOCK, WIDTH = 3, 32, 8


@pytest.fixture(scope="module")
def reference() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_checkpoint.config(), seed=3)


@dataclass
class Request:
    """A sequence as the plugin sees it: tokens so far, and the blocks it has."""

    tokens: list[int]
    wanted: int
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    length: int = 0  # of what a prefill computes: the prompt, or all tokens after a preemption

    def __post_init__(self) -> None:
        self.length = len(self.tokens)


class Plugin:
    """Calls an adapter as vllm-tt-plugin's runner does: rows packed at the front, tables padded with block 0."""

    def __init__(self, model: ReferenceLlama, blocks: int = 40, seed: int = 0) -> None:
        self.adapter = LlamaForCausalLM(
            lambda count, size: TorchEngine(model, USERS, count, size), USERS, BLOCK * WIDTH
        )
        config = model.config
        shape = (blocks, config.num_key_value_heads, BLOCK, config.head_dim)
        self.cache = self.adapter.allocate_kv_cache(shape, torch.bfloat16, config.num_hidden_layers)
        self.free = list(range(1, blocks))
        self.random = random.Random(seed)
        self.random.shuffle(self.free)

    def room(self, request: Request, positions: int) -> None:
        while len(request.pages) * BLOCK < positions:
            request.pages.append(self.free.pop())

    def release(self, request: Request) -> None:
        self.free += request.pages
        self.random.shuffle(self.free)
        request.pages, request.computed, request.length = [], 0, len(request.tokens)

    def table(self, requests: list[Request], rows: int) -> torch.Tensor:
        table = torch.zeros(rows, WIDTH, dtype=torch.int32)
        for row, request in enumerate(requests):
            table[row, : len(request.pages)] = torch.tensor(request.pages)
        return table

    def prefill(self, requests: list[Request], budget: int = 1000) -> None:
        """Prefill what is not computed, at most `budget` tokens of each, and sample where the prompt ends."""
        ends = [min(r.length, r.computed + budget) for r in requests]
        for request, end in zip(requests, ends, strict=True):
            self.room(request, end)
        tokens = torch.zeros(len(requests), max(ends), dtype=torch.int32)
        for row, (request, end) in enumerate(zip(requests, ends, strict=True)):
            tokens[row, :end] = torch.tensor(request.tokens[:end])
        logits = self.adapter.prefill_forward(
            tokens=tokens,
            page_table=self.table(requests, len(requests)),
            kv_cache=self.cache,
            enable_trace=True,
            prompt_lens=ends,
            start_pos=torch.tensor([r.computed for r in requests]),
            empty_slots=list(range(len(requests))),
        )
        for request, end, row in zip(requests, ends, logits, strict=True):
            request.computed = end
            if end == request.length:
                request.tokens.append(int(row[-1].argmax()))
                request.wanted -= 1

    def decode(self, requests: list[Request]) -> None:
        for request in requests:
            self.room(request, len(request.tokens))
        tokens, positions = torch.zeros(USERS, 1, dtype=torch.int32), torch.full((USERS,), -1, dtype=torch.int32)
        for row, request in enumerate(requests):
            tokens[row, 0], positions[row] = request.tokens[-1], len(request.tokens) - 1
        step = self.adapter.decode_forward(
            tokens=tokens,
            page_table=self.table(requests, USERS),
            kv_cache=self.cache,
            start_pos=positions,
            enable_trace=True,
            read_from_device=False,
            slot_remap=torch.arange(USERS),
        )
        logits = self.adapter.process_decode_output_host(self.adapter.read_decode_output(step), is_tokens=False)
        assert logits.shape == (USERS, 1, self.adapter.engine.vocab_size)
        for row, request in enumerate(requests):
            request.computed = len(request.tokens)
            request.tokens.append(int(logits[row, -1].argmax()))
            request.wanted -= 1

    def verify(self, request: Request, drafts: list[int], mode: str) -> int:
        """Verify drafts of one request; return how many were accepted."""
        width = 4
        self.room(request, len(request.tokens) + width)
        tokens, positions = torch.full((USERS, width), -1), torch.full((USERS, width), -1)
        chain = [request.tokens[-1], *drafts]
        tokens[0, : len(chain)] = torch.tensor(chain)
        start = len(request.tokens) - 1
        positions[0, : len(chain)] = torch.arange(start, start + len(chain))
        output = self.adapter.decode_forward(
            tokens=tokens,
            page_table=self.table([request], USERS),
            kv_cache=self.cache,
            start_pos=positions,
            num_valid_drafts=torch.tensor([len(drafts), 0, 0], dtype=torch.int32),
            accepted_counts=torch.ones(USERS, dtype=torch.int32),
            spec_mode=mode,
        )
        if mode == "logits":
            assert output.argmax_ids is None
            targets = output.logits[0].argmax(-1).tolist()
        else:
            assert output.logits is None and output.argmax_ids.dtype == torch.int32
            assert output.argmax_ids[0, len(chain) :].tolist() == [-1] * (width - len(chain))
            targets = output.argmax_ids[0].tolist()
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == targets[accepted]:
            accepted += 1
        given = [*drafts[:accepted], targets[accepted]][: request.wanted]
        request.tokens += given
        request.wanted -= len(given)
        return accepted


def alone(model: ReferenceLlama, prompt: list[int], count: int) -> list[int]:
    """The greedy text of a prompt by the reference and a plain cache."""
    cache, tokens = model.new_cache(1, BLOCK * WIDTH), list(prompt)
    logits = model.prefill([prompt], cache)
    while True:
        tokens.append(int(logits[0, -1].argmax() if logits.ndim == 3 else logits[0].argmax()))
        if len(tokens) == len(prompt) + count:
            return tokens
        logits = model.forward(torch.tensor([tokens[-1:]]), cache)


def prompt_of(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (length,), generator=generator).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_requests_that_come_and_go_get_the_text_they_have_alone(reference, seed):
    plugin, draw = Plugin(reference, seed=seed), random.Random(seed)
    waiting = [Request(prompt_of(draw.randint(1, 100), 10 * seed + n), draw.randint(1, 6)) for n in range(7)]
    expected = [alone(reference, r.tokens, r.wanted) for r in waiting]
    requests, running = list(waiting), []
    while waiting or running:
        if waiting and len(running) < USERS and (not running or draw.random() < 0.5):
            new = [waiting.pop(0) for _ in range(min(len(waiting), USERS - len(running), draw.randint(1, 2)))]
            budget = draw.choice((1000, 40, 64))
            while pending := [r for r in new if r.computed < r.length]:
                plugin.prefill(pending, budget)
            running += new
        elif draw.random() < 0.2:  # preempted: its blocks go to others, and it is computed again later
            waiting.append(running.pop(draw.randrange(len(running))))
            plugin.release(waiting[-1])
        else:
            plugin.decode(running)
        for request in [r for r in running if r.wanted == 0]:
            plugin.release(request)
            running.remove(request)
        draw.shuffle(running)  # rows move
    assert [r.tokens for r in requests] == expected


def test_two_sequences_read_one_prefix(reference):
    plugin = Plugin(reference)
    prefix = prompt_of(2 * BLOCK, 1)
    first, second = Request(prefix + prompt_of(9, 2), 3), Request(prefix + prompt_of(40, 3), 3)
    expected = [alone(reference, r.tokens, 3) for r in (first, second)]
    plugin.prefill([first])
    second.pages, second.computed = first.pages[:2], 2 * BLOCK
    plugin.prefill([second])
    for _ in range(2):
        plugin.decode([second, first])
    assert [first.tokens, second.tokens] == expected


@pytest.mark.parametrize("mode", ["argmax_ids", "logits"])
def test_rejected_drafts_leave_no_trace(reference, mode):
    plugin, prompt, count = Plugin(reference), prompt_of(BLOCK - 2, 5), 12
    expected = alone(reference, prompt, count)
    request, draw = Request(list(prompt), count), random.Random(1)
    plugin.prefill([request])
    counts = []
    while request.wanted:
        right = expected[len(request.tokens) :][: draw.randint(0, 3)]
        if right and draw.random() < 0.5:
            wrong = draw.randrange(len(right))
            right[wrong] = (right[wrong] + 1) % 256
        counts.append(plugin.verify(request, right, mode))
    assert request.tokens == expected
    assert len(set(counts)) > 2


def test_warm_ups_compile_before_they_trace(reference):
    adapter = Plugin(reference).adapter
    for traced in (False, True):
        adapter.warmup_model_prefill(kv_cache=[[]], enable_trace=traced, can_sample_on_device=False)
        adapter.warmup_model_decode(
            kv_cache=[[]], enable_trace=traced, max_batch_size=USERS, num_blocks=WIDTH, can_sample_on_device=False
        )
    assert adapter.engine.warmed == ["prefill", "decode", "traced decode"]


def test_refusals(reference):
    adapter = LlamaForCausalLM(lambda count, size: TorchEngine(reference, USERS, count, size), USERS, 64)
    with pytest.raises(RuntimeError, match="allocate_kv_cache comes first"):
        adapter.warmup_model_decode([[]], False, USERS, WIDTH)
    with pytest.raises(ValueError, match="block size must be one of .* got 16"):
        adapter.allocate_kv_cache((4, 1, 16, 64), torch.bfloat16, 2)
    ready = Plugin(reference).adapter
    with pytest.raises(ValueError, match="row 0 has no tokens between positions 32 and 32"):
        ready.prefill_forward(torch.zeros(1, 32), torch.zeros(1, WIDTH), [[]], [32], [32])
    with pytest.raises(ValueError, match="spec_mode must be logits or argmax_ids, got 'fused_sample'"):
        ready.decode_forward(
            torch.zeros(USERS, 2), torch.zeros(USERS, WIDTH), [[]], torch.zeros(USERS, 2), spec_mode="fused_sample"
        )
    with pytest.raises(ValueError, match="returns logits"):
        ready.process_decode_output_host(torch.zeros(1), is_tokens=True)
    with pytest.raises(ValueError, match="tt_data_parallel must be 1, got 2"):
        LlamaForCausalLM.initialize_vllm_model(None, None, USERS, 64, tt_data_parallel=2)


@pytest.mark.parametrize(
    "overrides, optimizations, message",
    [
        ({"draft": 1}, None, "no setting 'draft'"),
        ({"precision": "accuracy"}, "performance", "name one of them"),
        ({"precision": "fast"}, None, "no precision 'fast'"),
        ({"threshold": 0.1}, None, "threshold have no effect with exact attention"),
        ({"attention": "sink"}, None, "exact or alspec, got 'sink'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(overrides, optimizations, message):
    with pytest.raises(ValueError, match=message):
        model_settings(overrides, optimizations, USERS)


def test_settings_reach_the_model():
    found = model_settings({"attention": "alspec", "chunk_size": 64, "threshold": 0.2}, "accuracy", 4)
    assert (found["attention"].policy, found["attention"].chunk_size, found["attention"].threshold) == (
        "alspec",
        64,
        0.2,
    )
    assert (found["precision"], found["users"]) == ("accuracy", 4)


def test_adapter_imports_neither_vllm_nor_the_plugin():
    code = (
        "import sys; import models.llama31_8b.serving.generator_vllm; "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'vllm', 'vllm_tt_plugin', 'ttnn'}))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
