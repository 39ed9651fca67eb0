# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Drafting by look-up: what followed the last tokens when they occurred before (prompt look-up decoding)."""

from __future__ import annotations

from typing import Sequence

import torch

from ...generation.sampling import SamplingParams
from ...spec_decode.draft_shape import DraftShape
from ...spec_decode.ngram import NGramTrees
from ...spec_decode.tree import TokenTreeBatch
from ..model.kv_cache import KVCache
from .drafter import Draft, Drafter


class NGramDrafter(Drafter):
    """Drafts without a model, at no cost worth counting; helps where the output repeats its context (NGramTrees)."""

    name = "ngram"

    def __init__(self, shape: DraftShape = DraftShape(8), smallest: int = 2, largest: int = 4) -> None:
        self.trees = NGramTrees(smallest, largest)
        self.trees.check(shape)
        self.shape = shape

    def start(
        self,
        prompts: Sequence[Sequence[int]],
        target_cache: KVCache,
        sampling: SamplingParams,
        generators: Sequence[torch.Generator],
        capacity: int,
        keep_logits: bool = False,
    ) -> None:
        self.trees.start(prompts)

    def draft(self, users: Sequence[int], committed: Sequence[Sequence[int]], shape: DraftShape) -> Draft:
        drafts = [self.trees.draft(user, tokens, shape) for user, tokens in zip(users, committed)]
        batch = TokenTreeBatch.stack([tree for tree, _ in drafts])
        padded = torch.tensor([row + [0] * (batch.width - len(row)) for _, row in drafts])
        return Draft(batch, padded, depth=shape.length)
