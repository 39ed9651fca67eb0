# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What vllm-tt-plugin's runner does with a model class, played with requests of a test."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.serving.draws import number_at
from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM

from .torch_engine import TorchEngine

USERS, BLOCK, WIDTH = 3, 32, 8
GREEDY = SamplingParams()


@dataclass
class Request:
    """A sequence as the plugin sees it: tokens so far, the blocks it has, and how its tokens are chosen."""

    tokens: list[int]
    wanted: int
    params: SamplingParams = GREEDY
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    length: int = 0  # of what a prefill computes: the prompt, or all tokens after a preemption

    def __post_init__(self) -> None:
        self.length = len(self.tokens)
        self.prompt = list(self.tokens)


class Plugin:
    """Calls an adapter as vllm-tt-plugin's runner does: rows packed at the front.

    chooses: who samples decode steps, "host" or "device". wait: for an event, by default TorchEngine's."""

    def __init__(
        self,
        adapter: LlamaForCausalLM,
        config: LlamaConfig,
        *,
        users: int = USERS,
        blocks: int = 40,
        seed: int = 0,
        chooses: str = "host",
        wait: Callable[[Any], None] = lambda step: step.arrive(),
    ) -> None:
        self.wait = wait
        self.adapter, self.chooses, self.users = adapter, chooses, users
        shape = (blocks, config.num_key_value_heads, BLOCK, config.head_dim)
        self.cache = adapter.allocate_kv_cache(shape, torch.bfloat16, config.num_hidden_layers)
        self.blocks, self.free = blocks, list(range(1, blocks))
        self.random = random.Random(seed)
        self.random.shuffle(self.free)
        self.rows: list[Request] | None = None  # of the last decode step, None after a change
        self.pending: tuple[list[Request], object, list] | None = None

    @classmethod
    def over_torch(cls, model: ReferenceLlama, users: int = USERS, **options) -> Plugin:
        def make(blocks: int, size: int) -> TorchEngine:
            return TorchEngine(model, users, blocks, size)

        adapter = LlamaForCausalLM(make, users, BLOCK * WIDTH)
        return cls(adapter, model.config, users=users, **options)

    def room(self, request: Request, positions: int) -> None:
        while len(request.pages) * BLOCK < positions:
            request.pages.append(self.free.pop())

    def release(self, request: Request) -> None:
        self.settle()
        self.rows = None
        self.free += request.pages
        self.random.shuffle(self.free)
        request.pages, request.computed, request.length = [], 0, len(request.tokens)

    def table(self, requests: list[Request], rows: int) -> torch.Tensor:
        """Return a page table, with other sequences' blocks after each row's own, as rows of vLLM's tables have."""
        table = torch.zeros(rows, WIDTH, dtype=torch.int32)
        for row, request in enumerate(requests):
            others = [self.random.randrange(1, self.blocks) for _ in range(WIDTH - len(request.pages))]
            table[row] = torch.tensor(request.pages + others)
        return table

    def prefill(self, requests: list[Request], budget: int = 1000) -> None:
        """Prefill what is not computed, at most `budget` tokens of each, and sample where the prompt ends."""
        self.settle()
        self.rows = None
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
                self._give(request, chosen(row[-1], request.params, end))

    def decode(self, requests: list[Request], overlap: bool = False) -> None:
        """Run a step. overlap: submit it before the last one is read, and leave it pending."""
        steady = self.rows == requests and self.chooses == "device"
        if not (steady and overlap):
            self.settle()
        behind = 0 if self.pending is None else 1
        tokens = torch.zeros(self.users, 1, dtype=torch.int32)
        positions = torch.full((self.users,), -1, dtype=torch.int32)
        for row, request in enumerate(requests):
            self.room(request, len(request.tokens) + behind)
            tokens[row, 0], positions[row] = request.tokens[-1], len(request.tokens) - 1
        step = self.adapter.decode_forward(
            tokens=tokens,
            page_table=self.table(requests, self.users),
            kv_cache=self.cache,
            start_pos=positions,
            enable_trace=True,
            read_from_device=False,
            slot_remap=torch.arange(self.users),
            **self._sampling(requests, reset=not steady),
        )
        self.rows = list(requests)
        if overlap:
            step, events = self.adapter.read_decode_output(step, async_read=True)
            self.settle()
            self.pending = list(requests), step, events
        else:
            self._finish(requests, step)

    def settle(self) -> None:
        """Read the pending step."""
        if self.pending is not None:
            requests, step, events = self.pending
            self.pending = None
            for event in events:
                self.wait(event)
            self._finish(requests, step)

    def _sampling(self, requests: list[Request], reset: bool) -> dict:
        if self.chooses == "host":
            return {}
        empty = self.users - len(requests)
        params = [request.params for request in requests]
        vocab = self.adapter.engine.vocab_size
        found = SimpleNamespace(
            temperature=[p.temperature for p in params] + [0.0] * empty,
            top_k=[p.top_k or vocab for p in params] + [vocab] * empty,
            top_p=[0.0 if p.top_k == 1 else p.top_p for p in params] + [1.0] * empty,
            seed=[p.seed for p in params] + [None] * empty,
            enable_log_probs=[False] * self.users,
        )
        return {"sampling_params": found, "reset_batch": reset}

    def _finish(self, requests: list[Request], step) -> None:
        if not isinstance(step, torch.Tensor):
            step = self.adapter.process_decode_output_host(step, is_tokens=self.chooses == "device")
        if self.chooses == "device":
            assert step.shape == (self.users, 1) and step.dtype == torch.int32
        else:
            assert step.shape == (self.users, 1, self.adapter.engine.vocab_size)
        for row, request in enumerate(requests):
            request.computed = len(request.tokens)
            here = step[row]
            on_device = self.chooses == "device"
            self._give(request, int(here[0]) if on_device else chosen(here[-1], request.params, request.computed))

    @staticmethod
    def _give(request: Request, token: int) -> None:
        if request.wanted:  # a step that overlapped the last one of a request goes nowhere
            request.tokens.append(token)
            request.wanted -= 1


