# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Score a whole text in one forward pass, every token a decode step (ALSpec paper, section 5.1): teacher forcing.

The exact attention of all positions is one causal sdpa. The guess is flex_attention over the tiles that hold first and
last keys on a GPU in half precision; elsewhere a block of consecutive queries reads the first keys and a window of last
ones in one sdpa call. Neither makes a tensor of T x T.

Symbols: B texts of T tokens, H query heads, K key/value heads, g = H / K, d head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..reference.model.step import GuessRange
from .speculation import AttentionSpeculation, UnsupportedAttentionError, speculation_of, unwrapped

FLEX_TILE = 128  # rows and columns of flex_attention's tiles
HEAD_BLOCK = 1024  # tokens whose next-token scores are in memory at once
QUERY_BLOCK = 512  # queries of a block: a GPU has fewer calls, and a CPU does not do much more


@dataclass(frozen=True)
class TextScore:
    """Hold what a text of T tokens gave, every one a decode step; all on the host.

    losses: float32 [T - 1], nats of each token but the first. choices: int64 [T], the likeliest next token.
    accepted: bool [layers, T]; verified: bool [T], False where fewer than 2S tokens are cached.
    """

    losses: torch.Tensor
    choices: torch.Tensor
    accepted: torch.Tensor
    verified: torch.Tensor

    @property
    def hit_rate(self) -> float | None:
        """Return accepted over verified (layer, token) pairs; None when nothing was verified."""
        return float(self.accepted[:, self.verified].double().mean()) if bool(self.verified.any()) else None


@torch.inference_mode()
def score(model: nn.Module, ids: torch.Tensor) -> TextScore:
    """Run one text through a model loaded with attn_implementation="alspec", by its settings; its counts stay as they
    are.

    model: may be wrapped, by PEFT for example. ids: int64 [T], T >= 2. Raises ValueError for another shape, and
    UnsupportedAttentionError for a model that scales its logits, puts learned prompts before a text or has another
    attention.
    """
    if ids.ndim != 1 or len(ids) < 2:
        raise ValueError(f"one text of 2 tokens and more is scored, got ids of shape {list(ids.shape)}")
    settings = speculation_of(model)
    if any(getattr(getattr(part, "active_peft_config", None), "is_prompt_learning", False) for part in model.modules()):
        raise UnsupportedAttentionError(
            f"{type(model).__name__} cannot be scored: it puts learned prompts before a text"
        )
    model = unwrapped(model)
    head = _plain_head(model)
    text = ids[None].to(model.device)
    # Without this mask transformers 4.57 looks for packed texts, and makes a mask of T x T.
    whole = torch.ones_like(text)
    own = AttentionSpeculation(settings.threshold, settings.guess_range, keep_decisions=True).attach(model)
    try:
        with own.scoring():
            states = model.base_model(input_ids=text, attention_mask=whole, use_cache=False)[0][0]
    finally:
        settings.attach(model)
    accepted, verified = own.decisions()
    return TextScore(*next_tokens(head, states, ids), accepted[:, 0], verified[0])


