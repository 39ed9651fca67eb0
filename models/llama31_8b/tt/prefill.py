# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Prompts into the cache, in chunks."""

from __future__ import annotations

from collections.abc import Sequence

import ttnn

from .model import TtLlama
from .parallel.mesh import TILE

PREFILL_CHUNK = 512


def check_chunk(size: int) -> None:
    """Raises ValueError for a size of chunks that is no power of two of at least a tile."""
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
    """Cache a user's prompt in chunks of `chunk` tokens; with `logits` those of its last tile, else None (as of
    TtLlama.prefill). start: tokens that the cache holds already, of `kept_prefix`."""
    found = None
    for begin in range(start, len(prompt), chunk):
        end = min(begin + chunk, len(prompt))
        last = logits and end == len(prompt)
        found = model.prefill(prompt[begin:end], user, begin, last=last, gather_logits=gather_logits)
    return found


def kept_prefix(model: TtLlama, cached: int) -> int:
    """Of so many cached tokens those that a prompt behind them is prefilled after: whole blocks of the cache, since a
    chunk that began inside of one would be attended to in smaller pieces, by programs of its own."""
    return cached // model.cache.block * model.cache.block
