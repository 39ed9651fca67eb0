# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode loops of a small model, again and again: every loop gives the first one's logits."""

from __future__ import annotations

import torch

from models.llama31_8b.tiny import TINY

from ..context import Context
from ..expectations import correlation
from ..findings import Check
from .small_model import MIN_PCC, filled_cache, load_cache, make

LOOPS = 50
TOKENS, SIM_TOKENS = 32, 2  # per loop
CACHED, CAPACITY = 95, 128


def soak(context: Context) -> list[Check]:
    """Capture a decode step and replay it for each token of a loop, LOOPS times: the first loop is near the reference,
    the others equal the first bit for bit."""
    model, reference = make(context.device, TINY, capacity=CAPACITY)
    cache = filled_cache(reference, CACHED, CAPACITY)
    load_cache(model, cache)
    count = SIM_TOKENS if context.simulated else TOKENS
    tokens = torch.randint(0, TINY.vocab_size, (count,), generator=torch.Generator().manual_seed(4)).tolist()
    first, replays = _loop(context.device, model, tokens)
    differ = 0
    for _ in range(LOOPS - 1):
        logits, replayed = _loop(context.device, model, tokens)
        differ += int(not torch.equal(logits, first))
        replays += replayed
    wanted = torch.stack([reference.forward(torch.tensor([[token]]), cache)[0, 0] for token in tokens])
    pcc = correlation(first.flatten(), wanted.flatten())
    return [
        Check(f"{LOOPS} loops of {count} tokens", f"{differ} differ", "0 differ", differ == 0),
        Check("steps that replayed a trace", replays),
        Check("logits of the first loop", f"PCC {pcc:.6f}", f"PCC of {MIN_PCC} or more", pcc >= MIN_PCC),
    ]


def _loop(device, model, tokens: list[int]) -> tuple[torch.Tensor, int]:
    """Return logits by token, and how many steps replayed a trace."""
    from models.llama31_8b.tt.model import overwrite, read
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    inputs, logits = model.step_inputs([tokens[0]], [CACHED]), []
    traced = TracedStep(device, lambda: model.decode(inputs), why_no_trace(device) is not None)
    for step, token in enumerate(tokens):
        overwrite(inputs, model.step_inputs([token], [CACHED + step], on_device=False))
        logits.append(read(traced())[0, 0, 0].float())
    replays = traced.replays
    traced.release()
    return torch.stack(logits), replays
