# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Who guesses ahead for a TtLlama, and look-up in the text on the host; models that draft: see model_drafters.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...spec_decode.draft_shape import DraftShape
from ...spec_decode.ngram import NGramTrees
from ...spec_decode.tree import TokenTree
from ..model import TtLlama
from ..trace import TracedStep
from .tree_step import ROOT, TreeStep

if TYPE_CHECKING:
    import torch

    from tt_kernels.speculative_sampling.op import Verified

# By user: a tree whose node 0 is the last decided token, and its nodes' tokens.
Drafts = dict[int, tuple[TokenTree, list[int]]]


class Rounds(ABC):
    """Rounds of draft, verification and commit, whoever drafts. The loop calls load and then the object itself in every
    round, and release at the end.

    least: the fewest tokens that drafting less would save anything of. drafting_seconds: what drafting took of the last
    round beside `load`. calibration_seconds: what exact passes over decided tokens took of all its drafting.
    """

    min_length = 0
    drafting_seconds = 0.0
    calibration_seconds = 0.0

    @abstractmethod
    def load(
        self,
        undrafted: Mapping[int, list[int]],
        lengths: Sequence[int],
        generators: Sequence[torch.Generator],
        length: int,
    ) -> dict[int, TokenTree]:
        """undrafted: by user who goes on, as of TreeDrafter.draft; emptied when the drafter has seen them. lengths:
        cached tokens of all users in the target. generators: of all users. length: tokens to draft ahead, from 0.
        Returns the shapes of what is drafted."""

    @abstractmethod
    def __call__(self) -> Verified:
        """One round of the users that were loaded."""

    @property
    @abstractmethod
    def traced_step(self) -> TracedStep[Verified]:
        """The step that ends a round."""

    @property
    def timed(self) -> bool:
        """Whether the last round ran what had run before: nothing was compiled or captured."""
        return self.traced_step.warm

    def release(self) -> None:
        """Give traces back."""
        self.traced_step.release()

    @abstractmethod
    def drafts(self) -> Drafts:
        """What was drafted in the last round; reads the device where drafts stay there."""


class TreeDrafter(ABC):
    """Guesses continuations. The loop calls check, then start for new texts, then what `rounds` gives, and release.

    step_cost: estimate of one drafted level's cost, the target's step being 1. calibration_seconds: what exact passes
    over decided tokens took of the last draft.
    """

    name: str
    step_cost = 0.0
    calibration_seconds = 0.0

    @abstractmethod
    def check(self, shape: DraftShape, target: TtLlama) -> None:
        """Raises ValueError for what it cannot draft, or for whom."""

    @abstractmethod
    def start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        """New texts, one a user; their first `cached` tokens are those of the texts before, as far as these went."""

    @abstractmethod
    def draft(self, undrafted: Mapping[int, Sequence[int]], shape: DraftShape) -> Drafts:
        """undrafted: by user the tokens decided since its last draft (or since the prompt), at least one. These drafts
        are a function of the texts alone: point masses to a verifier."""

    def has_logits(self, shape: DraftShape) -> bool:
        """Whether verification at a temperature is told the logits that drafts were drawn from."""
        return False

    def rounds(self, step: TreeStep, shape: DraftShape, eager: bool) -> Rounds:
        """After start: the rounds of a text, in which `step` verifies. Here `draft` is called in each."""
        return HostDraftLoop(self, step, shape, eager)

    def release(self) -> None:
        """After a text: give traces back."""


class HostDraftLoop(Rounds):
    """Drafts that the host has, which it writes to the device in every round. None where one token is left."""

    def __init__(self, drafter: TreeDrafter, step: TreeStep, shape: DraftShape, eager: bool) -> None:
        self.drafter, self.step, self.shape = drafter, step, shape
        self._traced_step: TracedStep[Verified] = TracedStep(step.model.mesh, step, eager)
        self._drafts: Drafts = {}

    @property
    def traced_step(self) -> TracedStep[Verified]:
        return self._traced_step

    def load(self, undrafted, lengths, generators, length):
        if length < 1:
            self._drafts = {user: (ROOT, [tokens[-1]]) for user, tokens in undrafted.items()}
            self.calibration_seconds = 0.0
        else:
            self._drafts = self.drafter.draft(undrafted, self.shape.within(length, self.step.nodes))
            self.calibration_seconds = self.drafter.calibration_seconds
            for tokens in undrafted.values():
                tokens.clear()
        self.step.load(self._drafts, lengths, generators)
        return {user: tree for user, (tree, _) in self._drafts.items()}

    def __call__(self) -> Verified:
        return self._traced_step()

    def drafts(self) -> Drafts:
        return self._drafts


class NGramDrafter(TreeDrafter):
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
