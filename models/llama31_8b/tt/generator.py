# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Text from prompts on a mesh: chunked prefill, one user after another, then one token per step for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import torch
import ttnn
from loguru import logger

from ..generation.sampling import SamplingParams, draw_uniforms, make_generators, sample, warp_logits
from ..generation.sequences import SequenceState, TokenCallback, open_sequences
from ..results import GenerationResult
from .mesh import TILE
from .model import PREFILL_CHUNK, StepInputs, TtLlama, cache_prompt, check_chunk, kept_prefix, overwrite, read
from .sampling.top_k import Sampler, samples_on_chips
from .trace import TracedStep, watch_programs, why_no_trace


class Generator:
    """Generate with a TtLlama. sample_on: "device" samples on the chips and reads back ids alone, "host" reads logits;
    both draw the same tokens from the same seeds. Parameters that chips do not sample by (`samples_on_chips`) are
    sampled on the host, which is logged.

    A decode step is captured as a trace after its first run if the mesh was opened with a trace region and fast
    dispatch; otherwise, and with trace=False, every step runs eagerly and `why_eager` says why. `replays` counts the
    steps of the last `generate` that replayed a trace.

    keep_trace: replay it in later calls with the same sampling, for a conversation. Until `release`, nothing but this
    generator may then put lasting tensors on the mesh.
    """

    def __init__(
        self,
        model: TtLlama,
        *,
        sample_on: str = "device",
        prefill_chunk: int = PREFILL_CHUNK,
        trace: bool = True,
        keep_trace: bool = False,
    ) -> None:
        if sample_on not in ("device", "host"):
            raise ValueError(f"choose must be device or host, got {sample_on!r}")
        check_chunk(prefill_chunk)
        self.model, self.sample_on, self.prefill_chunk = model, sample_on, prefill_chunk
        self.why_eager = why_no_trace(model.mesh) if trace else "trace=False"
        self.replays = 0
        self.keep_trace = keep_trace
        self._kept: _Steps | None = None
        self._texts: list[list[int]] = []  # of the last call: what was prefilled
        self._sequences: list[SequenceState] = []
        self._lengths: list[int] = []  # cached tokens
        self._given: list[int] = []  # tokens of all users by step
        self._warm_up = 0

    # Cached positions after a text that a step may write.
    spare = 0

    @property
    def traced(self) -> bool:
        """Return whether steps of the last `generate` replayed a trace."""
        return self.replays > 0

    @property
    def warm_up_tokens(self) -> int:
        """Return the tokens, over all users, of the first steps of the last `generate`: those that compiled programs or
        recorded a trace."""
        return sum(self._given[: self._warm_up])

    def cached_ids(self, user: int) -> list[int]:
        """Return the ids that a user's cache holds since the last `generate`, even an interrupted one: `context` may be
        a prefix of them."""
        if user >= len(self._texts):
            return []
        return [*self._texts[user], *self._sequences[user].token_ids][: self._lengths[user]]

    def release(self) -> None:
        """Release a kept trace."""
        if self._kept is not None:
            self._kept.traced_step.release()
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
        """Generate one text per prompt. on_logits(user, float32 [vocab]) sees every distribution and moves sampling to
        the host. context_limit: tokens of a prompt and its continuation, within the cache's capacity; None for the
        model's context. context: each user's ids that the cache holds from an earlier call (a prefix of `cached_ids`),
        after which its prompt follows. Only a last part shorter than a block is computed again (kept_prefix).

        Raises ValueError for more prompts than the model has users, for a context that the cache does not hold, and
        what `open_sequences` raises.
        """
        model, sampling = self.model, sampling or SamplingParams()
        if len(prompts) > model.users:
            raise ValueError(f"{len(prompts)} prompts for a model of {model.users} users")
        limit = min(model.capacity - self.spare, context_limit or model.config.max_position_embeddings)
        cached = [len(ids) for ids in context] if context is not None else [0] * len(prompts)
        texts = self._whole_texts(prompts, context)
        sequences = open_sequences(
            model.config, texts, max_new_tokens, eos_token_ids, on_token=on_token, context_limit=limit
        )
        for sequence, prompt in zip(sequences, prompts, strict=True):
            _check_ids(model, sequence.user, prompt)
        source = self._source(sampling, len(prompts), on_logits)
        if self.why_eager is not None:
            logger.info("decode steps run eagerly: {}", self.why_eager)

        model.decode_attention.reset()
        kept = [kept_prefix(model, count) for count in cached]
        self._texts, self._sequences, self._lengths, self._given = texts, sequences, list(kept), []
        started = time.perf_counter()
        with watch_programs(model.mesh, () if self._kept is None else (self._kept.traced_step,)):
            self._start(texts, cached)
            for sequence, text in zip(sequences, texts, strict=True):
                user = sequence.user
                logits = self._prefill(text, user, source.sampler is None, kept[user])
                self._lengths[user] = len(text)
                sequence.push(source.first(logits, user, (len(text) - 1) % TILE))
        decoding = time.perf_counter()
        self._decode(sequences, self._lengths, source)
        ended = time.perf_counter()
        return GenerationResult.of(sequences, prompts, (started, decoding, ended), model.decode_attention.statistics())

    def _whole_texts(
        self, prompts: Sequence[Sequence[int]], context: Sequence[Sequence[int]] | None
    ) -> list[list[int]]:
        """Join contexts and prompts. Raises ValueError unless the cache holds `context`."""
        if context is None:
            return [list(prompt) for prompt in prompts]
        if len(context) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts for the contexts of {len(context)} users")
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

    def _start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        """Prepare a subclass for the texts, of which `cached` tokens are cached; called once the request is checked, as
        part of the prefill's time."""

    def prefill(self, prompt: Sequence[int], user: int) -> torch.Tensor:
        """Cache a prompt in chunks and return the last token's logits, float32 [vocab]. No context continues from
        it."""
        if user < len(self._lengths):
            self._lengths[user] = 0
        return read(self._prefill(prompt, user, gather_logits=True))[0, 0, (len(prompt) - 1) % TILE].float()

    def _prefill(self, prompt: Sequence[int], user: int, gather_logits: bool, start: int = 0) -> ttnn.Tensor:
        return cache_prompt(
            self.model, prompt, user, self.prefill_chunk, start=start, logits=True, gather_logits=gather_logits
        )

    def _source(self, sampling: SamplingParams, batch: int, on_logits: Callable | None) -> _TokenSource:
        """Return where tokens come from, the kept steps' source if it serves."""
        if self._kept is not None:
            source = self._kept.source
            if on_logits is None and source.sampling == sampling:
                source.begin(batch)
                return source
            self.release()
        return _TokenSource(self.model, sampling, batch, self._sampler(sampling, on_logits), on_logits)

    def _sampler(self, sampling: SamplingParams, on_logits: Callable | None) -> Sampler | None:
        """Make what samples on the chips; None if the host does."""
        if self.sample_on == "host" or on_logits is not None:
            return None
        if not samples_on_chips(sampling, self.model.config.vocab_size):
            logger.info("top_k {} and top_p {}: sampled on the host", sampling.top_k, sampling.top_p)
            return None
        return Sampler(self.model.mesh, self.model.mesh_shape, self.model.config, sampling)

    def _decode(self, sequences: list[SequenceState], lengths: list[int], source: _TokenSource) -> None:
        """Decode until every sequence has ended."""
        model, self.replays = self.model, 0
        steps = self._kept or _Steps.of(model, source, eager=self.why_eager is not None)
        inputs, step, self._kept = steps.inputs, steps.traced_step, None
        ran, replayed = step.runs, step.replays
        changed = True
        try:
            while unfinished := [sequence for sequence in sequences if sequence.finish_reason is None]:
                if changed or source.sampler is None:
                    _load(model, inputs, unfinished, lengths)
                source.draw([sequence.user for sequence in unfinished])
                result = _result(model, step(), chosen=source.sampler is not None)
                self._ran(step, ran, replayed, len(unfinished))
                changed = False
                for sequence in unfinished:
                    lengths[sequence.user] += 1
                    changed |= not sequence.push(source.of(result, sequence.user))
            if self.keep_trace and source.on_logits is None:
                self._kept = steps
        finally:
            if self._kept is None:
                step.release()

    def _ran(self, step: TracedStep, ran: int, replayed: int, given: int) -> None:
        """Count a step that yields `given` tokens. ran, replayed: the step's counts before this call's first step."""
        self.replays = step.replays - replayed
        self._given.append(given)
        self._warm_up = max(0, (2 if self.traced else 1) - ran)


