# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How far and how wide to draft."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

#: Rows of one tile on the device: verifying up to 32 rows costs what verifying one does.
DEFAULT_TREE_BUDGET = 32
#: Tokens at either end of the cache that a model reads when it drafts for itself.
SELF_WINDOW = 256


@dataclass(frozen=True)
class DraftShape:
    """How far and how wide to draft.

    length: tokens ahead (depth of a tree). width: candidates per node (1: a chain). grown: tree grown by confidence
    instead of a fixed one. budget: rows of one verification pass, the root included. Raises ValueError.
    """

    length: int = 4
    width: int = 1
    grown: bool = False
    budget: int = DEFAULT_TREE_BUDGET

    def __post_init__(self) -> None:
        for name, low in (("length", 0), ("width", 1), ("budget", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ValueError(f"draft {name} must be an integer of at least {low}, got {value!r}")
        if self.length >= self.budget:
            raise ValueError(
                f"a draft of {self.length} tokens needs {self.length + 1} rows with its root, a verification pass has "
                f"{self.budget}"
            )

    @classmethod
    def parse(cls, tree: str | None, length: int | None = None, budget: int = DEFAULT_TREE_BUDGET) -> DraftShape:
        """Return the shape that the demo's options ask for: tree None (a chain), "auto" (grown, 4 candidates per node)
        or "DEPTHxWIDTH": 1 + DEPTH * WIDTH nodes, at most `budget`, on every backend; it sets the length as well.
        Raises ValueError for other texts, or a depth that contradicts `length`."""
        if tree is None:
            return cls(4 if length is None else length, 1, False, budget)
        if tree == "auto":
            return cls(5 if length is None else length, 4, True, budget)
        match = re.fullmatch(r"(\d+)x(\d+)", tree)
        if not match or 0 in (depth := int(match[1]), width := int(match[2])):
            raise ValueError(f"tree must be DEPTHxWIDTH with both at least 1 (such as 4x2) or 'auto', got {tree!r}")
        if length is not None and length != depth:
            raise ValueError(f"tree {tree} has depth {depth}, but the draft length is given as {length}")
        return cls(depth, width, False, min(budget, 1 + depth * width))

    @property
    def most_nodes(self) -> int:
        """The nodes of `width` chains that share their root, at most the budget."""
        return min(self.budget, 1 + self.width * self.length)

    def within(self, length: int, room: int) -> DraftShape:
        """Return this shape cut to a length and to `room` rows (at least 2)."""
        budget = min(self.budget, room)
        return replace(self, length=min(self.length, length, budget - 1), budget=budget)
