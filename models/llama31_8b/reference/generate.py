# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Plain generation: prefill the prompts, then decode one token a step for every user who is not finished."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, Collection, Sequence

import torch

from .attention import AttentionPolicy, ExactAttention
from .kv_cache import ContextLengthError, KVCache
from .model import ReferenceLlama
from .sampling import SamplingParams, make_generators, sample, warp_logits
from .speculation import SpeculationStatistics

# on_token(user, token_id); returning True ends that user's text with finish reason "callback".
TokenCallback = Callable[[int, int], bool | None]


@dataclass(frozen=True)
class GenerationResult:
    """Generated ids and timings.

    token_ids: new tokens of each user, the one that ended the text included. finish_reason, per user: "eos",
    "stop"
    (a stop id), "length" (max_new_tokens), "context" (the model's context is full) or "callback".
    prefill_seconds ends with each user's first token, no decode token: decode_tokens counts the rest.
    statistics: those of the attention policy, None for policies without speculation.
    """

    token_ids: list[list[int]]
    finish_reason: list[str]
    prefill_tokens: int
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float
    statistics: SpeculationStatistics | None = None

    @classmethod
    def of(
        cls,
        streams: Sequence[UserStream],
        prompts: Sequence[Sequence[int]],
        policy: AttentionPolicy,
        times: tuple[float, float, float],
        **more: object,
    ) -> GenerationResult:
        """From ended streams and the times of start, end of prefill and end; `more` are a subclass's fields."""
        start, prefilled, ended = times
        return cls(
            token_ids=[stream.token_ids for stream in streams],
            finish_reason=[stream.finish_reason for stream in streams],
            prefill_tokens=sum(map(len, prompts)),
            prefill_seconds=prefilled - start,
            decode_tokens=sum(len(stream.token_ids) for stream in streams) - len(streams),
            decode_seconds=ended - prefilled,
            statistics=policy.statistics,
            **more,
        )

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens of all users per second."""
        return self.prefill_tokens / self.prefill_seconds

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Decoded tokens of all users per second; None when every text ended with its first token."""
        return self.decode_tokens / self.decode_seconds if self.decode_tokens else None


class UserStream:
    """The text of one user as it grows: `push` tokens until `finish_reason` is set."""

    def __init__(
        self,
        user: int,
        max_new_tokens: int,
        room: int,
        eos_token_ids: Collection[int],
        stop_token_ids: Collection[int] = (),
        on_token: TokenCallback | None = None,
    ) -> None:
        """room: new tokens the context can take, at least 1."""
        self.user, self.max_new_tokens, self.room, self.on_token = user, max_new_tokens, room, on_token
        self.eos, self.stop = frozenset(eos_token_ids), frozenset(stop_token_ids)
        self.token_ids: list[int] = []
        self.finish_reason: str | None = None

    def push(self, token: int) -> bool:
        """Append a token and call back. True when the text goes on. Raises RuntimeError after the end."""
        if self.finish_reason is not None:
            raise RuntimeError(f"the text of user {self.user} has ended ({self.finish_reason})")
        self.token_ids.append(token)
        ended = bool(self.on_token(self.user, token)) if self.on_token is not None else False
        if token in self.eos:
            self.finish_reason = "eos"
        elif token in self.stop:
            self.finish_reason = "stop"
        elif ended:
            self.finish_reason = "callback"
        elif len(self.token_ids) >= self.max_new_tokens:
            self.finish_reason = "length"
        elif len(self.token_ids) >= self.room:
            self.finish_reason = "context"
        return self.finish_reason is None


