# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How far and how wide to draft, with which vocabulary, and which layers run in parallel.

Layer-parallel strategies are those of fuzzy drafting (EasySpec algorithm 2, appendix B): a list of groups of
consecutive layers. The attentions of a group all read the hidden state that enters its first layer, so on several
devices they run at once; its MLPs stay sequential. `ReferenceLlama.forward` takes a strategy as `layer_groups`. A
reference in torch runs the layers of a group one after the other: it shows what fuzzy drafting does to acceptance, not
what it saves in time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..config import LlamaConfig

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
    def parse(cls, tree: str | None, length: int | None = None) -> DraftShape:
        """Return the shape that the demo's options ask for: tree None (a chain), "auto" (grown, 4 candidates per node)
        or "DEPTHxWIDTH": 1 + DEPTH * WIDTH nodes, at most 32, on every backend; it sets the length as well.
        Raises ValueError for other texts, or a depth that contradicts `length`."""
        if tree is None:
            return cls(4 if length is None else length)
        if tree == "auto":
            return cls(5 if length is None else length, 4, True)
        match = re.fullmatch(r"(\d+)x(\d+)", tree)
        if not match or 0 in (depth := int(match[1]), width := int(match[2])):
            raise ValueError(f"tree must be DEPTHxWIDTH with both at least 1 (such as 4x2) or 'auto', got {tree!r}")
        if length is not None and length != depth:
            raise ValueError(f"tree {tree} has depth {depth}, but the draft length is given as {length}")
        return cls(depth, width, False, min(DEFAULT_TREE_BUDGET, 1 + depth * width))

    @property
    def most_nodes(self) -> int:
        """The nodes of `width` chains that share their root, at most the budget."""
        return min(self.budget, 1 + self.width * self.length)

    def within(self, length: int, room: int) -> DraftShape:
        """Return this shape cut to a length and to `room` rows (at least 2)."""
        budget = min(self.budget, room)
        return replace(self, length=min(self.length, length, budget - 1), budget=budget)


def check_vocabularies(
    target: LlamaConfig, draft: LlamaConfig, target_fingerprint: str | None = None, draft_fingerprint: str | None = None
) -> None:
    """Raise ValueError with both sides unless sizes, and fingerprints where both are known, are equal."""
    if target.vocab_size != draft.vocab_size:
        raise ValueError(
            f"the draft model {draft.name} has {draft.vocab_size} token ids and the target {target.name} has "
            f"{target.vocab_size}: a draft model must share the target's tokenizer"
        )
    if target_fingerprint and draft_fingerprint and target_fingerprint != draft_fingerprint:
        raise ValueError(
            f"the draft model {draft.name} and the target {target.name} both have {target.vocab_size} "
            f"token ids, but their vocabularies differ (fingerprints {draft_fingerprint[:12]} and "
            f"{target_fingerprint[:12]})"
        )


def groups_of(num_layers: int, fuzzy: int | Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the strategy of table 6 for `fuzzy` layers in parallel, carried over to any number of layers, and a custom
    strategy as lists.

    Layer 0 and the last layer stay alone. Of the groups between them the first has at most three layers, the
    others `fuzzy`, and the last what is left: the rule of the table's rows for 32 and 28 layers. 1 is sequential
    execution. Raises ValueError for sizes that are not in 1 .. num_layers - 2, and for a custom strategy unless it
    names every layer once, in order.
    """
    if not isinstance(fuzzy, int):
        listed = [list(group) for group in fuzzy]
        if not all(listed) or [layer for group in listed for layer in group] != list(range(num_layers)):
            raise ValueError(
                f"a layer-parallel strategy must list layers 0 to {num_layers - 1} once, in order, in groups "
                f"that are not empty; got {listed}"
            )
        return listed
    largest = max(1, num_layers - 2)
    if isinstance(fuzzy, bool) or not 1 <= fuzzy <= largest:
        raise ValueError(
            f"layer-parallel size must be an integer from 1 to {largest} for a model of {num_layers} layers, "
            f"got {fuzzy!r}"
        )
    if fuzzy == 1:
        return [[layer] for layer in range(num_layers)]
    starts = [0, 1, *range(1 + min(3, fuzzy), num_layers - 1, fuzzy), num_layers - 1]
    return [list(range(a, b)) for a, b in zip(starts, [*starts[1:], num_layers])]
