# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter's engine on a mesh: a TtLlama with a paged cache, one traced decode step, and chain verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from ..tt.trace import TracedStep, why_no_trace
from .engine import Engine


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
    """See Engine. A prompt is prefilled through the page table's first row; steps write the whole table anew when it
    differs from what the device holds."""

    def __init__(self, model: TtLlama) -> None:
        if not isinstance(model.cache, PagedKVCache):
            raise TypeError(f"a server's model has a paged cache, this one a {type(model.cache).__name__}")
        self.model, self.users, self.vocab_size = model, model.users, model.config.vocab_size
        self._cache = model.cache
        self._eager = why_no_trace(model.mesh)
        if self._eager is not None:
            logger.info("decode steps run eagerly: {}", self._eager)
        self._inputs: StepInputs | None = None
        self._step: TracedStep[ttnn.Tensor] | None = None
        self._trees: dict[int, tuple[TreeInputs, TracedStep[ttnn.Tensor]]] = {}
        self._table: torch.Tensor | None = None

    def prefill(self, tokens: Sequence[int], start: int, pages: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(self.users, len(pages), dtype=torch.int32)
        table[0] = pages
        self._load_table(table)
        with self._watch_programs():
            self._log_hits()
            logits = cache_prompt(self.model, [0] * start + list(tokens), 0, PREFILL_CHUNK, start=start, logits=True)
            return read(logits)[0, 0, (start + len(tokens) - 1) % TILE].float()

    def decode(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> ttnn.Tensor:
        self._load_table(pages)
        values = (tokens.tolist(), positions.tolist())
        if self._inputs is None or self._step is None:
            inputs = self.model.step_inputs(*values)
            self._inputs = inputs
            self._step = TracedStep(self.model.mesh, lambda: self.model.decode(inputs), self._eager is not None)
        else:
            overwrite(self._inputs, self.model.step_inputs(*values, on_device=False))
        return self._step()

    def verify(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> ttnn.Tensor:
        self._load_table(pages)
        width = tokens.shape[1]
        order = torch.arange(width).repeat(self.users, 1)
        values = (tokens, positions[:, 0].tolist(), order, torch.full_like(order, width - 1))
        if width not in self._trees:
            inputs = self.model.tree_inputs(*values)
            step = TracedStep(self.model.mesh, lambda: self.model.decode_tree(inputs), self._eager is not None)
            self._trees[width] = inputs, step
        else:
            overwrite(self._trees[width][0], self.model.tree_inputs(*values, on_device=False))
        return self._trees[width][1]()

    def read(self, step: ttnn.Tensor) -> torch.Tensor:
        logits = read(step)[0, 0].float()
        self.model.decode_attention.check()
        return logits.reshape(self.users, -1, self.vocab_size)

    def warm_up_prefill(self) -> None:
        pages = torch.zeros(self._width, dtype=torch.int32)
        size = TILE
        while size <= min(PREFILL_CHUNK, self.model.capacity):
            self.prefill([0] * size, 0, pages)
            size *= 2

    def warm_up_decode(self, traced: bool) -> None:
        # In block 0, and with somebody: a pair of chips gives up on a step without users.
        positions = torch.full((self.users,), -1)
        positions[0] = 0
        pages = torch.zeros(self.users, self._width, dtype=torch.int32)
        self.read(self.decode(torch.zeros(self.users, dtype=torch.int32), positions, pages))
        self.model.decode_attention.reset()

    def _log_hits(self) -> None:
        counted = self.model.decode_attention.statistics()
        if counted is not None and counted.hit_rate is not None:
            verified = counted.hits + counted.misses
            logger.info("guesses accepted so far: {} of {}, {:.1%}", counted.hits, verified, counted.hit_rate)

    @property
    def _width(self) -> int:
        return self._cache.width

    def _load_table(self, pages: torch.Tensor) -> None:
        if self._table is None or not torch.equal(self._table, pages):
            self._cache.set_page_table(pages)
            self._table = pages.clone()

    @contextmanager
    def _watch_programs(self) -> Iterator[None]:
        """Release the traces if a prefill compiled new programs, whose buffers may be where they write."""
        before = self.model.mesh.num_program_cache_entries()
        try:
            yield
        finally:
            if self.model.mesh.num_program_cache_entries() != before:
                for step in (self._step, *(step for _, step in self._trees.values())):
                    if step is not None:
                        step.release()
