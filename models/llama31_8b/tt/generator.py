# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts from prompts on a mesh: chunked prefill of one user after the other, then one token a step for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import ttnn
from loguru import logger

from ..generation.sampling import SamplingParams, draw_uniforms, make_generators, sample, warp_logits
from ..generation.sequences import SequenceState, TokenCallback, open_sequences
from ..results import GenerationResult
from .model import StepInputs, TtLlama, overwrite, read
from .parallel.mesh import TILE
from .prefill import PREFILL_CHUNK, cache_prompt, check_chunk, kept_prefix
from .sampling.top_k import Sampler
from .trace import TracedStep, why_no_trace


class Generator:
    """Runs a TtLlama. choose: "device" picks tokens on the chips and reads back ids alone, "host" reads logits. Both
    draw the same tokens from the same seeds (see sampling.py).

    A decode step is captured as a trace after its first run where the mesh was opened with a trace region and fast
    dispatch; elsewhere, and with trace=False, every step runs eagerly and `why_eager` says why. `replays` counts the
    steps of the last `generate` that replayed a trace.

    keep_trace: replay it in later calls with the same sampling too, for a conversation. Nothing but this generator may
    then put tensors on the mesh that live on, until `release`.
    """

    def __init__(
        self,
        model: TtLlama,
        *,
        choose: str = "device",
        prefill_chunk: int = PREFILL_CHUNK,
        trace: bool = True,
        keep_trace: bool = False,
    ) -> None:
        if choose not in ("device", "host"):
            raise ValueError(f"choose must be device or host, got {choose!r}")
        check_chunk(prefill_chunk)
        self.model, self.choose, self.prefill_chunk = model, choose, prefill_chunk
        self.why_eager = why_no_trace(model.mesh) if trace else "trace=False"
        self.replays = 0
        self.keep_trace = keep_trace
        self._kept: _Steps | None = None
        self._texts: list[list[int]] = []  # of the last call: what was prefilled
        self._streams: list[SequenceState] = []
        self._lengths: list[int] = []  # cached tokens
        self._given: list[int] = []  # tokens of all users by step
        self._warm_up = 0

    # Cached positions behind a text that a step may write.
    spare = 0

    @property
    def traced(self) -> bool:
        """Whether steps of the last `generate` replayed a trace."""
        return self.replays > 0

    @property
    def warm_up_tokens(self) -> int:
        """Tokens, of all users, of the first steps of the last `generate`: those that compiled the step's programs or
        recorded its trace."""
        return sum(self._given[: self._warm_up])

    def cached_ids(self, user: int) -> list[int]:
        """The ids that the cache holds of a user since the last `generate`, one that did not end included: what
        `context` may be the first part of."""
        if user >= len(self._texts):
            return []
        return [*self._texts[user], *self._streams[user].token_ids][: self._lengths[user]]

    def release(self) -> None:
        """Give back a trace that was kept."""
        if self._kept is not None:
            self._kept.replay.release()
        self._kept = None

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: SamplingParams | None = None,
        eos_token_ids: Collection[int] | None = None,
        on_token: TokenCallback | None = None,
        on_logits: Callable[[int, torch.Tensor], None] | None = None,
        context_limit: int | None = None,
        context: Sequence[Sequence[int]] | None = None,
    ) -> GenerationResult:
        """One text a prompt. on_logits(user, float32 [vocab]) sees every distribution and makes choosing a host matter.
        context_limit: tokens of a prompt and its text, within the cache's capacity; None for the model's context.
        context: ids of each user, which the cache holds from an earlier call (the first of `cached_ids`), and behind
        which its prompt goes. They are not computed again, but for a last part of less than a block (kept_prefix).

        Raises ValueError for more prompts than the model has users, for a context that the cache does not hold, and
        what `open_sequences` raises.
        """
        model, sampling = self.model, sampling or SamplingParams()
        if len(prompts) > model.users:
            raise ValueError(f"{len(prompts)} prompts for a model of {model.users} users")
        limit = min(model.capacity - self.spare, context_limit or model.config.max_position_embeddings)
        cached = [len(ids) for ids in context] if context is not None else [0] * len(prompts)
        texts = self._whole_texts(prompts, context)
        streams = open_sequences(
            model.config, texts, max_new_tokens, eos_token_ids, on_token=on_token, context_limit=limit
        )
        for stream, prompt in zip(streams, prompts, strict=True):
            _check_ids(model, stream.user, prompt)
        source = self._source(sampling, len(prompts), on_logits)
        if self.why_eager is not None:
            logger.info("decode steps run eagerly: {}", self.why_eager)

        model.attend.reset()
        kept = [kept_prefix(model, count) for count in cached]
        self._texts, self._streams, self._lengths, self._given = texts, streams, list(kept), []
        started = time.perf_counter()
        with self._watch_programs():
            self._start(texts, cached)
            for stream, text in zip(streams, texts, strict=True):
                user = stream.user
                logits = self._prefill(text, user, source.chooser is None, kept[user])
                self._lengths[user] = len(text)
                stream.push(source.first(logits, user, (len(text) - 1) % TILE))
        decoding = time.perf_counter()
        self._decode(streams, self._lengths, source)
        ended = time.perf_counter()
        return GenerationResult.of(streams, prompts, (started, decoding, ended), model.attend.statistics())

    def _whole_texts(
        self, prompts: Sequence[Sequence[int]], context: Sequence[Sequence[int]] | None
    ) -> list[list[int]]:
        """Contexts with their prompts. Raises ValueError unless the cache holds `context`."""
        if context is None:
            return [list(prompt) for prompt in prompts]
        if len(context) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts behind the contexts of {len(context)} users")
        for user, (ids, prompt) in enumerate(zip(context, prompts, strict=True)):
            held = self.cached_ids(user)
            if list(ids) != held[: len(ids)]:
                same = next((i for i, (a, b) in enumerate(zip(ids, held)) if a != b), min(len(ids), len(held)))
                raise ValueError(
                    f"the context of user {user} has {len(ids)} tokens, of which the cache holds the first {same}"
                )
            if not prompt:
                raise ValueError(f"the prompt of user {user} is empty")
        return [[*ids, *prompt] for ids, prompt in zip(context, prompts, strict=True)]

    @contextmanager
    def _watch_programs(self) -> Iterator[None]:
        """Around a prefill: give a kept trace back where new programs were compiled. What they keep on the chips,
        kernels and semaphores, may lie where the trace writes."""
        kept = self._kept
        if kept is None or not kept.replay.recorded:
            yield
            return
        before = self.model.mesh.num_program_cache_entries()
        try:
            yield
        finally:
            if self.model.mesh.num_program_cache_entries() != before:
                kept.replay.release()

    def _start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        """What a subclass needs of the texts, of which so many tokens are cached, once the request is checked; part of
        the prefill's time."""

    def prefill(self, prompt: Sequence[int], user: int) -> torch.Tensor:
        """Cache a prompt in chunks; the last token's logits, float32 [vocab]. No context goes on from it."""
        if user < len(self._lengths):
            self._lengths[user] = 0
        return read(self._prefill(prompt, user, whole=True))[0, 0, (len(prompt) - 1) % TILE].float()

    def _prefill(self, prompt: Sequence[int], user: int, whole: bool, start: int = 0) -> ttnn.Tensor:
        return cache_prompt(self.model, prompt, user, self.prefill_chunk, start=start, logits=True, whole=whole)

    def _source(self, sampling: SamplingParams, batch: int, on_logits: Callable | None) -> _TokenSource:
        """Where tokens come from: that of the steps kept, if it serves."""
        if self._kept is not None:
            source = self._kept.source
            if on_logits is None and source.sampling == sampling:
                source.begin(batch)
                return source
            self.release()
        return _TokenSource(self.model, sampling, batch, self._chooser(sampling, on_logits), on_logits)

    def _chooser(self, sampling: SamplingParams, on_logits: Callable | None) -> Sampler | None:
        """What chooses on the chips; None when the host does."""
        if self.choose == "host" or on_logits is not None:
            return None
        return Sampler(self.model.mesh, self.model.plan, self.model.config, sampling)

    def _decode(self, streams: list[SequenceState], lengths: list[int], source: _TokenSource) -> None:
        """Decode until every stream has ended."""
        model, self.replays = self.model, 0
        steps = self._kept or _Steps.of(model, source, eager=self.why_eager is not None)
        inputs, step, self._kept = steps.inputs, steps.replay, None
        ran, replayed = step.runs, step.replays
        changed = True
        try:
            while unfinished := [stream for stream in streams if stream.finish_reason is None]:
                if changed or source.chooser is None:
                    _load(model, inputs, unfinished, lengths)
                source.draw([stream.user for stream in unfinished])
                result = _result(model, step(), chosen=source.chooser is not None)
                self._ran(step, ran, replayed, len(unfinished))
                changed = False
                for stream in unfinished:
                    lengths[stream.user] += 1
                    changed |= not stream.push(source.of(result, stream.user))
            if self.keep_trace and source.on_logits is None:
                self._kept = steps
        finally:
            if self._kept is None:
                step.release()

    def _ran(self, step: TracedStep, ran: int, replayed: int, given: int) -> None:
        """Count a step that gives so many tokens. ran, replayed: its counts before the first step of this call."""
        self.replays = step.replays - replayed
        self._given.append(given)
        self._warm_up = max(0, (2 if self.traced else 1) - ran)


