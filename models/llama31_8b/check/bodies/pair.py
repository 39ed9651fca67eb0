# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation between two chips, with layers that hit and layers that miss, against the reference."""

from __future__ import annotations

import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY

from ..context import Context
from ..findings import Check
from .small_model import cached, cached_by_reference, filled_cache, load_cache, make, near

CHUNK_SIZE, CAPACITY = 32, 128
CACHED = 95  # a guess reads 32 tokens at the start and, of 96, those from 64 on
THRESHOLD, FIRST_TOKEN, STEPS = 0.71, 55, 2


def steps_of_reference(reference: ReferenceLlama, cache, policy: ALSpecAttention) -> tuple[list[int], list]:
    """Return the greedy tokens that the steps are fed and choose, and the logits of each step."""
    tokens, logits = [FIRST_TOKEN], []
    for _ in range(STEPS):
        logits.append(reference.forward(torch.tensor([tokens[-1:]]), cache, policy=policy)[0, 0])
        tokens.append(int(logits[-1].argmax()))
    return tokens, logits


def speculating_pair(context: Context) -> list[Check]:
    """Decode on both chips what the reference decodes alone: its decisions, tokens, logits and cache. Steps after the
    first replay its trace where this dispatch has traces."""
    import ttnn

    from models.llama31_8b.tt.model import overwrite
    from models.llama31_8b.tt.settings import AttentionSettings
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    settings = AttentionSettings("alspec", CHUNK_SIZE, THRESHOLD)
    model, reference = make(context.device, TINY, capacity=CAPACITY, attention=settings)
    cache = filled_cache(reference, CACHED, CAPACITY)
    load_cache(model, cache)
    policy = ALSpecAttention(THRESHOLD, CHUNK_SIZE)
    tokens, wanted = steps_of_reference(reference, cache, policy)
    accepted = [step.accepted[:, 0, 0].tolist() for step in policy.statistics.steps]
    attention, logits, priorities = model.decode_attention, [], []
    inputs = model.step_inputs([FIRST_TOKEN], [CACHED])
    traced = TracedStep(context.device, lambda: model.decode(inputs), why_no_trace(context.device) is not None)
    for step, token in enumerate(tokens[:-1]):
        overwrite(inputs, model.step_inputs([token], [CACHED + step], on_device=False))
        output = traced()
        attention.check()
        logits.append([ttnn.to_torch(part)[0, 0, 0].float() for part in ttnn.get_device_tensors(output)])
        priorities.append(attention.last_priorities())
    replays = traced.replays
    traced.release()
    return [
        *check_decisions(priorities, accepted),
        check_tokens(logits, tokens),
        Check("steps that replayed a trace", replays),
        near("logits", torch.stack([ranks[0] for ranks in logits]), torch.stack(wanted)),
        near("keys and values", cached(model, CACHED + STEPS), cached_by_reference(cache, CACHED + STEPS)),
    ]


def check_decisions(found: list, accepted: list[list[bool]]) -> list[Check]:
    """Compare what each rank held after each layer. found: priorities after each step, by rank, layer and user.
    accepted: the reference's decisions, by step and layer."""
    from tt_kernels.common.priority import NAMES

    shown, expected = [], []
    for ranks, layers in zip(found, accepted, strict=True):
        shown.append([[NAMES.get(rank[layer][0], "none") for rank in ranks] for layer in range(len(layers))])
        sender, wanted = 0, []
        for hit in layers:
            names = ["accepted" if hit else "rejected", "received"]
            wanted.append(names if sender == 0 else names[::-1])
            sender = 1 - sender if hit else sender
        expected.append(wanted)
    hits = sum(map(sum, accepted))
    both = f"{hits} hits, {sum(map(len, accepted)) - hits} misses"
    return [Check("decisions by step, layer and rank", shown, expected, shown == expected), Check("in all", both)]


def check_tokens(logits: list, tokens: list[int]) -> Check:
    """Compare both ranks' best tokens with those that the reference fed to its next step."""
    chosen = [[int(rank.argmax()) for rank in ranks] for ranks in logits]
    expected = [[token] * 2 for token in tokens[1:]]
    return Check("tokens by step and rank", chosen, expected, chosen == expected)
