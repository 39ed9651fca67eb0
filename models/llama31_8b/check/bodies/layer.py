# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A prompt and a decode step of a model with one layer, by either decode sharding, against the reference."""

from __future__ import annotations

import torch

from models.llama31_8b.tiny import BANKED

from ..context import Context
from ..findings import Check
from .small_model import cached, cached_by_reference, make, near

CAPACITY, PROMPT_TOKENS = 64, 20


def interleaved(context: Context) -> list[Check]:
    """Decode with ttnn's default placements."""
    return _steps(context, "interleaved")


def sharded(context: Context) -> list[Check]:
    """Decode with sharded activations and weights laid out by DRAM bank."""
    return _steps(context, "sharded")


def _steps(context: Context, decode_sharding: str) -> list[Check]:
    from models.llama31_8b.tt.model import read

    model, reference = make(context.device, BANKED, capacity=CAPACITY, decode_sharding=decode_sharding)
    generator = torch.Generator().manual_seed(3)
    *prompt, token = torch.randint(0, BANKED.vocab_size, (PROMPT_TOKENS + 1,), generator=generator).tolist()
    cache = reference.new_cache(1, CAPACITY)
    wanted = reference.prefill([prompt], cache)[0]
    logits = read(model.prefill(prompt, 0, 0, last=True))[0, 0, PROMPT_TOKENS - 1].float()
    checks = [near("logits of a prompt", logits, wanted)]
    wanted = reference.forward(torch.tensor([[token]]), cache)[0, 0]
    logits = read(model.decode(model.step_inputs([token], [PROMPT_TOKENS])))[0, 0, 0].float()
    checks.append(near("logits of a decode step", logits, wanted))
    count = PROMPT_TOKENS + 1
    return [*checks, near("keys and values", cached(model, count), cached_by_reference(cache, count))]
