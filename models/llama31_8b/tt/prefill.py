# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Cache prompts in chunks."""

from __future__ import annotations

from collections.abc import Sequence

import ttnn

from .model import TtLlama
from .parallel.mesh import TILE

PREFILL_CHUNK = 512


def check_chunk(size: int) -> None:
    """Raises ValueError for a chunk size that is not a power of two of at least 32."""
    if size < TILE or size & (size - 1):
        raise ValueError(f"prefill_chunk must be a power of two of at least {TILE}, got {size}")


def cache_prompt(
    model: TtLlama,
    prompt: Sequence[int],
    user: int,
    chunk: int,
    *,
    start: int = 0,
    logits: bool = False,
    gather_logits: bool = True,
) -> ttnn.Tensor | None:
    """Cache a user's prompt in chunks of `chunk` tokens; with `logits` return its last tile's (see TtLlama.prefill),
    else None. start: tokens already cached, from `kept_prefix`."""
    found = None
    for begin in range(start, len(prompt), chunk):
        end = min(begin + chunk, len(prompt))
        last = logits and end == len(prompt)
        found = model.prefill(prompt[begin:end], user, begin, last=last, gather_logits=gather_logits)
    return found


def kept_prefix(model: TtLlama, cached: int) -> int:
    """Round `cached` down to whole blocks of the cache: a chunk that starts inside a block would be attended to in
    smaller pieces, which need programs of their own."""
    return cached // model.cache.block * model.cache.block