class _Steps(NamedTuple):
    """Decode steps: their inputs, the source of their tokens, and their trace."""

    source: _TokenSource
    inputs: StepInputs
    traced_step: TracedStep[ttnn.Tensor]

    @classmethod
    def of(cls, model: TtLlama, source: _TokenSource, eager: bool) -> _Steps:
        inputs = model.step_inputs([0] * model.users, [-1] * model.users)
        return cls(source, inputs, TracedStep(model.mesh, lambda: _step(model, inputs, source), eager))


class _TokenSource:
    """The source of one generation's tokens: `sampler` on the chips, or the host if it is None. Either takes one number
    of a user's generator per token."""

    def __init__(
        self,
        model: TtLlama,
        sampling: SamplingParams,
        batch: int,
        sampler: Sampler | None,
        on_logits: Callable[[int, torch.Tensor], None] | None,
    ) -> None:
        self.sampler, self.sampling, self.on_logits = sampler, sampling, on_logits
        self.users = model.users
        self.begin(batch)
        self.uniforms = sampler.uniforms([0.0] * self.users) if sampler else None

    def begin(self, batch: int) -> None:
        """Start new texts, which draw the seed's numbers from the first on."""
        self.generators = make_generators(self.sampling, batch)

    def first(self, logits: ttnn.Tensor, user: int, row: int) -> int:
        """Return the token after `row` of a prompt's last tile of logits, [1, 1, 32, columns]."""
        if self.sampler is None:
            return self._sampled(user, read(logits)[0, 0, row].float())
        line = ttnn.slice(logits, [0, 0, row, 0], [1, 1, row + 1, logits.shape[3]])
        return int(read(self.sampler(line, self.sampler.uniforms([self._number(user)])))[0, 0])

    def draw(self, users: Collection[int]) -> None:
        """Give the next step new random numbers for these users."""
        if self.sampler is not None and self.uniforms is not None:
            numbers = [self._number(user) if user in users else 0.0 for user in range(self.users)]
            ttnn.copy_host_to_device_tensor(self.sampler.uniforms(numbers, on_device=False), self.uniforms)

    def of(self, result: torch.Tensor, user: int) -> int:
        """Return a user's token from a step's result: tokens [1, users], or logits [1, 1, users, vocab]."""
        return int(result[0, user]) if self.sampler else self._sampled(user, result[0, 0, user].float())

    def _number(self, user: int) -> float:
        return float(draw_uniforms([self.generators[user]], 1))

    def _sampled(self, user: int, logits: torch.Tensor) -> int:
        if self.on_logits is not None:
            self.on_logits(user, logits)
        return int(sample(warp_logits(logits[None], self.sampling), [self.generators[user]])[0])


