# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the op refuses, checked on plain values so that no ttnn is needed. Every message names the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tt_kernels.common.attention_checks import (
    TILE,
    AttentionShape,
    check_attention_tensors,
    check_heads,
    check_positions,
)
from tt_kernels.common.page_table import Paging, check_page_table
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, check_guess_range, check_tile_words

MAX_QUERY_HEADS = 32  # one tile of query rows per user


@dataclass(frozen=True)
class Problem(AttentionShape):
    """The shapes of one call. guess_range: what the guess reads in place of `chunk_size` tokens at either end."""

    chunk_size: int
    guess_range: GuessRange | None = None

    @property
    def guess(self) -> GuessRange:
        """What the guess reads: by default chunk_size tokens at either end."""
        return self.guess_range or GuessRange.both_ends(self.chunk_size)


def check_problem(
    q: TensorFacts,
    k: TensorFacts,
    v: TensorFacts,
    cur_pos: TensorFacts,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    page_table: TensorFacts | None = None,
    chosen: TensorFacts | None = None,
    tile_masses: TensorFacts | None = None,
) -> Problem:
    """Check the inputs and return their Problem. Errors: UnsupportedError."""
    check_attention_tensors(q, k, v)
    one, users, query_heads, head_dim = q.shape
    cache_users, max_tokens = k.shape[0], k.shape[2]
    if one != 1:
        raise UnsupportedError(f"q must be [1, users, heads, head_dim] with one token per user, its shape is {q.shape}")
    paging = None if page_table is None else check_page_table(page_table, users, k)
    if paging is not None:
        max_tokens = paging.capacity
    elif cache_users != users:
        raise UnsupportedError(f"q has {users} users {q.shape}, the caches have {cache_users} {k.shape}")
    check_positions("cur_pos", cur_pos, users)
    if not 1 <= query_heads <= MAX_QUERY_HEADS:
        raise UnsupportedError(f"1 to {MAX_QUERY_HEADS} query heads are supported, q has {query_heads}")
    shape = checked_shape(users, query_heads, head_dim, k, max_tokens, paging, chosen, tile_masses)
    check_chunk(chunk_size, max_tokens)
    if guess_range is not None:
        check_guess_range(guess_range, max_tokens)
    return Problem(**shape, chunk_size=chunk_size, guess_range=guess_range)


def checked_shape(
    users: int,
    query_heads: int,
    head_dim: int,
    k: TensorFacts,
    max_tokens: int,
    paging: Paging | None,
    chosen: TensorFacts | None,
    tile_masses: TensorFacts | None,
) -> dict[str, Any]:
    """Check the heads of queries and caches, bitmaps and masses; return the fields of AttentionShape. Errors:
    UnsupportedError."""
    kv_heads, cache_dim = k.shape[1], k.shape[3]
    if cache_dim != head_dim:
        raise UnsupportedError(f"q has head_dim {head_dim}, the caches have {cache_dim}")
    check_heads(query_heads, kv_heads, head_dim, max_tokens)
    check_tile_words(chosen, tile_masses, users, kv_heads, max_tokens)
    return {
        **{"users": users, "query_heads": query_heads, "kv_heads": kv_heads, "head_dim": head_dim},
        **{"max_tokens": max_tokens, "cache_dtype": k.dtype, "paging": paging},
        **{"with_chosen": chosen is not None, "with_masses": tile_masses is not None},
    }


def check_chunk(chunk_size: int, max_tokens: int) -> None:
    """Raise UnsupportedError unless `chunk_size` is a multiple of 32 tokens, at most `max_tokens`."""
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < TILE or chunk_size % TILE:
        raise UnsupportedError(f"chunk_size must be a positive multiple of {TILE}, got {chunk_size!r}")
    if chunk_size > max_tokens:
        raise UnsupportedError(f"chunk_size {chunk_size} exceeds the {max_tokens} tokens the caches hold")
