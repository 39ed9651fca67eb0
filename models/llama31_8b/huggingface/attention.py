# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Define the attention and mask functions that transformers calls under the name "alspec".

Prefill is transformers' own sdpa attention. A decode step computes that too, and the guess beside it; each query
takes the guess where it passes verification (ALSpec paper, section 3.2). So text and hit rate are those of a machine
that speculates, at the cost of both attentions.

Symbols: B rows, H query heads, K key/value heads, g = H / K, q query tokens, n cached tokens, d head size, m keys that
the guess reads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..reference.alspec.acceptance import accept_guess
from ..reference.model.step import GuessRange
from .scoring import grouped_attention, guess_of_text
from .speculation import AttentionSpeculation, UnsupportedAttentionError, check_config, speculation_of

# What a model hands its attention function beside queries, keys and values, when it is not None.
_REFUSED = {
    "softcap": "soft caps of attention scores",
    "sliding_window": "a sliding window",
    "s_aux": "learned attention sinks",
    "position_bias": "position biases",
    "cache": "paged caches",
    "head_mask": "head masks",
}


def alspec_mask(*arguments: Any, **options: Any) -> torch.Tensor | None:
    """Return transformers' sdpa mask: bool [rows, 1, queries, keys] or None. Raises UnsupportedAttentionError for a
    model with a feature that the guess does not know, before its first layer runs."""
    config, window = options.get("config"), options.get("local_size")
    if config is not None:
        check_config(config)
    if window is not None:
        kind = getattr(config, "model_type", "unknown")
        raise UnsupportedAttentionError(f"model type {kind!r} cannot be served: a sliding window of {window} tokens")
    return sdpa_mask(*arguments, **options)


@torch.compiler.disable
def alspec_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention of one layer; transformers calls it.

    query: [rows, heads, queries, d]; key, value: [rows, kv_heads, cached, d], the cache with the new tokens.
    attention_mask: bool [rows, 1, queries, cached] or None for full causal attention. Returns ([rows, queries, heads,
    d], None). Raises UnsupportedAttentionError naming what cannot be served.
    """
    _check(module, attention_mask, options)
    speculation = speculation_of(module)
    queries, cached = query.shape[2], key.shape[2]
    exact, _ = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
    )
    if speculation.scores_texts:
        _check_scoring(module, queries, cached, attention_mask)
    elif queries > 1 and (attention_mask is None or queries == cached or queries > speculation.step_tokens):
        if speculation.by_budget is not None:
            speculation.by_budget.forget()
        return exact, None  # prefill
    if dropout:
        raise UnsupportedAttentionError(
            f"attention dropout {dropout}: speculation decides at inference; call model.eval()"
        )
    guess_range, layer = speculation.guess_range, _layer_of(module)
    if attention_mask is None and not speculation.scores_texts:
        _check_position(layer, cached, options.get("position_ids"), speculation)
    if speculation.by_budget is not None:
        visible = None if attention_mask is None else attention_mask[:, 0, :, :cached].expand(len(query), -1, -1)
        guess, seen = speculation.by_budget.guess(layer, query, key, value, visible, scaling)
        eligible = seen >= guess_range.bypass_below
    elif cached < guess_range.bypass_below:
        none = torch.zeros(len(query), queries, dtype=torch.bool, device=query.device)
        speculation.record(layer, none, none)
        return exact, None
    elif speculation.scores_texts:
        guess = guess_of_text(query, key, value, guess_range, scaling)
        eligible = torch.arange(1, queries + 1, device=query.device) >= guess_range.bypass_below
        eligible = eligible.expand(len(query), -1)
    elif attention_mask is None:
        guess = guess_of_one(query, key, value, guess_range, scaling)
        eligible = torch.ones(len(query), 1, dtype=torch.bool, device=query.device)
    else:
        geometry = _geometry(attention_mask, len(query), cached, guess_range)
        guess, eligible = guess_of_rows(query, key, value, geometry, scaling), geometry.eligible
    accepted = accept_guess(guess.flatten(2).flatten(0, 1), exact.flatten(2).flatten(0, 1), speculation.threshold)
    accepted = accepted.view(len(query), queries) & eligible
    if speculation.by_budget is not None:
        speculation.by_budget.decided(accepted)
    speculation.record(layer, accepted, eligible)
    return torch.where(accepted[:, :, None, None], guess, exact), None


def _layer_of(module: nn.Module) -> int:
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise UnsupportedAttentionError(f"{type(module).__name__} has no layer_idx, so its decisions have no place")
    return int(layer)


def _check(module: nn.Module, mask: torch.Tensor | None, options: dict[str, Any]) -> None:
    name = type(module).__name__
    for option, what in _REFUSED.items():
        if options.get(option) is not None:
            raise UnsupportedAttentionError(f"{name} cannot be served: {what} ({option})")
    causal = options.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        raise UnsupportedAttentionError(f"{name} cannot be served: its attention is not causal")
    if mask is not None and (mask.dtype != torch.bool or mask.ndim != 4 or mask.shape[1] != 1):
        raise UnsupportedAttentionError(
            f"{name} cannot be served with a mask of {mask.dtype} {list(mask.shape)}; expected torch.bool "
            "[rows, 1, queries, keys]"
        )


def _check_scoring(module: nn.Module, queries: int, cached: int, mask: torch.Tensor | None) -> None:
    if mask is not None or queries != cached:
        raise UnsupportedAttentionError(
            f"{type(module).__name__}: whole texts are scored without padding and without earlier tokens in a cache; "
            f"got {queries} tokens, {cached} keys and {'a' if mask is not None else 'no'} mask"
        )


def _check_position(
    layer: int, cached: int, position_ids: torch.Tensor | None, speculation: AttentionSpeculation
) -> None:
    """Raise UnsupportedAttentionError when keys follow this step's token. Looks once per text and in layer 0 alone,
    since it waits for the device."""
    if layer:
        return
    follows = speculation.last_unmasked == cached - 1
    if not follows and position_ids is not None and position_ids.ndim == 2:
        last = int(position_ids.max())
        if last + 1 < cached:
            raise UnsupportedAttentionError(
                f"{cached} keys for a token at position {last}, without a mask: a static cache's unwritten keys would "
                "be read; use a DynamicCache (cache_implementation='dynamic')"
            )
    speculation.last_unmasked = cached


def _geometry(mask: torch.Tensor, rows: int, cached: int, guess_range: GuessRange) -> RowGeometry:
    """Return a step's geometry, which its mask holds for the other layers."""
    held: tuple[GuessRange, RowGeometry] | None = getattr(mask, "_alspec_geometry", None)
    if held is None or held[0] != guess_range:
        held = guess_range, row_geometry(mask[:, 0, :, :cached].expand(rows, -1, -1), guess_range)
        mask._alspec_geometry = held
    return held[1]