def next_tokens(head: nn.Module, states: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (losses [T - 1], choices [T]) of a TextScore, block by block. states: [T, hidden]; ids: [T]."""
    following = ids.roll(-1)
    losses, choices = [], []
    for start in range(0, len(ids), HEAD_BLOCK):
        block = slice(start, start + HEAD_BLOCK)
        logits = head(states[block]).float()
        losses.append(F.cross_entropy(logits, following[block].to(logits.device), reduction="none"))
        choices.append(logits.argmax(-1))
    return torch.cat(losses)[:-1].cpu(), torch.cat(choices).cpu()


def _plain_head(model: Any) -> nn.Module:
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier"):
        if (value := getattr(model.config, name, None)) not in (None, 1, 1.0):
            raise UnsupportedAttentionError(
                f"model type {model.config.model_type!r} cannot be scored: it scales its logits ({name}={value})"
            )
    return model.get_output_embeddings()


def guess_of_text(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, guess_range: GuessRange, scale: float | None
) -> torch.Tensor:
    """Return the guess of every position of texts of T tokens, [B, T, H, d]. query: [B, H, T, d]; key, value:
    [B, K, T, d]."""
    if query.is_cuda and query.dtype != torch.float32:
        return guess_by_tiles(query, key, value, guess_range, scale)
    return text_guess(query, key, value, guess_range, scale)


def guess_by_tiles(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, guess_range: GuessRange, scale: float | None
) -> torch.Tensor:
    """Do as guess_of_text, by flex_attention over the tiles that some guess reads; on a GPU compiled per length."""
    tiles = tile_mask(guess_range, query.shape[2], str(query.device))
    attend = _flex_attention(query.is_cuda)
    return attend(query, key, value, block_mask=tiles, scale=scale, enable_gqa=True).transpose(1, 2)


@lru_cache(maxsize=1)
def _flex_attention(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False) if compiled else flex_attention


@lru_cache(maxsize=8)
def tile_mask(guess_range: GuessRange, tokens: int, device: str) -> Any:
    """Return flex_attention's BlockMask of the tiles of FLEX_TILE x FLEX_TILE that some guess reads, for texts of so
    many tokens.

    Made from the tiles' numbers, (T / FLEX_TILE)^2 integers: no mask of T x T is made.
    """
    from torch.nn.attention.flex_attention import BlockMask

    rows = -(-tokens // FLEX_TILE)
    counts = torch.zeros((1, 1, rows), dtype=torch.int32)
    numbers = torch.zeros((1, 1, rows, rows), dtype=torch.int32)
    for row in range(rows):
        tail = max(0, guess_range.tail_start(row * FLEX_TILE + 1))
        read = sorted({*range(min(row + 1, -(-guess_range.first // FLEX_TILE))), *range(tail // FLEX_TILE, row + 1)})
        counts[0, 0, row] = len(read)
        numbers[0, 0, row, : len(read)] = torch.tensor(read)

    def reads(batch: Any, head: Any, query: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        return guess_reads(guess_range, query, slot)

    return BlockMask.from_kv_blocks(
        counts.to(device), numbers.to(device), BLOCK_SIZE=FLEX_TILE, mask_mod=reads, seq_lengths=(tokens, tokens)
    )


def text_guess(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, guess_range: GuessRange, scale: float | None
) -> torch.Tensor:
    """Return the guess of every position, [B, T, H, d]: attention over the first and the last of its keys, all where
    there are fewer than 2S. query: [B, H, T, d]; key, value: [B, K, T, d]."""
    positions, out = torch.arange(query.shape[2], device=query.device), []
    for start in range(0, len(positions), QUERY_BLOCK):
        end = min(len(positions), start + QUERY_BLOCK)
        # The first query's tail begins first.
        tail = max(guess_range.first, guess_range.tail_start(start + 1))
        read = torch.cat((positions[: guess_range.first], positions[tail:end]))
        mask = guess_reads(guess_range, positions[start:end, None], read[None])
        out.append(grouped_attention(query[:, :, start:end], key[:, :, read], value[:, :, read], mask, scale))
    return torch.cat(out, dim=1)


def guess_reads(guess_range: GuessRange, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return whether the guess of the query at a position reads the key at another; shapes broadcast."""
    return (key <= query) & guess_range.reads(key, query + 1)


def grouped_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    """Return attention of grouped heads, [B, q, H, d], without repeating keys. query: [B, H, q, d]; key, value:
    [B, K, m, d]; mask: bool [q, m] or [B, q, m], or None."""
    rows, heads, queries, _ = query.shape
    groups = heads // key.shape[1]
    packed = query.unflatten(1, (key.shape[1], groups)).flatten(2, 3)
    if mask is not None:
        mask = torch.cat([mask] * groups, dim=-2)
        mask = mask[:, None] if mask.ndim == 3 else mask
    out = F.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scale)
    return out.reshape(rows, heads, queries, -1).transpose(1, 2)
