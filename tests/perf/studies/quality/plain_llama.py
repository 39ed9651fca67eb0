# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llama with attention-level speculation written a second time from the definitions: one query and one head at a time,
dense softmax over the selected keys, float64. It shares no code with what it checks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch


class PlainRun(NamedTuple):
    """losses: [T - 1] nats. accepted: bool [layers, T]. distances: ||guess - exact|| / ||exact||, [layers, T]; NaN
    where fewer than 2 S tokens are cached."""

    losses: torch.Tensor
    accepted: torch.Tensor
    distances: torch.Tensor


def plain_run(
    weights: Mapping[str, torch.Tensor],
    shape: Mapping[str, float],
    ids: Sequence[int],
    threshold: float,
    chunk: int,
    alignment: int,
) -> PlainRun:
    """weights: Hugging Face names. shape: the fields of a Hugging Face config.json."""
    weights = {name: tensor.double() for name, tensor in weights.items()}
    layers, heads = int(shape["num_hidden_layers"]), int(shape["num_attention_heads"])
    kv_heads, size = int(shape["num_key_value_heads"]), int(shape["head_dim"])
    total = len(ids)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + shape["rms_norm_eps"]) * weights[name]

    def turn(x: torch.Tensor) -> torch.Tensor:
        """Rotary embedding of [T, heads, size]: pairs (j, j + size / 2) by position * theta ** (-2 j / size)."""
        half = size // 2
        angle = torch.arange(total).double()[:, None] * shape["rope_theta"] ** (-2 * torch.arange(half).double() / size)
        a, b = x[..., :half], x[..., half:]
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    x = weights["model.embed_tokens.weight"][torch.tensor(ids)]
    accepted = torch.zeros(layers, total, dtype=torch.bool)
    distances = torch.full((layers, total), math.nan, dtype=torch.float64)
    for layer in range(layers):
        name = f"model.layers.{layer}"
        h = norm(x, f"{name}.input_layernorm.weight")
        q, k, v = ((h @ weights[f"{name}.self_attn.{letter}_proj.weight"].T).view(total, -1, size) for letter in "qkv")
        q, k = turn(q), turn(k)
        rows = []
        for t in range(total):
            cached = t + 1
            end = math.ceil(cached / alignment) * alignment
            ends = [p for p in range(cached) if p < chunk or p >= end - chunk]

            def attend(positions: list[int]) -> torch.Tensor:
                out = []
                keys, values = k[positions], v[positions]
                for head in range(heads):
                    mine = head * kv_heads // heads
                    scores = keys[:, mine] @ q[t, head] / math.sqrt(size)
                    out.append(torch.softmax(scores, 0) @ values[:, mine])
                return torch.cat(out)

            exact = attend(list(range(cached)))
            if cached >= 2 * chunk:
                guess = attend(ends)
                distance = (guess - exact).norm() / exact.norm()
                distances[layer, t] = distance
                if distance < threshold:
                    accepted[layer, t], exact = True, guess
            rows.append(exact)
        x = x + torch.stack(rows) @ weights[f"{name}.self_attn.o_proj.weight"].T
        h = norm(x, f"{name}.post_attention_layernorm.weight")
        gate, up = (h @ weights[f"{name}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (gate * torch.sigmoid(gate) * up) @ weights[f"{name}.mlp.down_proj.weight"].T
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    logits = norm(x, "model.norm.weight") @ head.T
    picked = logits[range(total - 1), list(ids[1:])]
    return PlainRun(logits[:-1].logsumexp(-1) - picked, accepted, distances)
