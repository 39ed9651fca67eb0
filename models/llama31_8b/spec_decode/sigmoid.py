# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The sigmoid approximation of verification, by its two numbers ("Optimized Speculative Sampling", equation 5)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from loguru import logger


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

    def announce(self) -> None:
        """Log, once per run, that what follows is lossy."""
        logger.warning(
            "verification is the sigmoid approximation (alpha {:g}, beta {:g}): LOSSY, the output does not "
            "have the target model's distribution",
            self.alpha,
            self.beta,
        )

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply equation 5, element by element, in float64 (the differences that matter are of size 1 / (beta -
        alpha)); a logit of -inf gives 0."""
        return torch.sigmoid((logits.double() - self.alpha) / (self.beta - self.alpha))
