# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Who guesses ahead for a TtLlama: look-up in the text on the host, or a smaller model beside it on the chips."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
import ttnn

from models.llama31_8b.sampling import SamplingParams
from models.llama31_8b.token_speculation.draft_shape import DraftShape
from models.llama31_8b.token_speculation.ngram import NGramTrees
from models.llama31_8b.token_speculation.tree import TokenTree, TokenTreeBatch

from .mesh import TILE
from .model import TtLlama, overwrite, read
from .prompts import PREFILL_CHUNK, cache_prompt, kept_prefix
from .replay import Replay, why_no_trace
from .sampling import Chooser
from .token_trees import TreeInputs

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


class ModelDrafter(TreeDrafter):
    """Chains of the likeliest tokens of a draft model that lies on the target's mesh, one step a token; a step is fuzzy
    where the model was made with a LayerParallelPlan.

    A round begins with one exact pass over the tokens decided since the last (EasySpec's bonus calibration, section
    3.2): it writes their keys and values over what drafting left there, so that the draft's cache equals that of a
    plain pass, and its last node gives the first drafted token. draft: with as many users and positions as the target.
    """

    name = "model"

    def __init__(self, draft: TtLlama, *, prefill_chunk: int = PREFILL_CHUNK, trace: bool = True) -> None:
        self.model, self.prefill_chunk = draft, prefill_chunk
        self._eager = not trace or why_no_trace(draft.mesh) is not None
        self._chooser = Chooser(draft.mesh, draft.plan, draft.config, SamplingParams(0.0))
        self._lengths = [0] * draft.users
        self._nodes = 0
        self._calibration: _Calibration | None = None
        self._chain: _Chain | None = None

    @property
    def lengths(self) -> list[int]:
        """Decided tokens of each user that the draft's cache holds."""
        return list(self._lengths)

    def check(self, shape: DraftShape, target: TtLlama) -> None:
        draft = self.model
        if shape.width > 1 or shape.grown:
            raise ValueError(f"a draft model on chips drafts chains: {shape} has several candidates a node")
        if draft.config.vocab_size != target.config.vocab_size:
            raise ValueError(
                f"the draft model {draft.config.name} has {draft.config.vocab_size} token ids and the target "
                f"{target.config.name} has {target.config.vocab_size}: they must share a tokenizer"
            )
        if (draft.users, draft.capacity) != (target.users, target.capacity):
            raise ValueError(
                f"the draft model has {draft.users} users of {draft.capacity} positions, the target {target.users} of "
                f"{target.capacity}"
            )
        rows = draft.users * (shape.length + 1)
        if rows > TILE:
            raise ValueError(
                f"{draft.users} users and drafts of {shape.length} tokens need {rows} rows to calibrate, {TILE} are "
                "a step's"
            )
        if draft.groups is not None and draft.groups.plan.size > 1 and shape.length < 2:
            raise ValueError(
                f"drafts of {shape.length} token come from the exact pass alone: {draft.groups.plan.size} layers in "
                "parallel would change nothing"
            )
        draft.attend.check_trees()
        self._nodes = shape.length + 1

    def start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        for user, (text, same) in enumerate(zip(texts, cached, strict=True)):
            start = kept_prefix(self.model, min(same, self._lengths[user]))
            cache_prompt(self.model, text, user, self.prefill_chunk, start=start)
            self._lengths[user] = len(text)
        self._calibration = _Calibration(self.model, self._nodes, self._chooser, self._eager)
        self._chain = _Chain(self.model, self._chooser, self._eager)

    def draft(self, undrafted: Mapping[int, Sequence[int]], shape: DraftShape) -> Drafts:
        if self._calibration is None or self._chain is None:
            raise RuntimeError("drafts need texts: call start first")
        found = self._calibrate(self._calibration, undrafted)
        drafted = {user: [tokens[-1], found[user]] for user, tokens in undrafted.items()}
        self._chain.load(found, self._lengths)
        for _ in range(shape.length - 1):
            tokens = read(self._chain.replay())[0].tolist()
            for user, chain in drafted.items():
                chain.append(int(tokens[user]))
        return {user: (TokenTree.chain(len(chain)), chain) for user, chain in drafted.items()}

    def release(self) -> None:
        for step in (self._calibration, self._chain):
            if step is not None:
                step.replay.release()

    def _calibrate(self, calibration: _Calibration, undrafted: Mapping[int, Sequence[int]]) -> dict[int, int]:
        """Exact passes over what was decided, one unless a round was skipped -> the likeliest next token by user."""
        found: dict[int, int] = {}
        left = {user: list(tokens) for user, tokens in undrafted.items()}
        while left:
            part = {user: tokens[: self._nodes] for user, tokens in left.items()}
            calibration.load(part, self._lengths)
            choices = read(calibration.replay()).reshape(self.model.users, self._nodes).tolist()
            for user, tokens in part.items():
                self._lengths[user] += len(tokens)
                found[user] = int(choices[user][len(tokens) - 1])
            left = {user: tokens[self._nodes :] for user, tokens in left.items() if tokens[self._nodes :]}
        return found


class _Chain:
    """Decode steps of the likeliest tokens, each leaving its inputs ready for the next; `replay` runs one and gives
    uint32 [1, users]."""

    def __init__(self, model: TtLlama, chooser: Chooser, eager: bool) -> None:
        self.model, self._chooser = model, chooser
        self._inputs = model.step_inputs([0] * model.users, [-1] * model.users)
        self.replay = Replay(model.mesh, self._step, eager)

    def load(self, tokens: Mapping[int, int], lengths: Sequence[int]) -> None:
        """The first step's tokens, behind `lengths` cached ones of all users; other users are skipped."""
        users = range(self.model.users)
        hosts = self.model.step_inputs(
            [tokens.get(user, 0) for user in users],
            [lengths[user] if user in tokens else -1 for user in users],
            on_device=False,
        )
        overwrite(self._inputs, hosts)

    def _step(self) -> ttnn.Tensor:
        logits = self.model.decode(self._inputs, whole=False)
        ttnn.plus_one(self._inputs.positions, skip_negative_entries=True)
        ttnn.plus_one(self._inputs.angles)
        return self._chooser(logits, None, self._inputs.tokens)


class _Calibration:
    """An exact pass over up to `nodes` decided tokens of each user; `replay` runs it and gives the likeliest token
    behind each, uint32 [1, users * nodes]."""

    def __init__(self, model: TtLlama, nodes: int, chooser: Chooser, eager: bool) -> None:
        self.model, self.nodes, self._chooser = model, nodes, chooser
        self._inputs = self._made({}, [], on_device=True)
        self.replay = Replay(model.mesh, self._step, eager)

    def load(self, tokens: Mapping[int, Sequence[int]], lengths: Sequence[int]) -> None:
        overwrite(self._inputs, self._made(tokens, lengths, on_device=False))

    def _step(self) -> ttnn.Tensor:
        return self._chooser(self.model.decode_tree(self._inputs, whole=False))

    def _made(
        self, tokens: Mapping[int, Sequence[int]], lengths: Sequence[int], on_device: bool
    ) -> TreeInputs:
        users = range(self.model.users)
        rows = torch.zeros(len(users), self.nodes, dtype=torch.int64)
        for user, given in tokens.items():
            rows[user, : len(given)] = torch.tensor(list(given))
        chains = TokenTreeBatch.stack(
            [TokenTree.chain(max(len(tokens.get(user, ())), 1)) for user in users], self.nodes
        )
        prefixes = [lengths[user] if user in tokens else -1 for user in users]
        return self.model.tree_inputs(rows, prefixes, chains.enter, chains.leave, on_device)
