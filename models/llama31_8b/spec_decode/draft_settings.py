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

from loguru import logger

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


class VocabularyMismatchError(ValueError):
    """Draft and target do not number their tokens alike; the message gives both sides."""


def check_vocabularies(
    target: LlamaConfig,
    draft: LlamaConfig,
    target_fingerprint: str | None = None,
    draft_fingerprint: str | None = None,
) -> None:
    """Raise VocabularyMismatchError unless sizes, and fingerprints where both are known, are equal."""
    if target.vocab_size != draft.vocab_size:
        raise VocabularyMismatchError(
            f"the draft model {draft.name} has {draft.vocab_size} token ids and the target {target.name} has "
            f"{target.vocab_size}: a draft model must share the target's tokenizer"
        )
    if target_fingerprint and draft_fingerprint and target_fingerprint != draft_fingerprint:
        raise VocabularyMismatchError(
            f"the draft model {draft.name} and the target {target.name} both have {target.vocab_size} "
            f"token ids, but their vocabularies differ (fingerprints {draft_fingerprint[:12]} and "
            f"{target_fingerprint[:12]})"
        )


def layer_groups(num_layers: int, size: int) -> list[list[int]]:
    """Return the strategy of table 6 for `size` layers in parallel, carried over to any number of layers.

    Layer 0 and the last layer stay alone. Of the groups between them the first has at most three layers, the
    others `size`, and the last what is left: the rule of the table's rows for 32 and 28 layers. size 1 is
    sequential execution. Raises ValueError for sizes that are not in 1 .. num_layers - 2.
    """
    inner = num_layers - 2
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= max(1, inner):
        raise ValueError(
            f"layer-parallel size must be an integer from 1 to {max(1, inner)} for a model of {num_layers} "
            f"layers, got {size!r}"
        )
    if size == 1:
        return [[layer] for layer in range(num_layers)]
    starts = [0, 1, *range(1 + min(3, size), num_layers - 1, size), num_layers - 1]
    return [list(range(a, b)) for a, b in zip(starts, [*starts[1:], num_layers])]


