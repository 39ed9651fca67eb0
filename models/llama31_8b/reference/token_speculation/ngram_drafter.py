# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Drafting by look-up: what followed the last tokens when they occurred before (prompt look-up decoding)."""

from __future__ import annotations

from typing import Sequence

import torch

from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.token_speculation.drafter import Draft, Drafter
from models.llama31_8b.sampling import SamplingParams
from models.llama31_8b.token_speculation.draft_shape import DraftShape
from models.llama31_8b.token_speculation.ngram import NGramIndex, tree_within_budget
from models.llama31_8b.token_speculation.tree import TokenTree, TokenTreeBatch


class NGramDrafter(Drafter):
    """Needs no model and costs nothing worth counting; helps where the output repeats its context.

    The candidates are a function of the text so far, hence point masses to the verifier. With width above 1
    several occurrences are merged into one tree. smallest, largest: sizes of the n-grams looked up, longest
    first.
    """

    name = "ngram"

    def __init__(self, shape: DraftShape = DraftShape(8), smallest: int = 2, largest: int = 4) -> None:
        if not 1 <= smallest <= largest:
            raise ValueError(f"n-gram sizes need 1 <= smallest <= largest, got {smallest} and {largest}")
        if shape.grown:
            raise ValueError(
                "an n-gram draft has no confidence to grow a tree by: use a chain or DEPTHxWIDTH"
            )
        self.shape, self.smallest, self.largest = shape, smallest, largest
        self.texts: list[NGramIndex] = []

    def start(
        self,
        prompts: Sequence[Sequence[int]],
        target_cache: KVCache,
        sampling: SamplingParams,
        generators: Sequence[torch.Generator],
        capacity: int,
        keep_logits: bool = False,
    ) -> None:
        self.texts = [NGramIndex(self.smallest, self.largest) for _ in prompts]
        for text, prompt in zip(self.texts, prompts):
            text.extend(prompt)

    def draft(self, users: Sequence[int], committed: Sequence[Sequence[int]], shape: DraftShape) -> Draft:
        trees: list[TokenTree] = []
        rows: list[list[int]] = []
        for user, tokens in zip(users, committed):
            text = self.texts[user]
            text.extend(tokens)
            tree, row = tree_within_budget(
                tokens[-1], text.continuations(shape.width, shape.length), shape.budget
            )
            trees.append(tree)
            rows.append(row)
        batch = TokenTreeBatch.stack(trees)
        padded = torch.tensor([row + [0] * (batch.width - len(row)) for row in rows])
        return Draft(batch, padded, depth=shape.length)
