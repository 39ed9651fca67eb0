# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sample on the chips by parameters of each user, which are data: one trace serves all batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import ttnn

from ...config import LlamaConfig
from ...generation.sampling import SamplingParams
from ..mesh import MeshShape
from .top_k import CANDIDATES, DIGIT, NARROWEST, STEEPEST, Sampler


def draws_among_candidates(params: SamplingParams, vocab: int) -> bool:
    """Return whether PerUserSampler takes these parameters: greedy ones, and those with top_k up to 32."""
    return params.greedy or min(params.top_k or vocab, vocab) <= CANDIDATES


class PerUserSampler(Sampler):
    """See Sampler. `load` gives every user its parameters and its random number, which the next call uses."""

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, config: LlamaConfig, users: int) -> None:
        super().__init__(mesh, mesh_shape, config, SamplingParams(1.0, top_k=CANDIDATES))
        self.users = users
        self._steepness, self._most, self._nucleus, self.numbers = self._made(
            [(SamplingParams(), 0.0)] * users, on_device=True
        )

    def load(self, draws: Sequence[tuple[SamplingParams, float]]) -> None:
        """Write parameters and a number in [0, 1) of every user. Raises ValueError for parameters that
        `draws_among_candidates` excludes."""
        held = self._steepness, self._most, self._nucleus, self.numbers
        for device, host in zip(held, self._made(draws, on_device=False), strict=True):
            ttnn.copy_host_to_device_tensor(host, device)

    def _made(self, draws: Sequence[tuple[SamplingParams, float]], on_device: bool) -> list[ttnn.Tensor]:
        """Make 1 / temperature [1, 1, users, 1], the candidates that top_k keeps [1, 1, users, 32], top_p and the
        numbers [1, 1, users, 1], all float32."""
        if len(draws) != self.users:
            raise ValueError(f"{self.users} users need as many parameters, got {len(draws)}")
        rows = []
        for params, _ in draws:
            if not draws_among_candidates(params, self.vocab):
                raise ValueError(
                    f"chips sample users greedily or with top_k up to {CANDIDATES}; got top_k {params.top_k}"
                )
            kept = min(params.top_k or self.vocab, CANDIDATES)
            rows.append((1.0, 1, 1.0) if params.greedy else (1.0 / params.temperature, kept, params.top_p))
        steepness, kept, top_p = (torch.tensor(column)[:, None] for column in zip(*rows, strict=True))
        most = (torch.arange(CANDIDATES) < kept).float() * DIGIT**2
        parts = steepness.clamp(max=STEEPEST), most, top_p.clamp(min=NARROWEST)
        numbers = self.uniforms([number for _, number in draws], on_device)
        assert numbers is not None  # as they are for greedy sampling alone
        return [*(self._put(part, "float32", on_device=on_device) for part in parts), numbers]

    def _masses(self, values: ttnn.Tensor) -> ttnn.Tensor:
        logits = ttnn.typecast(values, ttnn.float32)
        below = ttnn.subtract(logits, ttnn.max(logits, dim=-1, keepdim=True))
        masses = ttnn.round(ttnn.multiply(ttnn.exp(ttnn.multiply(below, self._steepness)), self._most))
        before, total = self._sums(masses, self._before, self._all)
        return ttnn.multiply(masses, ttnn.lt(before, ttnn.multiply(total, self._nucleus)))
