# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What vllm-tt-plugin's runner does with a model class, played with requests of a test: on an engine in torch over
blocks, and on a mesh of a worker."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
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


@dataclass
class Step:
    """A launch, or its copy on the host, which is there once its event has passed."""

    number: int
    result: torch.Tensor
    copied: bool = False
    there: bool = False

    def arrive(self) -> None:
        self.there = True


class Paged:
    """A model over blocks, which start as NaN, so that reading a page that nobody wrote shows."""

    def __init__(self, model: ReferenceLlama, blocks: int, block_size: int) -> None:
        config = model.config
        self.model, self.block_size = model, block_size
        shape = (config.num_hidden_layers, 2, blocks, config.num_key_value_heads, block_size, config.head_dim)
        self.blocks = torch.full(shape, torch.nan, dtype=model.dtype)

    def run(self, tokens: torch.Tensor, start: int, pages: torch.Tensor, padding: int = 0) -> torch.Tensor:
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
        for position in range(start, start + count):
            block, row = int(table[position // self.block_size]), position % self.block_size
            for layer in range(len(cache.keys)):
                self.blocks[layer, 0, block, :, row] = cache.keys[layer][0, :, position]
                self.blocks[layer, 1, block, :, row] = cache.values[layer][0, :, position]
        for position in range(start + count, start + count + padding):
            if position // self.block_size < len(pages):
                self.blocks[:, :, pages[position // self.block_size], :, position % self.block_size] = torch.nan
        return logits


class TorchEngine:
    """What models.llama31_8b.serving.mesh_engine does on a mesh."""

    def __init__(self, model: ReferenceLlama, users: int, blocks: int, block_size: int) -> None:
        self.users, self.vocab_size, self.block_size = users, model.config.vocab_size, block_size
        self.paged = Paged(model, blocks, block_size)
        self.warmed: list[str] = []
        self.launches: list[str] = []
        # What the device keeps for the next step that chooses tokens.
        self.tokens = torch.zeros(users, dtype=torch.int64)
        self.positions = torch.full((users,), -1)

    def prefill(self, tokens, start, pages):
        assert start % self.block_size == 0
        ids = torch.tensor([list(tokens)])
        padding = max(32, 1 << (len(tokens) - 1).bit_length()) - len(tokens)
        return self.paged.run(ids, start, pages, padding)[-1]

    def decode(self, tokens, positions, pages):
        self.launches.append("decode")
        return self._launched(self._logits(tokens[:, None], positions[:, None], pages))

    def sample(self, tokens, positions, pages, draws):
        self.launches.append("sample" if tokens is not None else "sample resident")
        if tokens is not None:
            self.tokens, self.positions = tokens.long(), positions.clone()
        assert torch.equal(self.positions, positions)
        logits = self._logits(self.tokens[:, None], self.positions[:, None], pages)[:, 0]
        self.tokens = choose_on_host(logits, draws, self.positions)
        self.positions = self.positions + (self.positions >= 0)
        return self._launched(self.tokens[:, None])

    def samples(self, draw):
        return draw.params.greedy or 0 < draw.params.top_k <= 32

    def start_read(self, step):
        copy = Step(step.number, self._result(step), copied=True)
        return copy, [copy]

    def read(self, step):
        return self._result(step)

    def read_tokens(self, step):
        return self._result(step)

    def warm_up_prefill(self, again):
        self.warmed.append("prefill again" if again else "prefill")

    def warm_up_decode(self, sampling):
        self.warmed.append("decode and sample" if sampling else "decode")

    def _launched(self, result):
        return Step(len(self.launches), result.clone())

    def _result(self, step):
        if step.copied:
            assert step.there, "nobody has waited for the copy"
        else:
            assert step.number == len(self.launches), "a later step has overwritten the result"
        return step.result

    def _logits(self, tokens, positions, pages):
        found = torch.full((self.users, tokens.shape[1], self.vocab_size), torch.nan)
        for user in range(self.users):
            valid = int((positions[user] >= 0).sum())
            if valid:
                start = int(positions[user, 0])
                assert positions[user, :valid].tolist() == list(range(start, start + valid))
                chain = tokens[user : user + 1, :valid].long()
                found[user, :valid] = self.paged.run(chain, start, pages[user], tokens.shape[1] - valid)
        return found


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


def adapter_on(mesh, users: int, folder: Path, config: LlamaConfig, **settings: Any):
    """Write a checkpoint of random weights into a folder; return the adapter of it. settings: of the adapter."""
    tiny.write_checkpoint(folder, config)
    hf_config = SimpleNamespace(_name_or_path=str(folder), alspec=settings)
    return LlamaForCausalLM.initialize_vllm_model(hf_config, mesh, users, max_seq_len=BLOCK * WIDTH)


def served(
    mesh, folder: Path, requests: list[Request], users: int, seed: int, config: LlamaConfig, **settings: Any
) -> dict[str, Any]:
    """Serve requests that come and go in a random order, steps overlapping, then each alone. Returns the texts, how
    many requests each step had, and how many steps replayed a trace."""
    import ttnn

    on_device = {"chooses": "device", "wait": ttnn.event_synchronize}
    adapter = adapter_on(mesh, users, folder, config, **settings)
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
