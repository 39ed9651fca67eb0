# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter's engine on a mesh: a TtLlama with a paged cache, and traced decode steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import ttnn
from loguru import logger

from ..generation.request import SamplingParams
from ..tt.generator import agreed_tokens, decode_and_choose
from ..tt.kv_cache import PagedKVCache
from ..tt.mesh import TILE, MeshShape
from ..tt.model import TtLlama, cache_prompt, overwrite, read
from ..tt.prefill import PREFILL_CHUNK, padded_rows
from ..tt.sampling.top_k import PerUserSampler, Sampler, draws_among_candidates
from ..tt.settings import ModelSettings
from ..tt.trace import TracedPrefill, TracedStep, slow_dispatch, why_no_trace
from ..tt.weights import HostWeights
from .draws import Draw


def mesh_engine_maker(
    source: str, mesh: ttnn.MeshDevice, settings: dict[str, Any], max_seq_len: int
) -> Callable[[int, int], MeshEngine]:
    """Read a checkpoint for an open mesh and return what builds its engine for a number of blocks and their size.
    settings: of ModelSettings, without the cache's. Raises what `HostWeights.load` raises."""
    capacity = -(-max_seq_len // TILE) * TILE
    weights = HostWeights.load(source, MeshShape(*mesh.shape), ModelSettings(**settings, capacity=capacity))

    def make(blocks: int, block_size: int) -> MeshEngine:
        capacity = -(-max_seq_len // block_size) * block_size
        paged = ModelSettings(**settings, capacity=capacity, cache_blocks=blocks, block_size=block_size)
        return MeshEngine(TtLlama.from_host_weights(weights, mesh, paged))

    return make


class MeshEngine:
    """A model with a KV cache in blocks, for a scheduler that drives it step by step.

    users: slots of a decode step. vocab_size: columns of logits. pages: int32 [blocks], or one row per slot, [users,
    blocks]: the cache's block that holds a sequence's positions from block_size * column on; columns after a sequence's
    end name a block that nobody reads. A step is what its launch returns; a later launch may overwrite its result,
    unless `start_read` came first.

    Decode steps come in three kinds, each with a trace, over the same inputs: "logits", "greedy" where every slot is,
    and "drawn". A step that chooses tokens leaves them, and advanced positions, in the inputs."""

    def __init__(self, model: TtLlama) -> None:
        self.model, self.users, self.vocab_size = model, model.users, model.config.vocab_size
        if not isinstance(model.cache, PagedKVCache):
            raise TypeError(f"a server's models have paged caches, this one a {type(model.cache).__name__}")
        self._cache = model.cache
        self._decoded = 0
        self._eager = why_no_trace(model.mesh)
        if self._eager is not None:
            logger.info("decode steps and prefills run eagerly: {}", self._eager)
        self._prefill = TracedPrefill(model, PREFILL_CHUNK, self._eager is not None)
        self._inputs = model.step_inputs([0] * self.users, [-1] * self.users)
        greedy = Sampler(model.site, SamplingParams())
        self._drawn = PerUserSampler(model.site, self.users)
        self._steps = {
            "logits": self._traced(lambda: model.decode(self._inputs)),
            "greedy": self._traced(lambda: decode_and_choose(model, self._inputs, greedy)),
            "drawn": self._traced(lambda: decode_and_choose(model, self._inputs, self._drawn, self._drawn.numbers)),
        }

    def prefill(self, tokens: Sequence[int], start: int, pages: torch.Tensor) -> torch.Tensor:
        """Cache tokens at positions from `start`, a multiple of the block size, through the page table's first row;
        return the last one's logits, float32 [vocab]."""
        table = torch.zeros(self.users, len(pages), dtype=torch.int32)
        table[0] = pages
        self._cache.set_page_table(table)
        self._log_counts()
        prompt = [0] * start + list(tokens)
        logits = cache_prompt(self.model, prompt, 0, PREFILL_CHUNK, start=start, logits=True, prefill=self._prefill)
        assert logits is not None  # of a prompt that is not empty
        return read(logits)[0, 0, (start + len(tokens) - 1) % TILE].float()

    def decode(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> ttnn.Tensor:
        """Start a step of one token per slot, int [users] each; a position of -1 skips a slot. It yields logits."""
        self._load(tokens, positions)
        return self._run(self._steps["logits"], pages)

    def sample(
        self, tokens: torch.Tensor | None, positions: torch.Tensor, pages: torch.Tensor, draws: Sequence[Draw]
    ) -> ttnn.Tensor:
        """Start a step as `decode` does, that yields each slot's next token, chosen on the device, which also keeps
        them as the next step's inputs. tokens: None to take those that the last step chose, at the positions after
        its."""
        if tokens is not None:
            self._load(tokens, positions)
        if all(draw.params.greedy for draw in draws):
            return self._run(self._steps["greedy"], pages)
        self._drawn.load(draws)
        return self._run(self._steps["drawn"], pages)

    def samples(self, draw: Draw) -> bool:
        """Return whether `sample` takes these parameters."""
        return draws_among_candidates(draw.params, self.vocab_size)

    def start_read(self, step: ttnn.Tensor) -> tuple[ttnn.Tensor, list[Any]]:
        """Start to copy a step's result to the host. Returns what `read` and `read_tokens` take in the step's place,
        and ttnn events that pass when it is there."""
        # Logits are the same on every chip; chosen tokens should be, see `agreed_tokens`.
        wanted = step if step.dtype == ttnn.uint32 else ttnn.get_device_tensors(step)[0]
        if slow_dispatch():  # which has no events
            return wanted.cpu(), []
        return wanted.cpu(blocking=False), [ttnn.record_event(self.model.mesh, 0)]

    def read(self, step: ttnn.Tensor) -> torch.Tensor:
        """Wait for a step and return its logits, float32 [users, 1, vocab]."""
        logits = read(step)[0, 0].float()
        self.model.check()
        return logits.reshape(self.users, -1, self.vocab_size)

    def read_tokens(self, step: ttnn.Tensor) -> torch.Tensor:
        """Wait for a step and return the tokens that it chose, int64 [users, 1]."""
        return agreed_tokens(self.model, step).reshape(self.users, -1)

    def warm_up_prefill(self, again: bool) -> None:
        """Compile what prompts of any length need. again: capture the trace of a whole chunk instead, if there is
        one."""
        pages = torch.zeros(self._cache.width, dtype=torch.int32)
        sizes = {padded_rows(count) for count in range(TILE, min(PREFILL_CHUNK, self.model.capacity) + 1, TILE)}
        if again:
            sizes = {PREFILL_CHUNK} if self._prefill.traces else set()
        for size in sorted(sizes):
            self.prefill([0] * min(size, self.model.capacity), 0, pages)

    def warm_up_decode(self, sampling: bool) -> None:
        """Run each kind of decode step once: the first run compiles it, the second records its trace. sampling: also
        those that choose tokens."""
        # In block 0, and with somebody: a pair of chips gives up on a step without users.
        positions = torch.full((self.users,), -1)
        positions[0] = 0
        tokens, pages = torch.zeros(self.users, dtype=torch.int64), torch.zeros(self.users, self._cache.width)
        first = tokens, positions, pages.int()
        self.read(self.decode(*first))
        if sampling:
            for params in (SamplingParams(), SamplingParams(1.0, top_k=1)):
                self.read_tokens(self.sample(*first, [Draw(params, 0.0)] * self.users))
        self.model.reset()

    def _load(self, tokens: torch.Tensor, positions: torch.Tensor) -> None:
        overwrite(self._inputs, self.model.step_inputs(tokens.tolist(), positions.tolist(), on_device=False))

    def _run(self, step: TracedStep[ttnn.Tensor], pages: torch.Tensor) -> ttnn.Tensor:
        self._decoded += 1
        self._cache.set_page_table(pages)
        return step()

    def _traced(self, launch: Callable[[], ttnn.Tensor]) -> TracedStep[ttnn.Tensor]:
        return TracedStep(self.model.mesh, launch, self._eager is not None)

    def _log_counts(self) -> None:
        """Log, before a prompt, the steps since the server started, warm-ups included, and how guesses fared."""
        logger.info("steps so far: {} decoded", self._decoded)
        counted = self.model.statistics()
        if counted is not None and counted.hit_rate is not None:
            verified = counted.hits + counted.misses
            logger.info("guesses accepted so far: {} of {}, {:.1%}", counted.hits, verified, counted.hit_rate)
