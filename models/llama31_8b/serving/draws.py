# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From the plugin's sampling parameters to draws, and the same draws on the host where the chips have no such step.

A request's number for the token at a position follows from its seed and that position alone: neither its neighbours,
nor its slot, nor a preemption changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..generation.sampling import SamplingParams, inverse_cdf, warp_logits


class Draw(NamedTuple):
    """How a slot's next token is chosen. number: in [0, 1), of the token at which the cumulative mass exceeds it. The
    seed in `params` is unused: `number` follows from it."""

    params: SamplingParams
    number: float


def number_at(seed: int, position: int) -> float:
    """Return a seed's number for the token at a position, uniform in [0, 1), of 53 bits."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def requested_draws(params: Any, positions: torch.Tensor, vocab: int, unseeded: Callable[[], float]) -> list[Draw]:
    """Return every slot's draw. params: temperature, top_k, top_p and seed, lists with an entry per slot; a top_k below
    1 or from the vocabulary on keeps all tokens, a seed may be None. positions: int [slots], of the tokens that the
    step caches. unseeded: gives numbers in [0, 1)."""
    draws = []
    for slot, position in enumerate(positions.tolist()):
        temperature, top_k, top_p = params.temperature[slot], int(params.top_k[slot]), params.top_p[slot]
        if position < 0 or temperature == 0 or top_k == 1 or top_p <= 0:
            draws.append(Draw(SamplingParams(), 0.0))
            continue
        kept = top_k if 0 < top_k < vocab else 0
        seed = params.seed[slot]
        number = unseeded() if seed is None else number_at(seed, position + 1)
        draws.append(Draw(SamplingParams(float(temperature), kept, float(top_p)), number))
    return draws


def choose_on_host(logits: torch.Tensor, draws: Sequence[Draw], positions: torch.Tensor) -> torch.Tensor:
    """Return every slot's token by its draw, int64 [slots], 0 for skipped slots. logits: float32 [slots, vocab]."""
    chosen = torch.zeros(len(draws), dtype=torch.int64)
    for slot, (params, number) in enumerate(draws):
        if positions[slot] >= 0:
            masses = warp_logits(logits[slot : slot + 1], params)
            chosen[slot] = inverse_cdf(masses, torch.tensor([number], dtype=torch.float64))[0]
    return chosen


def penalised(
    logits: torch.Tensor, params: Any, prompt_tokens: torch.Tensor, output_tokens: torch.Tensor
) -> torch.Tensor:
    """Return logits, float32 [slots, vocab], lowered by vLLM's rules: presence and frequency by what a request has put
    out, repetition also by its prompt. params: lists with an entry per slot. tokens: int [slots, any], padded with
    -1."""
    found = logits.clone()
    for slot, row in enumerate(found):
        prompt, output = (tokens[slot][tokens[slot] >= 0].long() for tokens in (prompt_tokens, output_tokens))
        seen = torch.cat((prompt, output)).unique()
        # A factor near the ends of its range would make infinities in float32.
        value, factor, limit = row[seen].double(), params.repetition_penalty[slot], torch.finfo(row.dtype).max
        row[seen] = torch.where(value > 0, value / factor, value * factor).clamp(-limit, limit).to(row.dtype)
        counts = torch.bincount(output, minlength=row.numel())
        row -= params.frequency_penalty[slot] * counts + params.presence_penalty[slot] * (counts > 0)
    return found