def open_streams(
    model: ReferenceLlama,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    eos_token_ids: Collection[int] | None = None,
    stop_token_ids: Collection[int] = (),
    on_token: TokenCallback | None = None,
    context_limit: int | None = None,
) -> list[UserStream]:
    """One stream a prompt, after checking the request. eos_token_ids None means the config's; () means none.

    Raises ValueError for no prompts, an empty one or max_new_tokens < 1, and ContextLengthError for a prompt
    that leaves no room for a new token within context_limit (default: the model's context).
    """
    limit = model.config.max_position_embeddings if context_limit is None else context_limit
    if not prompts:
        raise ValueError("no prompts")
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be an integer of at least 1, got {max_new_tokens!r}")
    eos = model.config.eos_token_ids if eos_token_ids is None else eos_token_ids
    streams = []
    for user, prompt in enumerate(prompts):
        if not len(prompt):
            raise ValueError(f"the prompt of user {user} is empty")
        # The last token of a full context is never written back: a prompt of `limit` tokens yields one.
        room = limit - len(prompt) + 1
        if room < 1:
            raise ContextLengthError(
                f"the prompt of user {user} has {len(prompt)} tokens; the limit is {limit}"
            )
        streams.append(UserStream(user, max_new_tokens, room, eos, stop_token_ids, on_token))
    return streams


def cache_for(
    model: ReferenceLlama, prompts: Sequence[Sequence[int]], max_new_tokens: int, extra: int = 0
) -> KVCache:
    """A cache that holds every prompt, its new tokens and `extra` others, within the model's context."""
    wanted = max(map(len, prompts)) + max_new_tokens + extra
    return model.new_cache(len(prompts), min(wanted, model.config.max_position_embeddings))


def choose_tokens(
    logits: torch.Tensor, sampling: SamplingParams, generators: Sequence[torch.Generator]
) -> list[int]:
    """One token for each row of logits [n, vocab]. Raises ValueError when the logits hold NaN."""
    if not sampling.greedy:
        return sample(warp_logits(logits, sampling), generators).tolist()
    best, tokens = logits.max(dim=-1)
    if best.isnan().any():
        raise ValueError(f"logits hold NaN in rows {best.isnan().nonzero().flatten().tolist()}")
    return tokens.tolist()


@torch.inference_mode()
def generate(
    model: ReferenceLlama,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int = 128,
    sampling: SamplingParams | None = None,
    policy: AttentionPolicy | None = None,
    eos_token_ids: Collection[int] | None = None,
    stop_token_ids: Collection[int] = (),
    on_token: TokenCallback | None = None,
    on_prefill: Callable[[int, int], None] | None = None,
    prefill_chunk: int = 512,
    cache: KVCache | None = None,
) -> GenerationResult:
    """Continue each prompt (one id list a user, lengths may differ).

    sampling: greedy by default. policy: attention of the decode steps, ExactAttention by default; prefill is
    exact. on_token streams ids in the order they are made; on_prefill(done, total) counts prompt tokens.
    cache: continue behind what it holds (a chat's earlier turns) instead of in a new one; its capacity limits
    the text. The last new token is not in it afterwards.
    A text ends at an eos or stop id, after max_new_tokens, or when the model's context is full; others go on.
    Raises as open_streams and ReferenceLlama.prefill do, before any work.
    """
    sampling = sampling if sampling is not None else SamplingParams()
    policy = policy if policy is not None else ExactAttention()
    room = None if cache is None else cache.capacity - int(cache.lengths.max())
    streams = open_streams(model, prompts, max_new_tokens, eos_token_ids, stop_token_ids, on_token, room)
    generators = make_generators(sampling, len(prompts))
    cache = cache_for(model, prompts, max_new_tokens) if cache is None else cache

    start = time.perf_counter()
    logits = model.prefill(prompts, cache, prefill_chunk, progress=on_prefill)
    tokens = choose_tokens(logits, sampling, generators)
    prefilled = time.perf_counter()
    active = [stream for stream, token in zip(streams, tokens) if stream.push(token)]
    view = None
    while active:
        users = [stream.user for stream in active]
        if view is None or view.rows != users:
            view = cache.view(users)
        last = torch.tensor([stream.token_ids[-1] for stream in active])[:, None]
        logits = model.forward(last, view, policy=policy)[:, 0]
        tokens = choose_tokens(logits, sampling, [generators[user] for user in users])
        active = [stream for stream, token in zip(active, tokens) if stream.push(token)]
    ended = time.perf_counter()

    return GenerationResult.of(streams, prompts, policy, (start, prefilled, ended))
