# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Small random models for the speculation tests: a target, drafts that resemble it, and one full of near-ties."""

from dataclasses import replace

import torch
from scipy.stats import chisquare

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from tests.support.attention_cases import tiny_config

CONFIG = tiny_config(vocab_size=64, intermediate_size=48, num_hidden_layers=6, name="random-target")


def target(seed: int = 0, **fields) -> ReferenceLlama:
    return ReferenceLlama.random(replace(CONFIG, **fields), seed)


def resembling(noise: float, seed: int = 0, **fields) -> ReferenceLlama:
    """The target's weights with relative noise: a draft model that is right much of the time."""
    config = replace(CONFIG, name="random-draft", **fields)
    generator = torch.Generator().manual_seed(1000 + seed)
    weights = {
        name: value * (1 + noise * torch.randn(value.shape, generator=generator))
        for name, value in random_state_dict(config, seed).items()
    }
    return ReferenceLlama.from_state_dict(config, weights)


def near_ties() -> ReferenceLlama:
    """Every token has a twin whose head row differs from its own by a relative 1e-4, far above rounding and far below
    any other difference between logits."""
    weights = random_state_dict(CONFIG, 0)
    head = weights["lm_head.weight"]
    head[1::2] = head[0::2] * (1 + 1e-4 * torch.sign(head[1::2]))
    return ReferenceLlama.from_state_dict(replace(CONFIG, name="near-ties"), weights)


def prompts(count: int, length: int = 64, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, CONFIG.vocab_size, (count, length), generator=generator).tolist()


def rand(*shape, seed: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def p_value(cells: torch.Tensor, distribution: torch.Tensor) -> float:
    """Chi-squared of observed cells, by number, against a distribution; rare cells count as one."""
    expected = distribution.double().flatten()
    observed = torch.bincount(cells, minlength=len(expected))
    if bool((observed[expected == 0] > 0).any()):
        return 0.0
    expected = expected / expected.sum() * len(cells)
    rare = expected < 8
    observed = torch.cat([observed[~rare], observed[rare].sum().reshape(1)])
    expected = torch.cat([expected[~rare], expected[rare].sum().reshape(1)])
    kept = expected > 0
    return float(chisquare(observed[kept], expected[kept]).pvalue)
