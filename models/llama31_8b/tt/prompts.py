# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Prompts into the cache, in chunks."""

from __future__ import annotations

from collections.abc import Sequence

import ttnn

from .mesh import TILE
from .model import TtLlama

PREFILL_CHUNK = 512


def check_chunk(size: int) -> None:
    """Raises ValueError for a size of chunks that is no power of two of at least a tile."""
    if size < TILE or size & (size - 1):
        raise ValueError(f"prefill_chunk must be a power of two of at least {TILE}, got {size}")


def cache_prompt(
    model: TtLlama, prompt: Sequence[int], user: int, chunk: int, *, logits: bool = False, whole: bool = True
) -> ttnn.Tensor | None:
    """Cache a user's prompt in chunks of `chunk` tokens; with `logits` those of its last tile, else None (as of
    TtLlama.prefill)."""
    found = None
    for start in range(0, len(prompt), chunk):
        end = min(start + chunk, len(prompt))
        last = logits and end == len(prompt)
        found = model.prefill(prompt[start:end], user, start, last=last, whole=whole)
    return found
