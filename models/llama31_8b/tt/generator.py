# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts from prompts on a mesh: chunked prefill of one user after the other, then one token a step for all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence

import torch
import ttnn
from loguru import logger

from ..reference.generate import GenerationResult, TokenCallback, UserStream, open_streams
from ..reference.sampling import SamplingParams, make_generators, sample, warp_logits
from .mesh import TILE
from .model import StepInputs, TtLlama, read

PREFILL_CHUNK = 512


class Generator:
    """Runs a TtLlama. choose: "device" picks greedy tokens on the chips and reads back ids alone, "host" reads logits;
    temperatures above 0 are sampled on the host, seeded as in the reference, and said so.

    A decode step is captured as a trace after its first run where the mesh was opened with a trace region and fast
    dispatch; elsewhere every step runs eagerly. `traced` says which, `why_eager` why.
    """

    def __init__(self, model: TtLlama, *, choose: str = "device", prefill_chunk: int = PREFILL_CHUNK) -> None:
        if choose not in ("device", "host"):
            raise ValueError(f"choose must be device or host, got {choose!r}")
        if prefill_chunk < TILE or prefill_chunk & (prefill_chunk - 1):
            raise ValueError(f"prefill_chunk must be a power of two of at least {TILE}, got {prefill_chunk}")
        self.model, self.choose, self.prefill_chunk = model, choose, prefill_chunk
        self.why_eager = _why_no_trace(model.mesh)
        self.traced = self.why_eager is None

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: SamplingParams | None = None,
        eos_token_ids: Collection[int] | None = None,
        on_token: TokenCallback | None = None,
        on_logits: Callable[[int, torch.Tensor], None] | None = None,
    ) -> GenerationResult:
        """One text a prompt. on_logits(user, float32 [vocab]) sees every distribution and makes choosing a host matter.

        Raises ValueError for more prompts than the model has users, and what `open_streams` raises.
        """
        model, sampling = self.model, sampling or SamplingParams()
        if len(prompts) > model.users:
            raise ValueError(f"{len(prompts)} prompts for a model of {model.users} users")
        streams = open_streams(
            model, prompts, max_new_tokens, eos_token_ids, on_token=on_token, context_limit=model.capacity
        )
        for stream, prompt in zip(streams, prompts, strict=True):
            _check_ids(model, stream.user, prompt)
        generators = make_generators(sampling, len(prompts))
        on_device = self.choose == "device" and sampling.greedy and on_logits is None
        if self.choose == "device" and not sampling.greedy:
            logger.info("temperature {} is sampled on the host from logits read back", sampling.temperature)
        if not self.traced:
            logger.info("decode steps run eagerly: {}", self.why_eager)

        def picked(user: int, logits: torch.Tensor) -> int:
            if on_logits is not None:
                on_logits(user, logits)
            return int(sample(warp_logits(logits[None], sampling), [generators[user]])[0])

        started = time.perf_counter()
        for stream, prompt in zip(streams, prompts, strict=True):
            stream.push(picked(stream.user, self.prefill(prompt, stream.user)))
        decoding = time.perf_counter()
        decoded = self._decode(streams, [len(prompt) for prompt in prompts], on_device, picked)
        ended = time.perf_counter()
        return GenerationResult(
            token_ids=[stream.token_ids for stream in streams],
            finish_reason=[str(stream.finish_reason) for stream in streams],
            prefill_tokens=sum(map(len, prompts)),
            prefill_seconds=decoding - started,
            decode_tokens=decoded,
            decode_seconds=ended - decoding,
        )

    def prefill(self, prompt: Sequence[int], user: int) -> torch.Tensor:
        """Cache a prompt in chunks; the last token's logits, float32 [vocab]."""
        logits = None
        for start in range(0, len(prompt), self.prefill_chunk):
            end = min(start + self.prefill_chunk, len(prompt))
            logits = self.model.prefill(prompt[start:end], user, start, last=end == len(prompt))
        return read(logits)[0, 0, (len(prompt) - 1) % TILE].float()

    def _decode(
        self, streams: list[UserStream], lengths: list[int], on_device: bool, picked: Callable[[int, torch.Tensor], int]
    ) -> int:
        """Decode until every stream has ended; the number of tokens."""
        model, decoded, trace, steps = self.model, 0, None, 0
        inputs = model.step_inputs([0] * model.users, [-1] * model.users)
        changed, output = True, None
        try:
            while any(stream.finish_reason is None for stream in streams):
                if changed or not on_device:
                    _load(model, inputs, streams, lengths)
                if trace is not None:
                    ttnn.execute_trace(model.mesh, trace, cq_id=0, blocking=False)
                elif self.traced and steps == 1:
                    # The first step compiled all programs. Capturing runs nothing.
                    trace = ttnn.begin_trace_capture(model.mesh, cq_id=0)
                    output = _step(model, inputs, on_device)
                    ttnn.end_trace_capture(model.mesh, trace, cq_id=0)
                    ttnn.execute_trace(model.mesh, trace, cq_id=0, blocking=False)
                else:
                    output = _step(model, inputs, on_device)
                steps += 1
                result = read(output)
                changed = False
                for stream in streams:
                    if stream.finish_reason is not None:
                        continue
                    user = stream.user
                    lengths[user] += 1
                    token = int(result[0, user]) if on_device else picked(user, result[0, 0, user].float())
                    changed |= not stream.push(token)
                    decoded += 1
        finally:
            if trace is not None:
                ttnn.release_trace(model.mesh, trace)
        return decoded


