# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Greedy divergence: how many tokens until the text first differs from that of exact attention.

Until then both texts are the same, so the exact text is made once and each policy reads it, all tokens in one pass: its
first choice that differs is where its own text would. The prompt is prefilled exactly, as on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import TorchEngine
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.spec_decode.loop import Generator

from .forward import text_pass
from .study import KEYS, Cell, Study

KEY = (*KEYS, "threshold")
VALUES = ("new_tokens", "first_difference", "agreement", "hit_rate", "seconds")


def first_difference(choices: torch.Tensor, text: torch.Tensor) -> int | None:
    """Return the tokens before the first choice that is not the text's; None when all agree. int64 [T] both."""
    wrong = (choices != text).nonzero()
    return int(wrong[0]) if len(wrong) else None


def cells(study: Study) -> Iterator[Cell]:
    """Yield a cell per context, window (its text is the prompt), chunk size and threshold."""
    settings, model = study.settings, study.loaded.model

    @lru_cache(maxsize=1)
    def exact(context: int, start: int) -> tuple[KVCache, list[int]]:
        """The cache of the prompt but for its last token, and that token with the exact text after it."""
        room = settings.new_tokens + 1
        prompt = study.window(context, start)[: context - room]
        engine = TorchEngine(model, capacity=context)
        made = Generator(engine).generate([prompt], max_new_tokens=settings.new_tokens, eos_token_ids=()).token_ids[0]
        cache = engine.cache
        assert cache is not None
        cache.truncate(len(prompt) - 1)
        return cache, [prompt[-1], *made]

    def measure(context: int, start: int, chunk_size: int, threshold: float) -> dict[str, object]:
        cache, text = exact(context, start)
        cached = int(cache.lengths[0])
        policy = ALSpecAttention(threshold, settings.guess_range(chunk_size))
        result = text_pass(model, text, policy, cache=cache)
        cache.truncate(cached)
        following = torch.tensor(text[1:])
        return {
            "new_tokens": len(following),
            "first_difference": first_difference(result.choices[:-1], following),
            "agreement": float((result.choices[:-1] == following).double().mean()),
            "hit_rate": result.hit_rate(),
        }

    for context in settings.contexts:
        if context <= settings.new_tokens + 1:
            raise ValueError(f"a context of {context} tokens has no room for {settings.new_tokens} new ones")
    for place in study.places(room=settings.new_tokens):
        for threshold in settings.thresholds:
            yield Cell({**study.key(*place), "threshold": threshold}, partial(measure, *place, threshold))
