# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter's engine on a mesh: a TtLlama with a paged cache, one traced decode step, and chain verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import ttnn
from loguru import logger

from ..tt.load import HostWeights
from ..tt.model import StepInputs, TreeInputs, TtLlama, overwrite, read
from ..tt.paged_kv_cache import PagedKVCache
from ..tt.parallel.mesh import TILE, MeshShape
from ..tt.prefill import PREFILL_CHUNK, cache_prompt
from ..tt.settings import ModelSettings
from ..tt.trace import TracedStep, watch_programs, why_no_trace
from .engine import Engine

Inputs = StepInputs | TreeInputs


def mesh_engine_maker(
    source: str, mesh: ttnn.MeshDevice, settings: dict[str, Any], max_seq_len: int
) -> Callable[[int, int], Engine]:
    """Read a checkpoint for an open mesh and return what builds its engine for a number of blocks and their size.
    settings: of ModelSettings, without the cache's. Raises what `HostWeights.load` raises."""
    shape = MeshShape(*mesh.shape)
    weights = HostWeights.load(source, shape, ModelSettings(**settings, capacity=_capacity(max_seq_len, TILE)))

    def make(blocks: int, block_size: int) -> MeshEngine:
        paged = ModelSettings(
            **settings, capacity=_capacity(max_seq_len, block_size), cache_blocks=blocks, block_size=block_size
        )
        return MeshEngine(TtLlama.from_host_weights(weights, mesh, paged))

    return make


def _capacity(positions: int, block_size: int) -> int:
    return -(-positions // block_size) * block_size


class MeshEngine:
    """See Engine. A prompt is prefilled through the page table's first row, a step through the whole table."""

    def __init__(self, model: TtLlama) -> None:
        if not isinstance(model.cache, PagedKVCache):
            raise TypeError(f"a server's model has a paged cache, this one a {type(model.cache).__name__}")
        self.model, self.users, self.vocab_size = model, model.users, model.config.vocab_size
        self._cache = model.cache
        self._eager = why_no_trace(model.mesh)
        if self._eager is not None:
            logger.info("decode steps run eagerly: {}", self._eager)
        self._steps: dict[int, tuple[Inputs, TracedStep[ttnn.Tensor]]] = {}  # by tokens per slot, 0: a decode step

    def prefill(self, tokens: Sequence[int], start: int, pages: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(self.users, len(pages), dtype=torch.int32)
        table[0] = pages
        self._cache.set_page_table(table)
        self._log_hits()
        with watch_programs(self.model.mesh, [step for _, step in self._steps.values()]):
            logits = cache_prompt(self.model, [0] * start + list(tokens), 0, PREFILL_CHUNK, start=start, logits=True)
            return read(logits)[0, 0, (start + len(tokens) - 1) % TILE].float()

    def decode(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> ttnn.Tensor:
        make = partial(self.model.step_inputs, tokens.tolist(), positions.tolist())
        return self._run(0, pages, make, self.model.decode)

    def verify(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> ttnn.Tensor:
        width = tokens.shape[1]
        order = torch.arange(width).repeat(self.users, 1)
        last = torch.full_like(order, width - 1)
        make = partial(self.model.tree_inputs, tokens, positions[:, 0].tolist(), order, last)
        return self._run(width, pages, make, self.model.decode_tree)

    def _run(
        self,
        width: int,
        pages: torch.Tensor,
        make: Callable[..., Inputs],
        launch: Callable[[Any], ttnn.Tensor],
    ) -> ttnn.Tensor:
        """Run a step of `width` tokens per slot with the inputs that `make(on_device=)` returns."""
        self._cache.set_page_table(pages)
        if width in self._steps:
            overwrite(self._steps[width][0], make(on_device=False))
        else:
            inputs = make(on_device=True)
            step = TracedStep(self.model.mesh, lambda: launch(inputs), self._eager is not None)
            self._steps[width] = inputs, step
        return self._steps[width][1]()

    def read(self, step: ttnn.Tensor) -> torch.Tensor:
        logits = read(step)[0, 0].float()
        self.model.decode_attention.check()
        return logits.reshape(self.users, -1, self.vocab_size)

    def warm_up_prefill(self) -> None:
        pages = torch.zeros(self._cache.width, dtype=torch.int32)
        size = TILE
        while size <= min(PREFILL_CHUNK, self.model.capacity):
            self.prefill([0] * size, 0, pages)
            size *= 2

    def warm_up_decode(self, traced: bool) -> None:
        # In block 0, and with somebody: a pair of chips gives up on a step without users.
        positions = torch.full((self.users,), -1)
        positions[0] = 0
        pages = torch.zeros(self.users, self._cache.width, dtype=torch.int32)
        self.read(self.decode(torch.zeros(self.users, dtype=torch.int32), positions, pages))
        self.model.decode_attention.reset()

    def _log_hits(self) -> None:
        counted = self.model.decode_attention.statistics()
        if counted is not None and counted.hit_rate is not None:
            verified = counted.hits + counted.misses
            logger.info("guesses accepted so far: {} of {}, {:.1%}", counted.hits, verified, counted.hit_rate)