def chosen(logits: torch.Tensor, params: SamplingParams, position: int) -> int:
    """Return the token at a position, of logits [vocab]."""
    if params.greedy:
        return int(logits.argmax())
    number = torch.tensor([number_at(params.seed, position)], dtype=torch.float64)
    return int(inverse_cdf(warp_logits(logits[None], params), number))


def alone(model: ReferenceLlama, request: Request) -> list[int]:
    """Return a request's whole text by the reference and a plain cache."""
    cache, tokens = model.new_cache(1, BLOCK * WIDTH), list(request.prompt)
    logits = model.prefill([tokens], cache)
    for _ in range(request.wanted):
        tokens.append(chosen(logits[0, -1] if logits.ndim == 3 else logits[0], request.params, len(tokens)))
        logits = model.forward(torch.tensor([tokens[-1:]]), cache)
    return tokens


def prompt_of(length: int, seed: int, vocab: int = 256) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, (length,), generator=generator).tolist()


def drawn_request(seed: int, draw: random.Random, vocab: int = 256, longest: int = 100) -> Request:
    """Make a request of random length whose parameters are random too."""
    drawn = SamplingParams(1.0, top_k=8, seed=seed), SamplingParams(0.8, top_k=32, top_p=0.9, seed=7)
    params = draw.choice((GREEDY, *drawn))
    return Request(prompt_of(draw.randint(1, longest), seed, vocab), draw.randint(1, 6), params)


def serve(
    plugin: Plugin,
    requests: list[Request],
    seed: int,
    overlap: bool = False,
    preempt: bool = True,
    budgets: Sequence[int] = (1000, 40, 64),
) -> list[int]:
    """Serve requests that come, move between rows, are preempted and go in a random order, with decode steps between a
    prompt's chunks; return how many each decode step had. budgets: tokens of a chunk."""
    draw, waiting, running, sizes = random.Random(seed), list(requests), [], []
    prefilling: list[Request] = []
    while waiting or prefilling or running:
        free = plugin.users - len(running) - len(prefilling)
        if prefilling and (not running or draw.random() < 0.5):
            plugin.prefill(prefilling, draw.choice(budgets))
        elif waiting and free and (not running or draw.random() < 0.5):
            some = draw.randint(1, max(2, plugin.users // 2))
            new = [waiting.pop(0) for _ in range(min(len(waiting), free, some))]
            plugin.prefill(new, draw.choice(budgets))
            prefilling += new
        elif preempt and draw.random() < 0.2:  # its blocks go to others, and it is computed again later
            waiting.append(running.pop(draw.randrange(len(running))))
            plugin.release(waiting[-1])
        else:
            plugin.decode(running, overlap)
            sizes.append(len(running))
        running += [r for r in prefilling if r.computed >= r.length]
        prefilling = [r for r in prefilling if r.computed < r.length]
        for request in [r for r in running if r.wanted == 0]:
            plugin.release(request)
            running.remove(request)
        if draw.random() < 0.5:
            draw.shuffle(running)  # rows move
    return sizes
