# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What vllm-tt-plugin's runner does with a model class, played with requests of a test: on an engine in torch over
blocks, and on a mesh of a worker."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from models.llama31_8b import tiny
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.serving.draws import choose_on_host, number_at
from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM
from tests.support.attention_cases import random_tokens


@dataclass
class Step:
    """A launch, or its copy on the host, which is there once its event has passed."""

    number: int
    result: torch.Tensor
    copied: bool = False
    there: bool = False

    def arrive(self) -> None:
        self.there = True


class TorchEngine:
    """What models.llama31_8b.serving.mesh_engine does on a mesh, over blocks that start as NaN, so that reading a page
    that nobody wrote shows."""

    def __init__(self, model: ReferenceLlama, users: int, blocks: int, block_size: int) -> None:
        config = model.config
        self.model, self.users, self.vocab_size, self.block_size = model, users, config.vocab_size, block_size
        shape = (config.num_hidden_layers, 2, blocks, config.num_key_value_heads, block_size, config.head_dim)
        self.blocks = torch.full(shape, torch.nan, dtype=model.dtype)
        self.warmed: list[str] = []
        self.launches: list[str] = []
        # What the device keeps for the next step that chooses tokens.
        self.tokens = torch.zeros(users, dtype=torch.int64)
        self.positions = torch.full((users,), -1)

    def prefill(self, tokens, start, pages):
        assert start % self.block_size == 0
        padding = max(32, 1 << (len(tokens) - 1).bit_length()) - len(tokens)
        return self._run(torch.tensor([list(tokens)]), start, pages, padding)[-1]

    def decode(self, tokens, positions, pages):
        self.launches.append("decode")
        return self._launched(self._logits(tokens, positions, pages)[:, None])

    def sample(self, tokens, positions, pages, draws):
        self.launches.append("sample" if tokens is not None else "sample resident")
        if tokens is not None:
            self.tokens, self.positions = tokens.long(), positions.clone()
        assert torch.equal(self.positions, positions)
        self.tokens = choose_on_host(self._logits(self.tokens, self.positions, pages), draws, self.positions)
        self.positions = self.positions + (self.positions >= 0)
        return self._launched(self.tokens[:, None])

    def samples(self, draw):
        return draw.params.greedy or 0 < draw.params.top_k <= 32

    def start_read(self, step):
        copy = Step(step.number, self.read(step), copied=True)
        return copy, [copy]

    def read(self, step):
        if step.copied:
            assert step.there, "nobody has waited for the copy"
        else:
            assert step.number == len(self.launches), "a later step has overwritten the result"
        return step.result

    read_tokens = read

    def warm_up_prefill(self, again):
        self.warmed.append("prefill again" if again else "prefill")

    def warm_up_decode(self, sampling):
        self.warmed.append("decode and sample" if sampling else "decode")

    def _launched(self, result):
        return Step(len(self.launches), result.clone())

    def _logits(self, tokens, positions, pages):
        found = torch.full((self.users, self.vocab_size), torch.nan)
        for user in (positions >= 0).nonzero().flatten().tolist():
            (found[user],) = self._run(tokens[user].view(1, 1).long(), int(positions[user]), pages[user])
        return found

    def _run(self, tokens: torch.Tensor, start: int, pages: torch.Tensor, padding: int = 0) -> torch.Tensor:
        """Return logits [tokens, vocab] of tokens at positions from `start`. padding: positions after them that are
        overwritten by NaN, as a device writes what a padded row gives."""
        count, pages = tokens.shape[1], torch.nn.functional.pad(pages, (0, 1))  # block 0 after the context
        need = -(-(start + count) // self.block_size)
        table = pages[:need].long()
        cache = self.model.new_cache(1, need * self.block_size)
        held = self.blocks[:, :, table].permute(0, 1, 3, 2, 4, 5).flatten(3, 4)  # layers, 2, heads, positions, dim
        for layer in range(len(cache.keys)):
            cache.keys[layer][0], cache.values[layer][0] = held[layer, 0], held[layer, 1]
        cache.reserve(start)
        cache.commit(start)
        logits = self.model.forward(tokens, cache, logits="all")[0]
        written = torch.stack([torch.cat(pair) for pair in zip(cache.keys, cache.values, strict=True)])  # as `held`
        for position in range(start, start + count):
            block, row = table[position // self.block_size], position % self.block_size
            self.blocks[:, :, block, :, row] = written[..., position, :]
        for position in range(start + count, start + count + padding):
            if position // self.block_size < len(pages):
                self.blocks[:, :, pages[position // self.block_size], :, position % self.block_size] = torch.nan
        return logits


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
        wait: Callable[[Any], None] = Step.arrive,
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
        adapter = LlamaForCausalLM(partial(TorchEngine, model, users), users, BLOCK * WIDTH)
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
        parts = [torch.tensor(r.tokens[:end], dtype=torch.int32) for r, end in zip(requests, ends, strict=True)]
        logits = self.adapter.prefill_forward(
            tokens=torch.nn.utils.rnn.pad_sequence(parts, batch_first=True),
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
        params = [request.params for request in requests] + [GREEDY] * (self.users - len(requests))
        found = SimpleNamespace(
            temperature=[p.temperature for p in params],
            top_k=[p.top_k or self.adapter.engine.vocab_size for p in params],
            top_p=[0.0 if p.top_k == 1 else p.top_p for p in params],
            seed=[p.seed for p in params],
            enable_log_probs=[False] * self.users,
        )
        return {"sampling_params": found, "reset_batch": reset}

    def _finish(self, requests: list[Request], step) -> None:
        on_device = self.chooses == "device"
        if not isinstance(step, torch.Tensor):
            step = self.adapter.process_decode_output_host(step, is_tokens=on_device)
        if on_device:
            assert step.shape == (self.users, 1) and step.dtype == torch.int32
        else:
            assert step.shape == (self.users, 1, self.adapter.engine.vocab_size)
        for row, request in enumerate(requests):
            request.computed = len(request.tokens)
            here = step[row, -1]
            self._give(request, int(here) if on_device else chosen(here, request.params, request.computed))

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


prompt_of = partial(random_tokens, vocab=256)
BUDGETS = (1000, 40, 64)  # tokens of a chunk


def drawn_request(seed: int, draw: random.Random, longest: int = 100) -> Request:
    """Make a request of random length whose parameters are random too."""
    drawn = SamplingParams(1.0, top_k=8, seed=seed), SamplingParams(0.8, top_k=32, top_p=0.9, seed=7)
    params = draw.choice((GREEDY, *drawn))
    return Request(prompt_of(draw.randint(1, longest), seed), draw.randint(1, 6), params)


def serve(plugin: Plugin, requests: list[Request], seed: int, overlap: bool = False, preempt: bool = True) -> list[int]:
    """Serve requests that come, move between rows, are preempted and go in a random order, with decode steps between a
    prompt's chunks; return how many each decode step had."""
    draw, waiting, running, sizes = random.Random(seed), list(requests), [], []
    prefilling: list[Request] = []
    while waiting or prefilling or running:
        free = plugin.users - len(running) - len(prefilling)
        if prefilling and (not running or draw.random() < 0.5):
            plugin.prefill(prefilling, draw.choice(BUDGETS))
        elif waiting and free and (not running or draw.random() < 0.5):
            some = draw.randint(1, max(2, plugin.users // 2))
            new = [waiting.pop(0) for _ in range(min(len(waiting), free, some))]
            plugin.prefill(new, draw.choice(BUDGETS))
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


def served(
    mesh, folder: Path, requests: list[Request], users: int, seed: int, config: LlamaConfig, **settings: Any
) -> dict[str, Any]:
    """Serve requests that come and go in a random order, steps overlapping, then each alone, from a checkpoint of
    random weights in `folder`. settings: of the adapter. Returns the texts, how many requests each step had, and how
    many steps replayed a trace."""
    import ttnn

    on_device = {"chooses": "device", "wait": ttnn.event_synchronize}
    tiny.write_checkpoint(folder, config)
    hf_config = SimpleNamespace(_name_or_path=str(folder), alspec=settings)
    adapter = LlamaForCausalLM.initialize_vllm_model(hf_config, mesh, users, max_seq_len=BLOCK * WIDTH)
    plugin = Plugin(adapter, config, users=users, blocks=8 * users, seed=seed, **on_device)
    for traced in (False, True):
        plugin.adapter.warmup_model_decode([[]], traced, users, WIDTH, can_sample_on_device=True)
    single = deepcopy(requests)
    sizes = serve(plugin, requests, seed, overlap=True)
    for request in single:
        serve(plugin, [request], seed, preempt=False)
    steps = plugin.adapter.engine._steps
    return {
        "together": [request.tokens for request in requests],
        "alone": [request.tokens for request in single],
        "sizes": sizes,
        "replays": {name: step.replays for name, step in steps.items()},
    }


def built(mesh, users: int, decode_sharding: str) -> dict[str, tuple[int, ...]]:
    """Build each kind of step of two layers of Llama 3.1 8B on a mock mesh, whose two rows speculate, a prompt's chunk
    after cached ones, and where attention is exact a step over trees; return what they give."""
    from models.llama31_8b.serving.draws import Draw
    from models.llama31_8b.serving.mesh_engine import MeshEngine
    from perf.footprint.mesh_build import build_model

    capacity, chunk_size = 4096, 128 if tuple(mesh.shape)[0] == 2 else None
    how = {"decode_sharding": decode_sharding, "cache_blocks": 70}
    model = build_model(mesh, "performance", users, capacity, 2, chunk_size, **how)
    engine, rows = MeshEngine(model), torch.arange(users)
    pages = (torch.arange(users * 64).view(users, 64) % 69 + 1).int()
    found = {"logits": engine.decode(rows, rows + 100, pages)}
    for name, params in (("greedy", SamplingParams()), ("drawn", SamplingParams(0.7, top_k=20, top_p=0.9))):
        found[name] = engine.sample(rows, rows + 100, pages, [Draw(params, 0.5)] * users)
    found["prefill"] = model.prefill([0] * 128, users - 1, capacity - 128, last=True)
    if chunk_size is None and users <= 8:
        walk = torch.arange(4).repeat(users, 1)
        found["tree"] = model.decode(model.tree_inputs(walk, [8] * users, walk, torch.full_like(walk, 3)))
    return {name: tuple(step.shape) for name, step in found.items()}
