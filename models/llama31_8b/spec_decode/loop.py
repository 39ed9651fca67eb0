# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The generation loop of every backend: draft, step, verify, commit.

An engine runs a model and owns its cache; a drafter proposes token trees that may follow each text. Plain decoding is
the loop over trees of one node. Greedy text is, token for token, that of plain decoding on the same engine, up to ties
that rounding breaks; sampled text has the target's distribution. With attention-level speculation the target whose text
or distribution this is, is the speculating one, which depends on what was drafted with a token.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from collections.abc import Generator as Yielding
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from loguru import logger

from ..config import LlamaConfig
from ..generation.request import SequenceState, TokenCallback, open_sequences
from ..generation.sampling import Draws, SamplingParams, SigmoidApproximation, make_generators
from ..results import AttentionStatistics, GenerationResult, TokenSpeculationMetrics
from .draft_settings import DraftShape
from .tree import ROOT, TokenTree, UserNumbers, UserTokens, UserTrees


class Outcome(NamedTuple):
    """What a step decided for one user. path: the accepted nodes in order, without the root. tokens: theirs and the
    one after them."""

    path: list[int]
    tokens: list[int]


@dataclass
class Drafts:
    """Drafted trees by user; node 0 is the root, the last decided token.

    tokens: of each tree's nodes; no users where a drafter has put them on the engine's device. logits: float
    [users, nodes, vocab], what each node's children come from, None where a verifier must not read any. drawn: whether
    children were drawn from them, and not picked.
    """

    trees: dict[int, TokenTree]
    tokens: dict[int, list[int]]
    logits: torch.Tensor | None = None
    drawn: bool = False

    @classmethod
    def roots(cls, tokens: UserNumbers) -> Drafts:
        """Return trees of one node, which draft nothing."""
        return cls(dict.fromkeys(tokens, ROOT), {user: [token] for user, token in tokens.items()})


class Engine(ABC):
    """A model with its KV cache, driven step by step.

    config: of the model. capacity: cached positions per text, of which a step may write `spare` after a text. lossy:
    how sampled drafts are verified, None for exactly. warm_up_steps: how many of this text's steps compiled or
    captured.
    """

    config: LlamaConfig
    capacity: int
    spare = 0
    lossy: SigmoidApproximation | None = None

    @property
    def warm_up_steps(self) -> int:
        return 0

    @abstractmethod
    def open(self, texts: int, positions: int, draws: Draws) -> None:
        """Prepare for new texts, which need up to `positions` cached positions each. Raises ValueError for what the
        engine does not serve; nothing is computed before."""

    @abstractmethod
    def kept(self, user: int, cached: int) -> int:
        """Return how many of a user's first `cached` tokens, cached by earlier calls, a prefill need not compute."""

    @abstractmethod
    def prefill(self, texts: Sequence[Sequence[int]], starts: Sequence[int]) -> Yielding[tuple[int, int], None, None]:
        """Cache each text from its start, as of `kept`; yield users and their first new tokens as they come."""

    def begin(self) -> None:
        """Prepare the steps, after the prefill."""

    @abstractmethod
    def step(self, tokens: UserTokens, trees: UserTrees, positions: UserNumbers) -> Any:
        """Start a step over a token tree per user; other users are skipped. Keys and values of node n go to position +
        n.

        Args:
            tokens: of each node, by user; empty if they are on the device.
            trees: parents of the nodes, by user.
            positions: cached tokens before each tree.

        Returns:
            What `verify` takes.
        """

    @abstractmethod
    def verify(self, step: Any, drafts: Drafts) -> dict[int, Outcome]:
        """Decide which nodes of a step are accepted, and wait for it. Raises RuntimeError if the step failed."""

    def commit(self, user: int, nodes: Sequence[int]) -> None:
        """Keep the keys and values of these nodes, root first, and forget the last step's others. An engine whose step
        commits what it accepts has nothing to do: what follows the end of a text is never read."""

    def end(self, whole: bool) -> None:
        """Release what `begin` made. whole: whether all texts have ended as they should."""

    def statistics(self) -> AttentionStatistics | None:
        """Return the counts of attention-level speculation, None where nothing speculates on attention."""
        return None


