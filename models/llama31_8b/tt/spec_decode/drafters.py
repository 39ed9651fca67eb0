# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of drafters for a TtLlama, and n-gram look-up on the host; for models that draft see
model_drafters.py."""

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


class DraftLoop(ABC):
    """Rounds of draft, verification and commit. The generator calls `load` and then the object itself in every round,
    and `release` at the end.

    min_length: drafting fewer tokens saves nothing. drafting_seconds: the last round's drafting outside `load`.
    calibration_seconds: the part of all its drafting that exact passes over decided tokens took.
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
        """Load a round and return the shapes of its drafts. undrafted: per continuing user, see TreeDrafter.draft;
        emptied once the drafter has seen them. lengths: all users' cached tokens in the target. generators: of all
        users. length: tokens to draft, from 0."""

    @abstractmethod
    def __call__(self) -> Verified:
        """Run one round of the loaded users."""

    @property
    @abstractmethod
    def traced_step(self) -> TracedStep[Verified]:
        """Return the step that ends a round."""

    @property
    def timed(self) -> bool:
        """Return whether the last round compiled and captured nothing."""
        return self.traced_step.warm

    def release(self) -> None:
        """Release traces."""
        self.traced_step.release()

    @abstractmethod
    def drafts(self) -> Drafts:
        """Return the last round's drafts; reads the device if they stay there."""


class TreeDrafter(ABC):
    """Draft continuations. The generator calls `check`, then `start` for new texts, then what `draft_loop` returns, and
    `release`.

    step_cost: estimated cost of one drafted level, relative to the target's step. calibration_seconds: the part of the
    last draft that exact passes over decided tokens took.
    """

    name: str
    step_cost = 0.0
    calibration_seconds = 0.0

    @abstractmethod
    def check(self, shape: DraftShape, target: TtLlama) -> None:
        """Raises ValueError for shapes or targets that it does not support."""

    @abstractmethod
    def start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        """Start new texts, one per user; the first `cached` tokens are those of the texts before."""

    @abstractmethod
    def draft(self, undrafted: Mapping[int, Sequence[int]], shape: DraftShape) -> Drafts:
        """Draft trees. undrafted: per user the tokens decided since its last draft (or since the prompt), at least one.
        These drafts are functions of the texts alone: point masses to a verifier."""

    def has_logits(self, shape: DraftShape) -> bool:
        """Return whether verification at a temperature gets the logits that drafts were drawn from."""
        return False

    def draft_loop(self, step: TreeStep, shape: DraftShape, eager: bool) -> DraftLoop:
        """After `start`, return a text's rounds, in which `step` verifies. By default each calls `draft`."""
        return HostDraftLoop(self, step, shape, eager)

    def release(self) -> None:
        """Release traces after a text."""


class HostDraftLoop(DraftLoop):
    """Rounds whose drafts the host writes to the device. With one token left nothing is drafted."""

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
    """Draft what followed the text's last tokens where they occurred in it before (NGramTrees)."""

    name = "ngram"

    def __init__(self) -> None:
        self._trees = NGramTrees()

    def check(self, shape: DraftShape, target: TtLlama) -> None:
        self._trees.check(shape)

    def start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        self._trees.start(texts)

    def draft(self, undrafted: Mapping[int, Sequence[int]], shape: DraftShape) -> Drafts:
        return {user: self._trees.draft(user, tokens, shape) for user, tokens in undrafted.items()}
