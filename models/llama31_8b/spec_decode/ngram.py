# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Look-up of what followed the last tokens when they occurred before."""

from __future__ import annotations

from collections import defaultdict
from typing import Sequence

from .draft_shape import DraftShape
from .tree import TokenTree, merge_sequences


class NGramIndex:
    """Where every n-gram of one text ends, for sizes smallest .. largest; appending a token is O(sizes)."""

    def __init__(self, smallest: int, largest: int) -> None:
        self.sizes = range(largest, smallest - 1, -1)
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = defaultdict(list)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.tokens.append(int(token))
            for size in self.sizes:
                if size <= len(self.tokens):
                    self._ends[tuple(self.tokens[-size:])].append(len(self.tokens))

    def continuations(self, count: int, length: int) -> list[list[int]]:
        """Return up to `count` different continuations of the text's end, of up to `length` tokens: longer matches
        before shorter ones, later occurrences before earlier ones."""
        found: list[list[int]] = []
        for size in self.sizes:
            for end in reversed(self._ends.get(tuple(self.tokens[-size:]), ())):
                following = self.tokens[end : end + length]
                if following and following not in found:
                    found.append(following)
                    if len(found) == count:
                        return found
        return found


class NGramTrees:
    """Trees of what followed the last tokens of each user's text when they occurred in it before.

    They are a function of the text so far, hence point masses to a verifier. With a shape of several candidates per
    node the continuations of several occurrences are merged. smallest, largest: sizes of the n-grams looked up, longest
    first. Raises ValueError.
    """

    def __init__(self, smallest: int = 2, largest: int = 4) -> None:
        if not 1 <= smallest <= largest:
            raise ValueError(f"n-gram sizes need 1 <= smallest <= largest, got {smallest} and {largest}")
        self.smallest, self.largest = smallest, largest
        self._texts: list[NGramIndex] = []

    @staticmethod
    def check(shape: DraftShape) -> None:
        """Raise ValueError for a shape that needs the confidence of a model."""
        if shape.grown:
            raise ValueError("an n-gram draft has no confidence to grow a tree by: use a chain or DEPTHxWIDTH")

    def start(self, prompts: Sequence[Sequence[int]]) -> None:
        """Begin new texts, one per user."""
        self._texts = [NGramIndex(self.smallest, self.largest) for _ in prompts]
        for text, prompt in zip(self._texts, prompts, strict=True):
            text.extend(prompt)

    def draft(self, user: int, tokens: Sequence[int], shape: DraftShape) -> tuple[TokenTree, list[int]]:
        """Return a tree that continues the user's text, and its tokens. tokens: decided since the last draft, at least
        one; the last is the root, node 0."""
        text = self._texts[user]
        text.extend(tokens)
        return _within_budget(tokens[-1], text.continuations(shape.width, shape.length), shape.budget)


def _within_budget(root: int, sequences: list[list[int]], budget: int) -> tuple[TokenTree, list[int]]:
    """Merge as merge_sequences does, with what exceeds the budget cut off the last sequences."""
    kept: list[list[int]] = []
    for sequence in sequences:
        excess = len(merge_sequences(root, [*kept, sequence])[0]) - budget
        kept.append(sequence[: len(sequence) - excess] if excess > 0 else sequence)
        if excess >= 0:
            break
    return merge_sequences(root, kept, budget)