class Drafter(ABC):
    """Drafts continuations, on any engine. It keeps nothing of a user but what its model's cache holds at positions
    that the caller names, so that a scheduler can drive it as well as `Generator` does.

    context: tokens of a text after which it can draft, None for any number; longer texts go on without drafts.
    in_every_round: whether it takes part where nothing is to be drafted too. calibration_seconds: the part of the last
    round's drafting that exact passes over decided tokens took.
    """

    name: str
    context: int | None = None
    in_every_round = False
    calibration_seconds = 0.0

    def check(self, shape: DraftShape, engine: Engine) -> None:
        """Raise ValueError for a shape, or a target, that it cannot serve."""

    def check_texts(self, texts: Sequence[Sequence[int]], max_new_tokens: int, engine: Engine) -> None:
        """Raise ValueError, before any work, for texts that it cannot serve."""

    def has_logits(self, shape: DraftShape) -> bool:
        """Return whether drafts of this shape come with logits at a temperature above 0."""
        return False

    def prefill(self, texts: Sequence[Sequence[int]], known: Sequence[int], positions: int) -> None:
        """Start new texts. known: their first tokens that earlier calls have given it. positions: that a text may
        need."""

    def begin(self, engine: Engine, shape: DraftShape) -> None:
        """Prepare the rounds of an engine that has begun."""

    @abstractmethod
    def draft(self, texts: UserTokens, starts: UserNumbers, shape: DraftShape, draws: Draws) -> Drafts:
        """Draft after each text, whose last token is the root.

        Args:
            texts: all of each user's tokens so far.
            starts: how many of them earlier calls, or `prefill`, have given.
            shape: of the trees, at most.
            draws: how texts are sampled, and their random numbers.
        """

    def drafted_at(self, returned: float) -> float:
        """Return when the last drafts were there, in seconds of time.perf_counter(). returned: when `draft` did."""
        return returned

    def end(self) -> None:
        """Release what `begin` made."""


