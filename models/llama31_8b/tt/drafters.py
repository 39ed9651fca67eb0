# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Who guesses ahead for a TtLlama, and look-up in the text on the host; models that draft: see model_drafters.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from models.llama31_8b.token_speculation.draft_shape import DraftShape
from models.llama31_8b.token_speculation.ngram import NGramTrees
from models.llama31_8b.token_speculation.tree import TokenTree

from .model import TtLlama

# By user: a tree whose node 0 is the last decided token, and its nodes' tokens.
Drafts = dict[int, tuple[TokenTree, list[int]]]


class TreeDrafter(ABC):
    """Guesses continuations. The loop calls check, then start for new texts, then draft in every round, and release."""

    name: str

    @abstractmethod
    def check(self, shape: DraftShape, target: TtLlama) -> None:
        """Raises ValueError for what it cannot draft, or for whom."""

    @abstractmethod
    def start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        """New texts, one a user; their first `cached` tokens are those of the texts before, as far as these went."""

    @abstractmethod
    def draft(self, undrafted: Mapping[int, Sequence[int]], shape: DraftShape) -> Drafts:
        """undrafted: by user the tokens decided since its last draft (or since the prompt), at least one. Drafts are a
        function of the texts alone: point masses to a verifier."""

    def release(self) -> None:
        """After a text: give traces back."""


class LookUpDrafter(TreeDrafter):
    """What followed the last tokens of a text when they occurred in it before (NGramTrees)."""

    name = "ngram"

    def __init__(self) -> None:
        self._trees = NGramTrees()

    def check(self, shape: DraftShape, target: TtLlama) -> None:
        self._trees.check(shape)

    def start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        self._trees.start(texts)

    def draft(self, undrafted: Mapping[int, Sequence[int]], shape: DraftShape) -> Drafts:
        return {user: self._trees.draft(user, tokens, shape) for user, tokens in undrafted.items()}
