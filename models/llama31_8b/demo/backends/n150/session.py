# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Generation on open boards: a generator, the time of its first steps, and the chips' counters over all texts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...options import DemoOptions
from ...session import OnToken, PrefillBar, Session

if TYPE_CHECKING:
    from ....checkpoint.load import Checkpoint
    from ....results import AttentionStatistics, GenerationResult
    from ....tt.generator import Generator


class BoardSession(Session):
    """A session on boards that the caller opens and closes. limit: positions that a prompt and its continuation may
    take."""

    def __init__(self, checkpoint: Checkpoint, options: DemoOptions, generator: Generator, limit: int) -> None:
        self.checkpoint, self.options, self.generator, self.limit = checkpoint, options, generator, limit
        self.capacity = min(generator.engine.capacity - generator.engine.spare, limit)
        self.warm_up = (0, 0.0)
        self._counted: list[Any] = []
        self._bar = PrefillBar()
        if sys.stderr.isatty():  # to count, the host waits for each chunk
            generator.engine.on_prefill = self._bar

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        on_token: OnToken,
        context: Sequence[Sequence[int]] | None = None,
    ) -> GenerationResult:
        clock = TokenClock(on_token, len(prompts))
        with self._bar:
            result = self.generator.generate(
                prompts,
                max_new_tokens=self.options.max_new_tokens,
                sampling=self.options.sampling(),
                eos_token_ids=self.checkpoint.tokenizer.eos_token_ids,
                on_token=clock,
                context_limit=self.limit,
                context=context,
            )
        tokens, seconds = clock.first_tokens(self.generator.warm_up_tokens)
        assert self.warm_up is not None
        self.warm_up = self.warm_up[0] + tokens, self.warm_up[1] + seconds
        if result.statistics is not None:
            self._counted.append(result.statistics)
        return result

    @property
    def cached(self) -> int:
        return len(self.generator.cached_ids(0))

    @property
    def statistics(self) -> AttentionStatistics | None:
        """Return the sums over all texts; the chips count from zero in each."""
        return type(self._counted[0]).merged(self._counted) if self._counted else None


class TokenClock:
    """Call back for every token of `users` users, and remember its time."""

    def __init__(self, on_token: Callable[[int, int], bool], users: int = 1) -> None:
        self._on_token, self._users = on_token, users
        self._times: list[float] = []

    def __call__(self, user: int, token: int) -> bool:
        self._times.append(time.perf_counter())
        return self._on_token(user, token)

    def first_tokens(self, count: int) -> tuple[int, float]:
        """Return how many of the first `count` decoded tokens there were, and the seconds they took. Each user's first
        token comes from the prefill."""
        taken = self._times[self._users - 1 : self._users + count]
        return max(len(taken) - 1, 0), taken[-1] - taken[0] if taken else 0.0
