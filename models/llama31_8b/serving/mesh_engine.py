# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter's engine on a mesh: a TtLlama with a paged cache, traced decode steps, and chain verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import ttnn
from loguru import logger

from ..generation.sampling_params import SamplingParams
from ..tt.generator import agreed_tokens, decode_and_choose
from ..tt.load import HostWeights
from ..tt.model import TreeInputs, TtLlama, overwrite, read
from ..tt.paged_kv_cache import PagedKVCache
from ..tt.parallel.mesh import TILE, MeshShape
from ..tt.prefill import PREFILL_CHUNK, cache_prompt
from ..tt.sampling.per_user import PerUserSampler, draws_among_candidates
from ..tt.sampling.top_k import Sampler
from ..tt.settings import ModelSettings
from ..tt.trace import TracedStep, slow_dispatch, watch_programs, why_no_trace
from .chains import Chains, ModelChains, SelfChains
from .engine import Draw, Engine
from .settings import Drafter
from .spec_contract import SELF


def mesh_engine_maker(
    source: str, mesh: ttnn.MeshDevice, settings: dict[str, Any], max_seq_len: int, drafter: Drafter | None = None
) -> Callable[[int, int], Engine]:
    """Read a checkpoint for an open mesh and return what builds its engine for a number of blocks and their size.
    settings: of ModelSettings, without the cache's. Raises what `HostWeights.load` raises, and ValueError for a draft
    model with another vocabulary."""
    shape = MeshShape(*mesh.shape)
    exact = {name: settings[name] for name in ("users", "precision")}
    weights = HostWeights.load(source, shape, ModelSettings(**settings, capacity=_capacity(max_seq_len, TILE)))
    draft = None
    if drafter is not None and drafter.model != SELF:
        draft = HostWeights.load(drafter.model, shape, ModelSettings(**exact, capacity=_capacity(max_seq_len, TILE)))
        if draft.config.vocab_size != weights.config.vocab_size:
            raise ValueError(
                f"the draft model {draft.config.name} has {draft.config.vocab_size} token ids and the target "
                f"{weights.config.name} has {weights.config.vocab_size}: they must share a tokenizer"
            )

    def make(blocks: int, block_size: int) -> MeshEngine:
        # A verification may write into the block after the context: its last columns are padding.
        capacity = _capacity(max_seq_len, block_size) + block_size
        paged: dict[str, Any] = dict(capacity=capacity, cache_blocks=blocks, block_size=block_size)
        target = TtLlama.from_host_weights(weights, mesh, ModelSettings(**settings, **paged))
        if draft is None:
            return MeshEngine(target, window=None if drafter is None else drafter.window)
        return MeshEngine(target, TtLlama.from_host_weights(draft, mesh, ModelSettings(**exact, **paged)))

    return make


