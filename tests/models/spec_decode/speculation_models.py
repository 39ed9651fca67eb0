# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Small random models for the speculation tests: a target, drafts that resemble it, and one full of
near-ties."""

from dataclasses import replace

import torch
from loguru import logger
from scipy.stats import chisquare

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.alspec.policies import ExactAttention
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


def near_ties(gap: float = 2e-7, seed: int = 0) -> ReferenceLlama:
    """Every token has a twin whose head row differs from its own by a relative `gap`: 2e-7 is about one
    rounding error, 1e-4 is far above rounding and far below any other difference between logits."""
    weights = random_state_dict(CONFIG, seed)
    head = weights["lm_head.weight"]
    head[1::2] = head[0::2] * (1 + gap * torch.sign(head[1::2]))
    return ReferenceLlama.from_state_dict(replace(CONFIG, name="near-ties"), weights)


def prompts(count: int, length: int = 64, seed: int = 0, vocab: int = CONFIG.vocab_size) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, (count, length), generator=generator).tolist()


def same_greedy_text(model, texts, plain, speculative, policy=ExactAttention, tie: float = 2e-5) -> int:
    """Asserts that both outputs are equal token for token. Where one differs, the two logits are shown and
    must be a tie up to rounding; what follows a broken tie is another text and is not compared. Returns the
    broken ties."""
    broken = 0
    for user, (expected, got) in enumerate(zip(plain, speculative)):
        if expected == got:
            continue
        at = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
        assert at < min(len(expected), len(got)), f"user {user}: {len(expected)} and {len(got)} tokens"
        cache = model.new_cache(1)
        before = [*texts[user], *expected[:at]]
        model.prefill([before[:-1]], cache)
        logits = model.forward(torch.tensor([before[-1:]]), cache, policy=policy())[0, 0]
        a, b = float(logits[expected[at]]), float(logits[got[at]])
        logger.warning(
            "user {} token {}: plain takes {} (logit {:.9f}), speculative {} (logit {:.9f})",
            *(user, at, expected[at], a, got[at], b),
        )
        assert abs(a - b) < tie and max(a, b) >= float(logits.max()) - tie, "not a tie: a real difference"
        broken += 1
    return broken


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
