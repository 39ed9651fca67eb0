# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of the reference under attention-level speculation, with how far each guess was off; and a
threshold that divides them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention, AttentionPolicy


class Recorded(ALSpecAttention):
    """ALSpecAttention of one user that keeps |guess - exact| / |exact| of a step's layers, None where bypassed."""

    def begin_step(self, step, layers):
        super().begin_step(step, layers)
        self.ratios: list[float | None] = []

    def attend(self, layer, segments):
        ratio = None
        if segments.eligible is True:
            exact = segments.exact()
            ratio = float((segments.guess() - exact).norm() / exact.norm())
        self.ratios.append(ratio)
        return super().attend(layer, segments)


@dataclass
class ReferenceSteps:
    """tokens: the first from the prompt, then one a step; logits: float32 [vocab] after the prompt and each step.
    ratios, accepted: [steps][layers], under Recorded alone. cache: KVCache after the last step."""

    tokens: list[int]
    logits: list[torch.Tensor]
    ratios: list[list[float | None]]
    accepted: list[list[bool]]
    cache: object


@torch.inference_mode()
def reference_steps(model, prompt: list[int], steps: int, policy: AttentionPolicy, capacity: int) -> ReferenceSteps:
    """Greedy decoding of one user."""
    cache = model.new_cache(1, capacity)
    found = ReferenceSteps([], [model.prefill([prompt], cache)[0].float()], [], [], cache)
    for _ in range(steps):
        found.tokens.append(int(found.logits[-1].argmax()))
        found.logits.append(model.forward(torch.tensor([found.tokens[-1:]]), cache, policy=policy)[0, 0].float())
        if isinstance(policy, Recorded):
            found.ratios.append(policy.ratios)
            found.accepted.append(policy.statistics.steps[-1].accepted[:, 0, 0].tolist())
    found.tokens.append(int(found.logits[-1].argmax()))
    return found


def margin(found: ReferenceSteps, threshold: float) -> float:
    """The least relative distance of a ratio from `threshold`."""
    return min(abs(r / threshold - 1) for row in found.ratios for r in row if r is not None)