def _capacity(positions: int, block_size: int) -> int:
    return -(-positions // block_size) * block_size


class MeshEngine:
    """See Engine. A prompt is prefilled through the page table's first row, a step through the whole table.

    Decode steps come in three kinds, each with a trace, over the same inputs: "logits", "greedy" where every slot is,
    and "drawn". A step that chooses tokens leaves them, and advanced positions, in the inputs.

    draft: drafts, in pages of the same numbers. window: the model drafts for itself by as many tokens at either end of
    its cache."""

    def __init__(self, model: TtLlama, draft: TtLlama | None = None, window: int | None = None) -> None:
        self.model, self.users, self.vocab_size = model, model.users, model.config.vocab_size
        self._cache, self._draft, self._window = _paged(model), draft, window
        self._draft_cache = self._cache if draft is None else _paged(draft)
        self._chains: Chains | None = None
        self._launched: Counter[str] = Counter()
        self._eager = why_no_trace(model.mesh)
        if self._eager is not None:
            logger.info("decode steps run eagerly: {}", self._eager)
        self._inputs = model.step_inputs([0] * self.users, [-1] * self.users)
        self._greedy = Sampler(model.mesh, model.mesh_shape, model.config, SamplingParams())
        self._drawn = PerUserSampler(model.mesh, model.mesh_shape, model.config, self.users)
        self._steps = {
            "logits": self._traced(lambda: model.decode(self._inputs)),
            "greedy": self._traced(lambda: decode_and_choose(model, self._inputs, self._greedy)),
            "drawn": self._traced(lambda: decode_and_choose(model, self._inputs, self._drawn, self._drawn.numbers)),
        }
        # By tokens per slot, and whether the chips choose.
        self._verifying: dict[tuple[int, bool], tuple[TreeInputs, TracedStep[ttnn.Tensor]]] = {}

    def prefill(self, tokens: Sequence[int], start: int, pages: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(self.users, len(pages), dtype=torch.int32)
        table[0] = pages
        self._cache.set_page_table(table)
        self._log_counts()
        with watch_programs(self.model.mesh, self._all_steps()):
            prompt = [0] * start + list(tokens)
            if self._draft is not None:
                self._draft_cache.set_page_table(table)
                cache_prompt(self._draft, prompt, 0, PREFILL_CHUNK, start=start)
            logits = cache_prompt(self.model, prompt, 0, PREFILL_CHUNK, start=start, logits=True)
            return read(logits)[0, 0, (start + len(tokens) - 1) % TILE].float()

    def decode(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> ttnn.Tensor:
        self._load(tokens, positions)
        return self._run(self._steps["logits"], pages)

    def sample(
        self, tokens: torch.Tensor | None, positions: torch.Tensor, pages: torch.Tensor, draws: Sequence[Draw]
    ) -> ttnn.Tensor:
        if tokens is not None:
            self._load(tokens, positions)
        if all(draw.params.greedy for draw in draws):
            return self._run(self._steps["greedy"], pages)
        self._drawn.load(draws)
        return self._run(self._steps["drawn"], pages)

    def samples(self, draw: Draw) -> bool:
        return draws_among_candidates(draw.params, self.vocab_size)

    def verify(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor, choose: bool) -> ttnn.Tensor:
        width = tokens.shape[1]
        order = torch.arange(width).repeat(self.users, 1)
        chains = tokens, positions[:, 0].tolist(), order, torch.full_like(order, width - 1)
        # The chips choose among the rows of one tile; of more, the host does.
        kind = width, choose and tokens.numel() <= TILE
        if kind in self._verifying:
            overwrite(self._verifying[kind][0], self.model.tree_inputs(*chains, on_device=False))
        else:
            self._release()
            inputs = self.model.tree_inputs(*chains)
            self._verifying[kind] = inputs, self._traced(partial(self._verify, inputs, kind[1]))
        return self._run(self._verifying[kind][1], pages, "verified")

    def _verify(self, inputs: TreeInputs, choose: bool) -> ttnn.Tensor:
        logits = self.model.decode_tree(inputs, gather_logits=not choose)
        return self._greedy(logits) if choose else logits

    def draft(
        self, decided: Sequence[Sequence[int]], starts: Sequence[int], pages: torch.Tensor, length: int
    ) -> list[list[int]]:
        if self._chains is None:
            self._release()
            eager = self._eager is not None
            if self._draft is not None:
                self._chains = ModelChains(self._draft, length, eager)
            elif self._window is not None:
                self._chains = SelfChains(self.model, self._window, eager)
            else:
                raise ValueError("no model drafts: the setting alspec.draft names one")
        self._draft_cache.set_page_table(pages)
        with self._compiling(*self._chains.steps):
            return self._chains.draft(decided, starts, length)

    def start_read(self, step: ttnn.Tensor) -> tuple[ttnn.Tensor, list]:
        if slow_dispatch():
            return step, []
        # Logits are the same on every chip; chosen tokens should be, see `agreed_tokens`.
        wanted = step if step.dtype == ttnn.uint32 else ttnn.get_device_tensors(step)[0]
        return wanted.cpu(blocking=False), [ttnn.record_event(self.model.mesh, 0)]

    def read(self, step: ttnn.Tensor) -> torch.Tensor:
        logits = read(step)[0, 0].float()
        self.model.decode_attention.check()
        return logits.reshape(self.users, -1, self.vocab_size)

    def read_tokens(self, step: ttnn.Tensor) -> torch.Tensor:
        if step.dtype != ttnn.uint32:
            return self.read(step).argmax(-1)
        return agreed_tokens(self.model, step).reshape(self.users, -1)

    def warm_up_prefill(self) -> None:
        pages = torch.zeros(self._cache.width, dtype=torch.int32)
        size = TILE
        while size <= min(PREFILL_CHUNK, self.model.capacity):
            self.prefill([0] * size, 0, pages)
            size *= 2

    def warm_up_decode(self, sampling: bool) -> None:
        # In block 0, and with somebody: a pair of chips gives up on a step without users.
        positions = torch.full((self.users,), -1)
        positions[0] = 0
        tokens, pages = torch.zeros(self.users, dtype=torch.int64), torch.zeros(self.users, self._cache.width)
        first = tokens, positions, pages.int()
        self.read(self.decode(*first))
        if sampling:
            for params in (SamplingParams(), SamplingParams(1.0, top_k=1)):
                self.read_tokens(self.sample(*first, [Draw(params, 0.0)] * self.users))
        self.model.decode_attention.reset()

    def _load(self, tokens: torch.Tensor, positions: torch.Tensor) -> None:
        overwrite(self._inputs, self.model.step_inputs(tokens.tolist(), positions.tolist(), on_device=False))

    def _run(self, step: TracedStep[ttnn.Tensor], pages: torch.Tensor, what: str = "decoded") -> ttnn.Tensor:
        self._launched[what] += 1
        self._cache.set_page_table(pages)
        with self._compiling(step):
            return step()

    def _compiling(self, *launched: TracedStep) -> AbstractContextManager[None]:
        """Enclose launches, whose first compiles programs."""
        new = any(step.runs == 0 for step in launched)
        return watch_programs(self.model.mesh, self._all_steps()) if new else nullcontext()

    def _traced(self, launch: Callable[[], ttnn.Tensor]) -> TracedStep[ttnn.Tensor]:
        return TracedStep(self.model.mesh, launch, self._eager is not None)

    def _all_steps(self) -> list[TracedStep]:
        drafting = [] if self._chains is None else self._chains.steps
        return [*self._steps.values(), *(step for _, step in self._verifying.values()), *drafting]

    def _release(self) -> None:
        """Release all traces: new tensors must not be where one writes."""
        for step in self._all_steps():
            step.release()

    def _log_counts(self) -> None:
        """Log, before a prompt, the steps since the server started, warm-ups included, and how guesses fared."""
        logger.info("steps so far: {} decoded, {} verified", self._launched["decoded"], self._launched["verified"])
        counted = self.model.decode_attention.statistics()
        if counted is not None and counted.hit_rate is not None:
            verified = counted.hits + counted.misses
            logger.info("guesses accepted so far: {} of {}, {:.1%}", counted.hits, verified, counted.hit_rate)


def _paged(model: TtLlama) -> PagedKVCache:
    if not isinstance(model.cache, PagedKVCache):
        raise TypeError(f"a server's models have paged caches, this one a {type(model.cache).__name__}")
    return model.cache
