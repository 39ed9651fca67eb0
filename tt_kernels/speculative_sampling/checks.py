# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the op refuses, checked on plain values so that no ttnn is needed. Every message names the values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, check_words

MAX_NODES = 32
MAX_USERS = 256
# 1024 tiles of fine parts of a lane, each up to 2^20, stay a whole float32; L1 holds fewer.
MAX_VOCAB = 1 << 20
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-4, 1e4
# Further from 0, the sigmoids of two tokens are nearer to each other than their weights tell apart.
MAX_SIGMOID_SCALE = 1e5


@dataclass(frozen=True)
class Problem:
    """The shapes of one call."""

    users: int
    nodes: int
    vocab: int
    has_draft: bool
    tiled: bool


def check_problem(
    tokens: TensorFacts,
    parents: TensorFacts,
    target_logits: TensorFacts,
    draft_logits: TensorFacts | None,
    uniforms: TensorFacts,
) -> Problem:
    """Check the inputs and return their shapes. Errors: UnsupportedError."""
    for name, facts in (("target_logits", target_logits), ("draft_logits", draft_logits)):
        if facts is None:
            continue
        if not facts.on_device or not facts.interleaved:
            raise UnsupportedError(f"{name} must be interleaved on the device, it is {facts}")
        if facts.dtype != "BFLOAT16" or facts.layout not in ("ROW_MAJOR", "TILE"):
            raise UnsupportedError(f"{name} must be bfloat16, ROW_MAJOR or TILE; it is {facts.dtype}, {facts.layout}")
        if len(facts.shape) != 3:
            raise UnsupportedError(f"{name} must be [users, nodes, vocab], its shape is {facts.shape}")
    forms = [f"{logits.shape}, {logits.layout}" for logits in (target_logits, draft_logits) if logits is not None]
    if len(set(forms)) > 1:
        raise UnsupportedError(f"draft_logits are {forms[1]}; target_logits are {forms[0]}: they must be alike")
    users, nodes, vocab = target_logits.shape
    check_limits(users, nodes, vocab)
    check_words("tokens", tokens, "UINT32", (users, nodes))
    check_words("parents", parents, "INT32", (users, nodes))
    check_words("uniforms", uniforms, "UINT32", (users, nodes))
    return Problem(users, nodes, vocab, draft_logits is not None, target_logits.layout == "TILE")


def check_limits(users: int, nodes: int, vocab: int) -> None:
    """Raise UnsupportedError unless users, nodes and vocab are integers within their limits."""
    limits = {"users": (users, MAX_USERS), "nodes": (nodes, MAX_NODES), "vocab": (vocab, MAX_VOCAB)}
    for name, (found, limit) in limits.items():
        if type(found) is not int or not 1 <= found <= limit:
            raise UnsupportedError(f"{name} must be from 1 to {limit}, got {found!r}")


def check_temperature(value: Any) -> float:
    """Return `value` as a float if it is a supported temperature. Errors: UnsupportedError."""
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not MIN_TEMPERATURE <= value <= MAX_TEMPERATURE:
        raise UnsupportedError(
            f"temperature must be from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}, got {value!r}; at 0 use "
            "greedy_verification"
        )
    return float(value)


def nearest_temperature(value: float) -> float:
    """Return the supported temperature that is nearest to one above 0. At the lowest, bfloat16 logits of magnitude 0.25
    and more share mass only where they are equal."""
    return min(max(value, MIN_TEMPERATURE), MAX_TEMPERATURE)


def check_sigmoid(alpha: float, beta: float) -> tuple[float, float]:
    """Return (alpha, beta) if alpha < 0 < beta, neither further from 0 than MAX_SIGMOID_SCALE. Errors:
    UnsupportedError."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
            raise UnsupportedError(f"{name} must be a finite number, got {value!r}")
    if not -MAX_SIGMOID_SCALE <= alpha < 0.0 < beta <= MAX_SIGMOID_SCALE:
        raise UnsupportedError(
            f"sigmoid scaling needs {-MAX_SIGMOID_SCALE:g} <= alpha < 0 < beta <= {MAX_SIGMOID_SCALE:g}, got "
            f"alpha={alpha!r} and beta={beta!r}"
        )
    return float(alpha), float(beta)