def check_groups(num_layers: int, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return a custom strategy as lists. Raises ValueError unless it names every layer once, in order."""
    listed = [list(group) for group in groups]
    if not all(listed) or [layer for group in listed for layer in group] != list(range(num_layers)):
        raise ValueError(
            f"a layer-parallel strategy must list layers 0 to {num_layers - 1} once, in order, in groups "
            f"that are not empty; got {listed}"
        )
    return listed


def groups_of(num_layers: int, fuzzy: int | Sequence[Sequence[int]]) -> list[list[int]]:
    """Return table 6 for a size, and a list as it is, checked."""
    return layer_groups(num_layers, fuzzy) if isinstance(fuzzy, int) else check_groups(num_layers, fuzzy)


def resolve(num_layers: int, fuzzy: int | Sequence[Sequence[int]] | None) -> list[list[int]] | None:
    """Return None (sequential) for None and groups of one layer each, else `groups_of`."""
    if fuzzy is None:
        return None
    groups = groups_of(num_layers, fuzzy)
    return None if all(len(group) == 1 for group in groups) else groups


def weights_read(config: LlamaConfig) -> int:
    """Return how many weights one decode step reads, the embedding row aside."""
    attention = config.hidden_size * config.head_dim * 2 * (config.num_attention_heads + config.num_key_value_heads)
    layer = attention + 3 * config.hidden_size * config.intermediate_size
    return config.num_hidden_layers * layer + config.vocab_size * config.hidden_size


def self_step_cost(config: LlamaConfig, window: int, cached: int) -> float:
    """Return the cost of a step that reads at most 2 * window of `cached` positions, in units of one that reads all:
    weights and cache."""
    weights = weights_read(config)
    entry = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return (weights + entry * min(cached, 2 * window)) / (weights + entry * cached)


class AdaptiveDraftLength:
    """The length with the most expected tokens per cost; 0, drafting off, when no length beats a plain step.

    Position j has an estimate a_j of P(token j is accepted | those before it are), from decayed counts; a step of k
    levels is expected to yield 1 + a_1 + a_1 a_2 + ... tokens. While off, one short draft every `probe_every` steps
    tests whether things have changed, unless drafting could not pay even if all tokens were accepted.

    Costs are in units of one plain target step. draft_level: one more drafted level. rows_per_level: rows that it adds
    to the target's pass; one costs nothing at first, since a pass is bound by reading the weights. measured: follow the
    clock instead. Lengths then vary from run to run, which changes nothing in a greedy text but would change which
    random draw decides what in a sampled one; so the loop measures only when decoding is greedy. first: the length
    until a step has been timed.
    """

    DECAY = 0.97
    PRIOR = (2.0, 1.6)  # trials, successes: optimistic, so that drafting gets its chance

    def __init__(
        self,
        maximum: int,
        draft_level: float,
        rows_per_level: float = 1.0,
        *,
        measured: bool = False,
        first: int = 0,
        probe_every: int = 32,
    ) -> None:
        if maximum < 1:
            raise ValueError(f"an adaptive draft needs a maximum length of at least 1, got {maximum}")
        self.maximum, self.draft_level, self.rows_per_level, self.verify_row = maximum, draft_level, rows_per_level, 0.0
        self.measured, self.first, self.probe_every = measured, first, probe_every
        self.trials = [self.PRIOR[0]] * maximum
        self.hits = [self.PRIOR[1]] * maximum
        self.off_for = 0
        self._plain: float | None = None
        self._timed_drafts = 0

    def next_length(self) -> int:
        if self.measured and self._plain is None:
            return self.first  # a plain step: the unit of all other times
        length, gain = self._best()
        if length:
            if self.off_for:
                logger.info("drafting is on again: length {} is expected to gain {:.2f}x", length, gain)
            self.off_for = 0
            return length
        if not self.off_for:
            logger.info(
                "drafting is off: the best draft length would give {:.2f}x of plain decoding (first token "
                "accepted {:.0%}, a drafted level costs {:.2f} target steps)",
                gain,
                self.hits[0] / self.trials[0],
                self.draft_level,
            )
        self.off_for += 1
        return 1 if self.off_for % self.probe_every == 0 and self._could_pay() else 0

    def observe(
        self,
        levels: int,
        rows: int,
        accepted: list[tuple[int, int]],
        seconds: tuple[float, float] | None,
    ) -> None:
        """Learn from a step. levels, rows: requested levels and rows of the pass. accepted: (levels drafted, accepted)
        of each user. seconds: of drafting and of the target; None where they do not belong to this step alone."""
        for depth, taken in accepted:
            for position in range(min(depth, taken + 1, self.maximum)):
                self.trials[position] = self.DECAY * self.trials[position] + 1.0
                self.hits[position] = self.DECAY * self.hits[position] + (1.0 if position < taken else 0.0)
        if self.measured and seconds is not None:
            self._time(levels, rows, *seconds)

    def _time(self, levels: int, rows: int, draft: float, target: float) -> None:
        if not levels or rows == 1:
            self._plain = target if self._plain is None else min(self._plain * 1.02, 0.8 * self._plain + 0.2 * target)
        if self._plain is None or not levels:
            return
        weight = max(0.2, 1.0 / (1 + self._timed_drafts))
        self._timed_drafts += 1
        level = draft / self._plain / levels
        self.draft_level += weight * (level - self.draft_level)
        if rows > 1:
            row = max(0.0, (target / self._plain - 1.0) / (rows - 1))
            self.verify_row += weight * (row - self.verify_row)

    def _gain(self, rates: list[float], length: int) -> float:
        tokens, reach = 1.0, 1.0
        for rate in rates[:length]:
            reach *= rate
            tokens += reach
        return tokens / (1.0 + length * self.draft_level + round(length * self.rows_per_level) * self.verify_row)

    def _best(self) -> tuple[int, float]:
        """Return (length, gain); length 0 when nothing gains, with the best gain below 1."""
        rates = [hit / trial for hit, trial in zip(self.hits, self.trials)]
        gain, length = max((self._gain(rates, k), k) for k in range(1, self.maximum + 1))
        return (length, gain) if gain > 1.0 else (0, gain)

    def _could_pay(self) -> bool:
        certain = [1.0] * self.maximum
        return any(self._gain(certain, k) > 1.0 for k in range(1, self.maximum + 1))