class Generator:
    """Generate texts with an engine, and with a drafter several tokens per step.

    shape: of the drafts; at a temperature every step drafts all of it, so that a user's tokens depend on its prompt and
    seed alone. on_step(engine, drafts, outcomes): sees every step before its tokens are used. Raises ValueError for a
    shape that the drafter or the engine does not serve.
    """

    def __init__(
        self,
        engine: Engine,
        drafter: Drafter | None = None,
        shape: DraftShape = DraftShape(),
        *,
        on_step: Callable[[Any, Drafts, dict[int, Outcome]], None] | None = None,
    ) -> None:
        self.engine, self.drafter, self.shape, self.on_step = engine, drafter, shape, on_step
        if drafter is not None:
            drafter.check(shape, engine)
            if engine.lossy is not None and not drafter.has_logits(shape):
                raise ValueError(
                    f"sigmoid verification needs a draft's logits; {shape} by the {drafter.name} drafter has none"
                )
        self._texts: list[list[int]] = []  # of the last call, prompts included
        self._lengths: list[int] = []  # of them, cached tokens
        self._known: list[int] = []  # of them, tokens that the drafter has seen
        self._given: list[int] = []  # new tokens of all users, by step

    @property
    def warm_up_tokens(self) -> int:
        """Return the tokens, over all users, of the last call's first steps, which compiled or recorded a trace."""
        return sum(self._given[: self.engine.warm_up_steps])

    def cached_ids(self, user: int) -> list[int]:
        """Return the ids that a user's cache holds since the last `generate`, even an interrupted one: `context` may be
        a prefix of them."""
        return self._texts[user][: self._lengths[user]] if user < len(self._texts) else []

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: SamplingParams | None = None,
        eos_token_ids: Collection[int] | None = None,
        on_token: TokenCallback | None = None,
        context_limit: int | None = None,
        context: Sequence[Sequence[int]] | None = None,
    ) -> GenerationResult:
        """Continue each prompt until an eos id, `max_new_tokens`, a callback's True, or the context's end.

        Args:
            prompts: ids, one list per user.
            max_new_tokens: per user.
            sampling: greedy by default.
            eos_token_ids: None for the config's.
            on_token: see TokenCallback; gets the tokens of an accepted path one by one.
            context_limit: tokens of a prompt and its text, within the cache's capacity; None for the model's context.
            context: each user's ids that the cache holds from an earlier call (a prefix of `cached_ids`), after which
                its prompt follows.

        Returns:
            Texts, times and counts.

        Raises:
            ValueError: before any work, for what the engine or the drafter does not serve, a context that the cache
                does not hold, a token outside the vocabulary, and as `open_sequences`, which also raises
                ContextLengthError.
        """
        engine, drafter, sampling = self.engine, self.drafter, sampling or SamplingParams()
        texts, cached = self._whole_texts(prompts, context), [len(ids) for ids in context or [()] * len(prompts)]
        limit = min(engine.capacity - engine.spare, context_limit or engine.config.max_position_embeddings)
        sequences = open_sequences(engine.config, texts, max_new_tokens, eos_token_ids, on_token, limit)
        _check_ids(prompts, engine.config.vocab_size)
        if engine.lossy is not None:
            if sampling.greedy:
                raise ValueError("sigmoid verification needs a temperature above 0; at 0 verification is an arg-max")
            logger.warning("{}: LOSSY, the output does not have the target model's distribution", engine.lossy)
        positions = max(map(len, texts)) + max_new_tokens
        if drafter is not None:
            drafter.check_texts(texts, max_new_tokens, engine)
            positions += max(self.shape.budget, self.shape.width * self.shape.length + 1)
        self._draws = Draws(sampling, make_generators(sampling, len(prompts)))
        engine.open(len(prompts), positions, self._draws)

        starts = [engine.kept(user, count) for user, count in enumerate(cached)]
        known = [min(count, self._known[user]) if count else 0 for user, count in enumerate(cached)]
        self._texts, self._lengths, self._known = texts, list(starts), [0] * len(texts)
        self._given, self._metrics = [], TokenSpeculationMetrics()
        started = time.perf_counter()
        if drafter is not None:
            given = [text[: drafter.context] for text in texts]
            drafter.prefill(given, known, positions)
            self._known = [len(text) for text in given]
        with closing(engine.prefill(texts, starts)) as firsts:
            for user, token in firsts:
                self._lengths[user] = len(texts[user])
                sequences[user].push(token)
        for text, sequence in zip(texts, sequences):
            text += sequence.token_ids
        decoding, whole = time.perf_counter(), False
        self._ended = [decoding]
        try:
            engine.begin()
            if drafter is not None:
                drafter.begin(engine, self.shape)
            self._decode(sequences)
            whole = True
        finally:
            if drafter is not None:
                drafter.end()
            engine.end(whole)
        return GenerationResult(
            token_ids=[sequence.token_ids for sequence in sequences],
            finish_reason=[str(sequence.finish_reason) for sequence in sequences],
            prefill_tokens=sum(map(len, prompts)),
            prefill_seconds=decoding - started,
            decode_tokens=sum(len(sequence.token_ids) - 1 for sequence in sequences),
            decode_seconds=time.perf_counter() - decoding,
            statistics=engine.statistics(),
            speculation=None if drafter is None else self._metrics,
            warm_up_tokens=self.warm_up_tokens,
            warm_up_seconds=self._ended[: engine.warm_up_steps + 1][-1] - decoding,
        )

    def _decode(self, sequences: Sequence[SequenceState]) -> None:
        """Draft, step, verify and commit until every text has ended."""
        engine, metrics = self.engine, self._metrics
        while active := [sequence for sequence in sequences if sequence.finish_reason is None]:
            began = time.perf_counter()
            drafts, took_part = self._draft(active)
            drafted = time.perf_counter()
            step = engine.step(drafts.tokens, drafts.trees, {s.user: self._lengths[s.user] for s in active})
            outcomes = engine.verify(step, drafts)
            ended = time.perf_counter()
            if self.on_step is not None:
                self.on_step(engine, drafts, outcomes)
            given = 0
            for sequence in active:
                user, (path, tokens), tree = sequence.user, outcomes[sequence.user], drafts.trees[sequence.user]
                self._lengths[user] += 1  # the root
                used = sequence.push_all(tokens)
                engine.commit(user, [0, *path][: len(used)])
                self._lengths[user] += len(used) - 1
                self._texts[user] += used
                given += len(used)
                if len(tree) > 1:
                    metrics.record_draft(tree.max_depth, len(tree) - 1, len(path))
            self._given.append(given)
            self._ended.append(time.perf_counter())
            if self.drafter is None:
                continue
            if took_part:
                drafted = self.drafter.drafted_at(drafted)
                metrics.calibration_seconds += self.drafter.calibration_seconds
            metrics.record_step(len(active), given, drafted - began, ended - drafted)

    def _draft(self, active: Sequence[SequenceState]) -> tuple[Drafts, bool]:
        """Draft the shape's levels, fewer where all texts or a context are about to end. Return the drafts and whether
        the drafter took part."""
        drafter, users = self.drafter, [sequence.user for sequence in active]
        if drafter is not None:
            length = self.shape.length
            # Drafting less near the end of the longest text would let it decide where its neighbours' draws are spent.
            if self._draws.sampling.greedy:
                # Every step yields one token more than it accepts, so drafting the last token is never worth it.
                length = min(length, max(min(s.max_new_tokens, s.room) - len(s.token_ids) for s in active) - 1)
            room = min(self.engine.capacity, drafter.context or self.engine.capacity)
            room -= max(self._lengths[user] for user in users)
            length = max(0, min(length, room - 1))
            if length or drafter.in_every_round:
                starts = {user: self._known[user] for user in users}
                shape = self.shape.within(length, max(2, min(room, self.engine.spare or room)))
                drafts = drafter.draft({user: self._texts[user] for user in users}, starts, shape, self._draws)
                for user in users:
                    self._known[user] = len(self._texts[user])
                return drafts, True
        return Drafts.roots({user: self._texts[user][-1] for user in users}), False

    def _whole_texts(
        self, prompts: Sequence[Sequence[int]], context: Sequence[Sequence[int]] | None
    ) -> list[list[int]]:
        """Join contexts and prompts. Raises ValueError unless the cache holds `context`."""
        if context is None:
            return [list(prompt) for prompt in prompts]
        if len(context) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts for the contexts of {len(context)} users")
        for user, (ids, prompt) in enumerate(zip(context, prompts)):
            same = len(os.path.commonprefix([list(ids), self.cached_ids(user)]))
            if same < len(ids):
                raise ValueError(
                    f"the context of user {user} has {len(ids)} tokens, of which the cache holds the first {same}"
                )
            if not prompt:
                raise ValueError(f"the prompt of user {user} is empty")
        return [[*ids, *prompt] for ids, prompt in zip(context, prompts)]


def _check_ids(prompts: Sequence[Sequence[int]], vocab: int) -> None:
    for user, prompt in enumerate(prompts):
        if wrong := [token for token in prompt if not 0 <= token < vocab]:
            raise ValueError(
                f"the prompt of user {user} holds token id {wrong[0]}, outside the vocabulary of {vocab} ids"
            )
