# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Plain generation: prefill the prompts, then decode one token per step for every user who is not finished."""

from __future__ import annotations

import time
from typing import Callable, Collection, Sequence

import torch

from ..generation.sampling import SamplingParams, choose_tokens, make_generators
from ..generation.sequences import TokenCallback, open_sequences
from ..results import GenerationResult
from .alspec.policies import AttentionPolicy, ExactAttention
from .model.kv_cache import KVCache
from .model.model import ReferenceLlama


def cache_for(model: ReferenceLlama, prompts: Sequence[Sequence[int]], max_new_tokens: int, extra: int = 0) -> KVCache:
    """Return a cache for every prompt, its new tokens and `extra` others, within the model's context."""
    wanted = max(map(len, prompts)) + max_new_tokens + extra
    return model.new_cache(len(prompts), min(wanted, model.config.max_position_embeddings))


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
    """Continue each prompt (one id list per user, lengths may differ).

    sampling: greedy by default. policy: attention of the decode steps, ExactAttention by default; prefill is exact.
    on_token receives ids in the order they are made; on_prefill(done, total) counts prompt tokens.
    cache: continue after what it holds (a chat's earlier turns) instead of in a new one; its capacity limits the text.
    The last new token is not in it afterwards.
    A text ends at an eos or stop id, after max_new_tokens, or when the model's context is full; others go on.
    Raises as open_sequences and ReferenceLlama.prefill do, before any work.
    """
    sampling = sampling if sampling is not None else SamplingParams()
    policy = policy if policy is not None else ExactAttention()
    room = None if cache is None else cache.capacity - int(cache.lengths.max())
    sequences = open_sequences(model.config, prompts, max_new_tokens, eos_token_ids, stop_token_ids, on_token, room)
    generators = make_generators(sampling, len(prompts))
    cache = cache_for(model, prompts, max_new_tokens) if cache is None else cache

    start = time.perf_counter()
    logits = model.prefill(prompts, cache, prefill_chunk, progress=on_prefill)
    tokens = choose_tokens(logits, sampling, generators)
    prefilled = time.perf_counter()
    active = [sequence for sequence, token in zip(sequences, tokens) if sequence.push(token)]
    view = None
    while active:
        users = [sequence.user for sequence in active]
        if view is None or view.rows != users:
            view = cache.view(users)
        last = torch.tensor([sequence.token_ids[-1] for sequence in active])[:, None]
        logits = model.forward(last, view, policy=policy)[:, 0]
        tokens = choose_tokens(logits, sampling, [generators[user] for user in users])
        active = [sequence for sequence, token in zip(active, tokens) if sequence.push(token)]
    ended = time.perf_counter()

    return GenerationResult.of(sequences, prompts, (start, prefilled, ended), policy.statistics)