class _Steps(NamedTuple):
    """Decode steps: their inputs, where their tokens come from, and the trace of them."""

    source: _TokenSource
    inputs: StepInputs
    replay: TracedStep[ttnn.Tensor]

    @classmethod
    def of(cls, model: TtLlama, source: _TokenSource, eager: bool) -> _Steps:
        inputs = model.step_inputs([0] * model.users, [-1] * model.users)
        return cls(source, inputs, TracedStep(model.mesh, lambda: _step(model, inputs, source), eager))


class _TokenSource:
    """Where the tokens of one generation come from: `chooser` on the chips, or the host when it is None.

    Either takes one number of a user's generator for each of its tokens.
    """

    def __init__(
        self,
        model: TtLlama,
        sampling: SamplingParams,
        batch: int,
        chooser: Sampler | None,
        on_logits: Callable[[int, torch.Tensor], None] | None,
    ) -> None:
        self.chooser, self.sampling, self.on_logits = chooser, sampling, on_logits
        self.users = model.users
        self.begin(batch)
        self.uniforms = chooser.uniforms([0.0] * self.users) if chooser else None

    def begin(self, batch: int) -> None:
        """New texts, which draw the seed's numbers from the first one on."""
        self.generators = make_generators(self.sampling, batch)

    def first(self, logits: ttnn.Tensor, user: int, row: int) -> int:
        """From a prompt's last tile of logits, [1, 1, 32, columns], the token after `row`."""
        if self.chooser is None:
            return self._sampled(user, read(logits)[0, 0, row].float())
        line = ttnn.slice(logits, [0, 0, row, 0], [1, 1, row + 1, logits.shape[3]])
        return int(read(self.chooser(line, self.chooser.uniforms([self._number(user)])))[0, 0])

    def draw(self, users: Collection[int]) -> None:
        """Give the next step new numbers for these users."""
        if self.chooser is not None and self.uniforms is not None:
            numbers = [self._number(user) if user in users else 0.0 for user in range(self.users)]
            ttnn.copy_host_to_device_tensor(self.chooser.uniforms(numbers, on_device=False), self.uniforms)

    def of(self, result: torch.Tensor, user: int) -> int:
        """From what a step returned: tokens [1, users], or logits [1, 1, users, vocab]."""
        return int(result[0, user]) if self.chooser else self._sampled(user, result[0, 0, user].float())

    def _number(self, user: int) -> float:
        return float(draw_uniforms([self.generators[user]], 1))

    def _sampled(self, user: int, logits: torch.Tensor) -> int:
        if self.on_logits is not None:
            self.on_logits(user, logits)
        return int(sample(warp_logits(logits[None], self.sampling), [self.generators[user]])[0])


