# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Chains drafted in pages: by a draft model, whose cache has the target's blocks and page table, or by the target.

What a draft model holds of a sequence is in the sequence's blocks, so it follows the sequence to other slots, is shared
where prefixes are, and comes back with a preempted sequence's prefill.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..generation.sampling_params import SamplingParams
from ..spec_decode.tree import TokenTree
from ..tt.decode_attention.sink_static import GuessAttention
from ..tt.model import TtLlama
from ..tt.sampling.top_k import Sampler
from ..tt.spec_decode.draft_loop import ChainSteps
from ..tt.spec_decode.model_drafters import ExactPass
from ..tt.trace import TracedStep


class Chains(Protocol):
    """Drafts by a model on the mesh. steps: its traced ones."""

    steps: list[TracedStep]

    def draft(self, decided: Sequence[Sequence[int]], starts: Sequence[int], length: int) -> list[list[int]]:
        """Return `length` drafted tokens per slot. decided: each slot's tokens from position `starts` on: the last
        step's input and what it decided; an empty one skips the slot."""


class ModelChains:
    """Drafts by a smaller model: an exact pass over the decided tokens (EasySpec's bonus calibration), whose last row
    yields the first draft, and a step per further one. length: the most drafts."""

    def __init__(self, draft: TtLlama, length: int, eager: bool) -> None:
        sampler = Sampler(draft.mesh, draft.mesh_shape, draft.config, SamplingParams())
        self._exact = ExactPass(draft, length + 2, sampler, 1, eager)
        self._chain = ChainSteps(draft, sampler, eager)
        self.steps = [self._exact.traced_step, self._chain.traced_step]

    def draft(self, decided: Sequence[Sequence[int]], starts: Sequence[int], length: int) -> list[list[int]]:
        slots = {slot: list(tokens) for slot, tokens in enumerate(decided) if tokens}
        ranked = self._exact.follow({slot: (TokenTree.chain(len(t)), t) for slot, t in slots.items()}, starts)
        first = {slot: ranked[slot][len(tokens) - 1][0] for slot, tokens in slots.items()}
        ends = [start + len(tokens) for start, tokens in zip(starts, decided, strict=True)]
        rest = self._chain.follow(first, ends, length - 1)
        return [[first[slot], *rest[slot]] if slot in slots else [0] * length for slot in range(len(decided))]


class SelfChains:
    """Drafts by the target with attention to the first and last `window` tokens of its cache; verification overwrites
    what they leave there."""

    def __init__(self, target: TtLlama, window: int, eager: bool) -> None:
        guessing = target.with_attention(GuessAttention(target.config, window, target.decode_attention))
        sampler = Sampler(target.mesh, target.mesh_shape, target.config, SamplingParams())
        self._chain = ChainSteps(guessing, sampler, eager)
        self.steps = [self._chain.traced_step]

    def draft(self, decided: Sequence[Sequence[int]], starts: Sequence[int], length: int) -> list[list[int]]:
        last = {slot: tokens[-1] for slot, tokens in enumerate(decided) if tokens}
        before = [start + len(tokens) - 1 for start, tokens in zip(starts, decided, strict=True)]
        chains = self._chain.follow(last, before, length)
        return [chains.get(slot, [0] * length) for slot in range(len(decided))]
