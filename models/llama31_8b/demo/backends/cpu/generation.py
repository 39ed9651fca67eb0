# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts by the reference model: a session, and the texts of one batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from tqdm import tqdm

from ....reference import generate as plain
from ....reference.spec_decode.generate import speculative_generate
from ...options import DemoOptions
from ...session import OnToken, Session
from .drafting import make_drafter

if TYPE_CHECKING:
    from ....checkpoint.load import LoadedModel
    from ....reference.alspec.policies import AttentionPolicy
    from ....reference.model.kv_cache import KVCache
    from ....reference.spec_decode.drafter import Drafter
    from ....results import AttentionStatistics, GenerationResult


class ReferenceSession(Session):
    """The reference model on this machine. chat: one user's cache is kept from text to text."""

    def __init__(self, loaded: LoadedModel, options: DemoOptions, policy: AttentionPolicy, chat: bool = False) -> None:
        """Load a draft model, if any. Raises as make_drafter does."""
        self.checkpoint = self.loaded = loaded
        self.options, self.policy = options, policy
        limit = loaded.config.max_position_embeddings
        self.capacity = options.chat_context(limit) if chat else limit
        self.cache = loaded.model.new_cache(capacity=self.capacity) if chat else None
        self.drafter = make_drafter(loaded, options)
        self.threads = torch.get_num_threads()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        on_token: OnToken,
        context: Sequence[Sequence[int]] | None = None,
    ) -> GenerationResult:
        statistics = self.policy.statistics
        steps = statistics.step_count if statistics else 0
        if context is not None and self.cache is not None:
            self.cache.truncate([len(ids) for ids in context])
        try:
            return generate_texts(
                self.loaded,
                self.options,
                self.policy,
                prompts,
                on_token,
                cache=self.cache,
                context=context,
                drafter=self.drafter,
            )
        except KeyboardInterrupt:
            if statistics:
                statistics.forget_after(steps)
            raise

    @property
    def cached(self) -> int:
        return 0 if self.cache is None else int(self.cache.lengths[0])

    @property
    def statistics(self) -> AttentionStatistics | None:
        return self.policy.statistics


def generate_texts(
    loaded: LoadedModel,
    options: DemoOptions,
    policy: AttentionPolicy,
    prompts: Sequence[Sequence[int]],
    on_token: Callable[[int, int], bool],
    cache: KVCache | None = None,
    context: Sequence[Sequence[int]] | None = None,
    drafter: Drafter | None = None,
) -> GenerationResult:
    """Generate one text per prompt, after what `cache` holds: `context`, the ids of each user. Show prefill progress on
    stderr."""
    bar = tqdm(
        total=sum(map(len, prompts)),
        desc="prefill",
        unit="token",
        file=sys.stderr,
        leave=False,
        disable=not sys.stderr.isatty(),
    )

    def prefilled(done: int, total: int) -> None:
        bar.update(done - bar.n)
        if done == total:
            bar.close()

    request = {
        "max_new_tokens": options.max_new_tokens,
        "sampling": options.sampling(),
        "policy": policy,
        "eos_token_ids": loaded.tokenizer.eos_token_ids,
        "on_token": on_token,
        "on_prefill": prefilled,
        "cache": cache,
    }
    try:
        if drafter is None:
            return plain.generate(loaded.model, prompts, **request)
        return speculative_generate(
            loaded.model,
            prompts,
            drafter,
            adaptive=options.adapt,
            context=context,
            **request,
        )
    finally:
        bar.close()