def _step(model: TtLlama, inputs: StepInputs, source: _TokenSource) -> ttnn.Tensor:
    """A decode step that leaves its inputs ready for the next: positions advanced, and tokens chosen on the chips."""
    logits = model.decode(inputs, whole=source.chooser is None)
    ttnn.plus_one(inputs.positions, skip_negative_entries=True)
    ttnn.plus_one(inputs.angles)
    if source.chooser is None:
        return logits
    tokens = source.chooser(logits, source.uniforms, inputs.tokens)
    model.attend.guard(tokens)
    return tokens


def _result(model: TtLlama, output: ttnn.Tensor, chosen: bool) -> torch.Tensor:
    """What `_step` returned, on the host. Where rows speculate, tokens of every chip are read, which say whether one
    failed; raises what `DecodeAttention.check` does, and RuntimeError when chips chose differently."""
    if not chosen:
        model.attend.check()
        return read(output)
    if model.plan.sp == 1:
        return read(output)
    found = [ttnn.to_torch(part).to(torch.int64) & 0xFFFFFFFF for part in ttnn.get_device_tensors(output)]
    if beyond := [t.tolist() for t in found if bool((t >= model.config.vocab_size).any())]:
        model.attend.check()
        raise RuntimeError(f"tokens outside the vocabulary of {model.config.vocab_size}: {beyond[0]}")
    if any(not torch.equal(tokens, found[0]) for tokens in found):
        raise RuntimeError(f"the chips of {model.plan} chose different tokens: {[t.tolist() for t in found]}")
    return found[0]


def _load(model: TtLlama, inputs: StepInputs, unfinished: Sequence[SequenceState], lengths: Sequence[int]) -> None:
    """Write tokens and positions of the unfinished users to the device; the others are skipped."""
    tokens, positions = [0] * model.users, [-1] * model.users
    for stream in unfinished:
        tokens[stream.user], positions[stream.user] = stream.token_ids[-1], lengths[stream.user]
    overwrite(inputs, model.step_inputs(tokens, positions, on_device=False))


def _check_ids(model: TtLlama, user: int, prompt: Sequence[int]) -> None:
    wrong = [token for token in prompt if not 0 <= token < model.config.vocab_size]
    if wrong:
        raise ValueError(
            f"the prompt of user {user} holds token id {wrong[0]}, outside the vocabulary of "
            f"{model.config.vocab_size} ids"
        )