def decode_and_choose(
    model: TtLlama, inputs: StepInputs, sampler: Sampler, uniforms: ttnn.Tensor | None = None
) -> ttnn.Tensor:
    """Run a decode step whose tokens are sampled on the chips, and make its inputs ready for the next: positions
    advanced, tokens replaced. Returns the tokens, `inputs.tokens`."""
    logits = model.decode(inputs, gather_logits=False)
    _advance(inputs)
    tokens = sampler(logits, uniforms, inputs.tokens)
    model.decode_attention.guard_tokens(tokens)
    return tokens


def agreed_tokens(model: TtLlama, output: ttnn.Tensor) -> torch.Tensor:
    """Return the tokens that a step chose, int64 [1, users], from a tensor on the chips or its copy on the host. With
    two rows, every chip's tokens are compared, which shows whether one failed. Raises what `DecodeAttention.check`
    raises, and RuntimeError if chips chose different tokens."""
    if model.mesh_shape.sp == 1:
        return read(output).long()
    found = [ttnn.to_torch(part).to(torch.int64) & 0xFFFFFFFF for part in ttnn.get_device_tensors(output)]
    if beyond := [t.tolist() for t in found if bool((t >= model.config.vocab_size).any())]:
        model.decode_attention.check()
        raise RuntimeError(f"tokens outside the vocabulary of {model.config.vocab_size}: {beyond[0]}")
    if any(not torch.equal(tokens, found[0]) for tokens in found):
        raise RuntimeError(f"the chips of {model.mesh_shape} chose different tokens: {[t.tolist() for t in found]}")
    return found[0]


def _step(model: TtLlama, inputs: StepInputs, source: _TokenSource) -> ttnn.Tensor:
    """Run a decode step and make its inputs ready for the next."""
    if source.sampler is not None:
        return decode_and_choose(model, inputs, source.sampler, source.uniforms)
    logits = model.decode(inputs)
    _advance(inputs)
    return logits


def _advance(inputs: StepInputs) -> None:
    ttnn.plus_one(inputs.positions, skip_negative_entries=True)
    ttnn.plus_one(inputs.angles)


def _result(model: TtLlama, output: ttnn.Tensor, chosen: bool) -> torch.Tensor:
    """Read `_step`'s result. Raises what `agreed_tokens` raises."""
    if chosen:
        return agreed_tokens(model, output)
    model.decode_attention.check()
    return read(output)


def _load(model: TtLlama, inputs: StepInputs, unfinished: Sequence[SequenceState], lengths: Sequence[int]) -> None:
    """Write tokens and positions of the unfinished users to the device; the others are skipped."""
    tokens, positions = [0] * model.users, [-1] * model.users
    for sequence in unfinished:
        tokens[sequence.user], positions[sequence.user] = sequence.token_ids[-1], lengths[sequence.user]
    overwrite(inputs, model.step_inputs(tokens, positions, on_device=False))


def _check_ids(model: TtLlama, user: int, prompt: Sequence[int]) -> None:
    wrong = [token for token in prompt if not 0 <= token < model.config.vocab_size]
    if wrong:
        raise ValueError(
            f"the prompt of user {user} holds token id {wrong[0]}, outside the vocabulary of "
            f"{model.config.vocab_size} ids"
        )