def greedy(logits: ttnn.Tensor, output: ttnn.Tensor | None = None) -> ttnn.Tensor:
    """Arg-max on the device: bfloat16 [1, 1, users, vocab] -> uint32 [1, users]."""
    rows = ttnn.to_layout(logits, ttnn.ROW_MAJOR_LAYOUT)
    users, vocab = rows.shape[2], rows.shape[3]
    return ttnn.argmax(ttnn.reshape(rows, (1, users, vocab)), dim=-1, output_tensor=output)


def _step(model: TtLlama, inputs: StepInputs, on_device: bool) -> ttnn.Tensor:
    """A decode step that leaves its inputs ready for the next: positions advanced, on_device also the tokens."""
    logits = model.decode(inputs)
    ttnn.plus_one(inputs.positions, skip_negative_entries=True)
    ttnn.plus_one(inputs.angles)
    return greedy(logits, inputs.tokens) if on_device else logits


def _load(model: TtLlama, inputs: StepInputs, streams: Sequence[UserStream], lengths: Sequence[int]) -> None:
    """Write tokens and positions of the unfinished users to the device; the others are skipped."""
    tokens, positions = [0] * model.users, [-1] * model.users
    for stream in streams:
        if stream.finish_reason is None:
            tokens[stream.user], positions[stream.user] = stream.token_ids[-1], lengths[stream.user]
    for host, device in zip(model.step_inputs(tokens, positions, on_device=False), inputs, strict=True):
        ttnn.copy_host_to_device_tensor(host, device)


def _check_ids(model: TtLlama, user: int, prompt: Sequence[int]) -> None:
    wrong = [token for token in prompt if not 0 <= token < model.config.vocab_size]
    if wrong:
        raise ValueError(
            f"the prompt of user {user} holds token id {wrong[0]}, outside the vocabulary of "
            f"{model.config.vocab_size} ids"
        )


def _why_no_trace(mesh: ttnn.MeshDevice) -> str | None:
    if os.environ.get("TT_METAL_SLOW_DISPATCH_MODE") == "1":
        return "slow dispatch, the simulator's, replays no traces"
    if not ttnn.get_memory_view(mesh, ttnn.BufferType.TRACE).total_bytes_per_bank:
        return "the mesh was opened without a trace region"
    return None
