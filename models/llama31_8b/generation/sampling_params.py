# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How tokens are drawn. Without torch, which takes a second to import: options are checked before it is."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen from the target's logits.

    temperature: 0 is greedy (arg-max, lowest id among equals); otherwise logits are divided by it.
    top_k: keep the k largest logits; 0 keeps all.
    top_p: keep the smallest set of most probable tokens whose mass reaches top_p; 1 keeps all.
    seed: user u draws from its own generator seeded with `seed + u`, so a user's tokens never depend on its
        neighbours in the batch.

    Warpers apply in the order temperature, top-k, top-p (as in Hugging Face transformers). Among equal logits
    lower ids are kept first, so exactly k tokens survive top-k.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ValueError(f"temperature must be finite and at least 0, got {self.temperature}")
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0:
            raise ValueError(f"top_k must be an integer of at least 0 (0 = off), got {self.top_k!r}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be an integer from 0 to 2**63 - 1, got {self.seed!r}")

    @property
    def greedy(self) -> bool:
        """True when the choice is the arg-max."""
        return self.temperature == 0.0
