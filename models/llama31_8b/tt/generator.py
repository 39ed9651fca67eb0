# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts from prompts on a mesh: chunked prefill of one user after the other, then one token a step for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import torch
import ttnn
from loguru import logger

from models.llama31_8b.results import GenerationResult
from models.llama31_8b.sampling import SamplingParams, draw_uniforms, make_generators, sample, warp_logits
from models.llama31_8b.streams import TokenCallback, UserStream, open_streams

from .mesh import TILE
from .model import StepInputs, TtLlama, overwrite, read
from .prompts import PREFILL_CHUNK, cache_prompt, check_chunk
from .replay import Replay, why_no_trace
from .sampling import Chooser


class Generator:
    """Runs a TtLlama. choose: "device" picks tokens on the chips and reads back ids alone, "host" reads logits. Both
    draw the same tokens from the same seeds (see sampling.py).

    A decode step is captured as a trace after its first run where the mesh was opened with a trace region and fast
    dispatch; elsewhere, and with trace=False, every step runs eagerly and `why_eager` says why. `replays` counts the
    steps of the last `generate` that replayed a trace.
    """

    def __init__(
        self,
        model: TtLlama,
        *,
        choose: str = "device",
        prefill_chunk: int = PREFILL_CHUNK,
        trace: bool = True,
    ) -> None:
        if choose not in ("device", "host"):
            raise ValueError(f"choose must be device or host, got {choose!r}")
        check_chunk(prefill_chunk)
        self.model, self.choose, self.prefill_chunk = model, choose, prefill_chunk
        self.why_eager = why_no_trace(model.mesh) if trace else "trace=False"
        self.replays = 0

    # Cached positions behind a text that a step may write.
    spare = 0

    @property
    def traced(self) -> bool:
        """Whether steps of the last `generate` replayed a trace."""
        return self.replays > 0

    def tokens_of(self, steps: int) -> int:
        """Tokens of the first user that the first steps of the last `generate` gave."""
        return steps

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
    ) -> GenerationResult:
        """One text a prompt. on_logits(user, float32 [vocab]) sees every distribution and makes choosing a host matter.
        context_limit: tokens of a prompt and its text, within the cache's capacity; None for the model's context.

        Raises ValueError for more prompts than the model has users, and what `open_streams` raises.
        """
        model, sampling = self.model, sampling or SamplingParams()
        if len(prompts) > model.users:
            raise ValueError(f"{len(prompts)} prompts for a model of {model.users} users")
        limit = min(model.capacity - self.spare, context_limit or model.config.max_position_embeddings)
        streams = open_streams(
            model.config, prompts, max_new_tokens, eos_token_ids, on_token=on_token, context_limit=limit
        )
        for stream, prompt in zip(streams, prompts, strict=True):
            _check_ids(model, stream.user, prompt)
        source = _TokenSource(model, sampling, len(prompts), self._chooser(sampling, on_logits), on_logits)
        if self.why_eager is not None:
            logger.info("decode steps run eagerly: {}", self.why_eager)

        model.attend.reset()
        started = time.perf_counter()
        self._start(prompts)
        for stream, prompt in zip(streams, prompts, strict=True):
            logits = self._prefill(prompt, stream.user, whole=source.chooser is None)
            stream.push(source.first(logits, stream.user, (len(prompt) - 1) % TILE))
        decoding = time.perf_counter()
        self._decode(streams, [len(prompt) for prompt in prompts], source)
        ended = time.perf_counter()
        return GenerationResult.of(streams, prompts, (started, decoding, ended), model.attend.statistics())

    def _start(self, prompts: Sequence[Sequence[int]]) -> None:
        """What a subclass needs of the prompts, once the request is checked; part of the prefill's time."""

    def prefill(self, prompt: Sequence[int], user: int) -> torch.Tensor:
        """Cache a prompt in chunks; the last token's logits, float32 [vocab]."""
        return read(self._prefill(prompt, user, whole=True))[0, 0, (len(prompt) - 1) % TILE].float()

    def _prefill(self, prompt: Sequence[int], user: int, whole: bool) -> ttnn.Tensor:
        return cache_prompt(self.model, prompt, user, self.prefill_chunk, logits=True, whole=whole)

    def _chooser(self, sampling: SamplingParams, on_logits: Callable | None) -> Chooser | None:
        """What chooses on the chips; None when the host does."""
        if self.choose == "host" or on_logits is not None:
            return None
        return Chooser(self.model.mesh, self.model.plan, self.model.config, sampling)

    def _decode(self, streams: list[UserStream], lengths: list[int], source: _TokenSource) -> None:
        """Decode until every stream has ended."""
        model, self.replays = self.model, 0
        inputs = model.step_inputs([0] * model.users, [-1] * model.users)
        changed = True
        step = Replay(model.mesh, lambda: _step(model, inputs, source), eager=self.why_eager is not None)
        try:
            while unfinished := [stream for stream in streams if stream.finish_reason is None]:
                if changed or source.chooser is None:
                    _load(model, inputs, unfinished, lengths)
                source.draw([stream.user for stream in unfinished])
                result = _result(model, step(), chosen=source.chooser is not None)
                self.replays = step.replays
                changed = False
                for stream in unfinished:
                    lengths[stream.user] += 1
                    changed |= not stream.push(source.of(result, stream.user))
        finally:
            step.release()


class _TokenSource:
    """Where the tokens of one generation come from: `chooser` on the chips, or the host when it is None.

    Either takes one number of a user's generator for each of its tokens.
    """

    def __init__(
        self, model: TtLlama, sampling: SamplingParams, batch: int, chooser: Chooser | None,
        on_logits: Callable[[int, torch.Tensor], None] | None,
    ) -> None:  # fmt: skip
        self.chooser, self.sampling, self.on_logits = chooser, sampling, on_logits
        self.generators = make_generators(sampling, batch)
        self.users = model.users
        self.uniforms = chooser.uniforms([0.0] * self.users) if chooser else None

    def first(self, logits: ttnn.Tensor, user: int, row: int) -> int:
        """From a prompt's last tile of logits, [1, 1, 32, columns], the token after `row`."""
        if self.chooser is None:
            return self._sampled(user, read(logits)[0, 0, row].float())
        numbers = self.chooser.uniforms([self._number(user)] * TILE)
        return int(read(self.chooser(logits, numbers))[0, row])

    def draw(self, users: Collection[int]) -> None:
        """Give the next step new numbers for these users."""
        if self.uniforms is not None:
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


def _load(
    model: TtLlama, inputs: StepInputs, unfinished: Sequence[UserStream], lengths: Sequence[int]
) -> None:
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