class RowGeometry(NamedTuple):
    """Which keys the guess of each row reads, after left padding or other gaps; worked out once for all layers.

    keys: int64 [B, m], cache slots in order. visible: bool [B, q, m], which of them each query's guess reads.
    eligible: bool [B, q], queries with at least 2S cached tokens.
    """

    keys: torch.Tensor
    visible: torch.Tensor
    eligible: torch.Tensor


def row_geometry(mask: torch.Tensor, guess_range: GuessRange) -> RowGeometry:
    """Return the geometry of the rows under a mask, bool [B, q, n], True where a query sees a key.

    A key's position is its number among those that the row's last query sees, so padding counts nowhere.
    """
    position = mask[:, -1].cumsum(1) - 1
    cached = mask.sum(2)
    ends = mask & guess_range.reads(position[:, None], cached[:, :, None])  # [B, q, n]
    tail = guess_range.last + (guess_range.alignment - 1 if guess_range.whole_tail else 0)
    count = min(mask.shape[2], guess_range.first + tail + mask.shape[1] - 1)  # the most that the guesses read together
    unread = ends.any(1).logical_not().to(torch.uint8)
    keys = torch.argsort(unread, dim=1, stable=True)[:, :count]
    visible = ends.gather(2, keys[:, None].expand(-1, mask.shape[1], -1))
    return RowGeometry(keys, visible, cached >= guess_range.bypass_below)


def guess_of_rows(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, geometry: RowGeometry, scale: float | None
) -> torch.Tensor:
    """Return the guess under a mask, [B, q, H, d]. query: [B, H, q, d]; key, value: [B, K, n, d]."""
    slots = geometry.keys[:, None, :, None]
    read = [part.gather(2, slots.expand(-1, part.shape[1], -1, part.shape[3])) for part in (key, value)]
    return grouped_attention(query, read[0], read[1], geometry.visible, scale)


def guess_of_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, guess_range: GuessRange, scale: float | None
) -> torch.Tensor:
    """Return the guess of rows without padding, one query each, [B, 1, H, d]. query: [B, H, 1, d]; key, value:
    [B, K, n, d] with n >= 2S."""
    first, start = guess_range.first, guess_range.tail_start(key.shape[2])
    read = [torch.cat((part[:, :, :first], part[:, :, start:]), dim=2) for part in (key, value)]
    return grouped_attention(query, read[0], read[1], None, scale)
