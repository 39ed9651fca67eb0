# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The interface between the generation loop and its drafters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Sequence

import torch

from ...checkpoint.errors import ContextLengthError
from ...config import LlamaConfig
from ...generation.sampling import SamplingParams
from ...spec_decode.draft_shape import DraftShape
from ...spec_decode.tree import TokenTreeBatch
from ..model.kv_cache import KVCache
from .draft_verification import DraftVerification


@dataclass(frozen=True, eq=False)
class Draft:
    """Drafted trees of a batch; node 0 is the root, the last decided token.

    tokens: [batch, N] int64. probabilities: [batch, N, vocab], row i what the children of node i were drawn from, or
    None when they were picked deterministically. logits: likewise the draft's raw logits, for the sigmoid approximation
    only. depth: levels below the root that were requested.
    """

    trees: TokenTreeBatch
    tokens: torch.Tensor
    probabilities: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    depth: int = 0


class Drafter(ABC):
    """Drafts continuations. The loop calls start once, then draft and accept in turn.

    step_cost: estimate of one drafted level's cost, a plain target step being 1; used to decide whether drafting pays
    where times may not be measured. calibration_seconds: seconds of the last draft that went into an exact
    pass over decided tokens.
    """

    name: str
    shape: DraftShape
    step_cost: float = 0.0
    calibration_seconds: float = 0.0
    has_logits = False

    def check(self, target: LlamaConfig, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        """Raise ValueError, before any work, for a request that this drafter cannot serve."""
        if self.shape.width > target.vocab_size:
            raise ValueError(f"draft width {self.shape.width} exceeds the vocabulary of {target.vocab_size} ids")
        longest = max(map(len, prompts))
        if longest + self.shape.length > target.max_position_embeddings:
            raise ContextLengthError(
                f"draft length {self.shape.length} after a prompt of {longest} tokens exceeds the context "
                f"of {target.name}: {target.max_position_embeddings} tokens"
            )

    @abstractmethod
    def start(
        self,
        prompts: Sequence[Sequence[int]],
        target_cache: KVCache,
        sampling: SamplingParams,
        generators: Sequence[torch.Generator],
        capacity: int,
        keep_logits: bool = False,
    ) -> None:
        """Begin new texts, one per user. target_cache holds the prompts; capacity: cache entries that a user may
        need."""

    @abstractmethod
    def draft(self, users: Sequence[int], committed: Sequence[Sequence[int]], shape: DraftShape) -> Draft:
        """Draft trees for some users. committed: the tokens of each that were decided since its last draft (or since
        the prompt), at least one; the last is the root."""

    def accept(self, users: Sequence[int], verified: DraftVerification) -> None:
        """Take note of what was accepted of the last draft."""
