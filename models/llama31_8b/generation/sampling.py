# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From logits to tokens: temperature, top-k and top-p warpers, draws from one seeded generator per user, and the
sigmoid approximation of verification ("Optimized Speculative Sampling", equation 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .request import SamplingParams


def filter_logits(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Divide logits [..., vocab] by the temperature, and set what top-k and top-p leave out to -inf.

    Returns float32 of the same shape. Needs temperature > 0 (ValueError otherwise).
    """
    if params.greedy:
        raise ValueError("filter_logits needs a temperature above 0; at 0 the choice is the arg-max")
    # Others would be 0 or infinity in float32.
    numbers = torch.finfo(torch.float32)
    scaled = logits.float() / min(max(params.temperature, numbers.tiny), numbers.max)
    vocab = scaled.shape[-1]
    top_k = params.top_k if params.top_k < vocab else 0
    if top_k == 0 and params.top_p >= 1.0:
        return scaled
    # A stable sort fixes which of several equal logits survive, whatever the batch around them.
    ordered, order = torch.sort(scaled, dim=-1, descending=True, stable=True)
    drop = torch.zeros_like(ordered, dtype=torch.bool)
    if top_k:
        drop[..., top_k:] = True
        ordered = ordered.masked_fill(drop, -math.inf)
    if params.top_p < 1.0:
        mass = torch.softmax(ordered.double(), dim=-1)
        # A token stays when the mass before it has not reached top_p; the first always stays.
        drop |= mass.cumsum(-1) - mass >= params.top_p
        drop[..., 0] = False
    return scaled.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -math.inf)


def warp_logits(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Return the distribution that the next token is drawn from.

    Shape: logits [..., vocab], any float dtype -> probabilities [..., vocab] float32, rows sum to 1. At
    temperature 0 a row is one-hot at its arg-max. Raises ValueError when the logits hold NaN.
    """
    if torch.isnan(logits).any():
        rows = int(torch.isnan(logits).any(-1).sum())
        raise ValueError(f"logits hold NaN in {rows} of {logits[..., 0].numel()} rows")
    if params.greedy:
        return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    # Softmax does not see a shift; with the largest logit at 0, no temperature makes infinities that cancel to NaN.
    shifted = logits.float() - logits.float().amax(-1, keepdim=True)
    return torch.softmax(filter_logits(shifted, params), dim=-1)


def make_generators(params: SamplingParams, batch: int) -> list[torch.Generator]:
    """Return one CPU generator per user; user u is seeded with `params.seed + u`."""
    return [torch.Generator().manual_seed(params.seed + user) for user in range(batch)]


def draw_uniforms(generators: Sequence[torch.Generator], count: int) -> torch.Tensor:
    """Return [len(generators), count] float64 in [0, 1): row u from generator u alone."""
    return torch.stack([torch.rand(count, generator=g, dtype=torch.float64) for g in generators])


@dataclass
class Draws:
    """How the texts of one call are sampled, and each user's own generator."""

    sampling: SamplingParams
    generators: list[torch.Generator]

    def uniforms(self, users: Sequence[int], count: int) -> torch.Tensor:
        """Draw `count` numbers in [0, 1) for each of these users, float64 [users, count]."""
        return draw_uniforms([self.generators[user] for user in users], count)


def inverse_cdf(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the token at which the cumulative mass first exceeds `uniform * total`.

    Shape: weights [n, vocab], not negative, need not sum to 1; uniforms [n] in [0, 1) -> int64 [n]. A token
    of weight 0 is never returned. Raises ValueError for a row without mass.
    """
    cumulative = weights.double().cumsum(-1)
    total = cumulative[:, -1].contiguous()
    if not bool((total > 0).all()):
        raise ValueError(f"no probability mass to draw from in rows {(~(total > 0)).nonzero().flatten().tolist()}")
    target = (uniforms.double() * total).unsqueeze(-1)
    drawn = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    # uniform * total may round up to total: then the last token that has mass is meant.
    last = torch.searchsorted(cumulative, total.unsqueeze(-1).contiguous()).squeeze(-1)
    return torch.minimum(drawn, last)


def sample(probabilities: torch.Tensor, generators: Sequence[torch.Generator]) -> torch.Tensor:
    """Draw one token per row, row u with generator u (one float64 uniform each).

    Shape: probabilities [n, vocab], len(generators) == n -> int64 [n].
    """
    return inverse_cdf(probabilities, draw_uniforms(generators, 1)[:, 0])


def choose_tokens(logits: torch.Tensor, sampling: SamplingParams, generators: Sequence[torch.Generator]) -> list[int]:
    """Choose one token per row of logits [n, vocab]. Raises ValueError when the logits hold NaN."""
    if not sampling.greedy:
        return sample(warp_logits(logits, sampling), generators).tolist()
    best, tokens = logits.max(dim=-1)
    if best.isnan().any():
        raise ValueError(f"logits hold NaN in rows {best.isnan().nonzero().flatten().tolist()}")
    return tokens.tolist()


@dataclass(frozen=True)
class SigmoidApproximation:
    """The lossy verifier of "Optimized Speculative Sampling for GPU Hardware Accelerators" (section 3.2.2).

    Softmax gives way to sigmoid((z - alpha) / (beta - alpha)) on target and draft logits alike (equation 5),
    which needs no reduction over the vocabulary; the acceptance test and the resampling of equations 1 to 3
    are then applied to these values although they do not sum to 1. THE OUTPUT DOES NOT HAVE THE TARGET'S
    DISTRIBUTION: the values of two tokens hardly differ, so nearly every drafted token is accepted.

    alpha < 0 < beta: the paper's values are -1e3 and 1e3 for speech, -1e4 and 1e4 for text; the defaults are
    the former, under which acceptance still depends a little on the logits. The paper leaves three cases
    open, decided here: after a fully accepted draft the bonus token comes from the target's softmax; so does
    the replacement of a rejected token when no token has p^ > q^; siblings of a tree are all tried against
    the same p^ and q^.
    """

    alpha: float = -1e3
    beta: float = 1e3

    def __post_init__(self) -> None:
        if not self.alpha < 0.0 < self.beta:
            raise ValueError(f"sigmoid scaling needs alpha < 0 < beta, got alpha={self.alpha} and beta={self.beta}")

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply equation 5, element by element, in float64 (the differences that matter are of size 1 / (beta -
        alpha)); a logit of -inf gives 0."""
        return torch.sigmoid((logits.double() - self.alpha) / (self.beta - self.alpha))
