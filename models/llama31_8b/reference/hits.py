# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How often the guess passes on a given text: every token is a decode step, many tokens at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .alspec.acceptance import SpeculationCounters
from .alspec.policies import ALSpecAttention
from .model.model import FEW_ROWS, ReferenceLlama
from .model.step import GuessRange


@torch.inference_mode()
def measure_hits(
    model: ReferenceLlama,
    ids: Sequence[int],
    threshold: float = 0.10,
    chunk_size: int | GuessRange = 128,
    progress: Callable[[int], None] | None = None,
) -> SpeculationCounters:
    """Feed a text to `model` token by token under attention-level speculation, and return what it counted.

    ids: the text's tokens, at most the model's context. threshold, chunk_size: as in ALSpecAttention. progress is
    called with the number of tokens done. Each token decides by its own position and goes on with what it accepted, as
    in decoding; the text is given, so that runs with other settings are comparable (ALSpec paper, section 5.1).
    Raises ValueError for an empty text and settings out of range, ContextLengthError for a text that is too long.

        loaded = load_model()
        counters = measure_hits(loaded.model, loaded.tokenizer.encode(text))
        print(counters.hit_rate, counters.hit_rate_per_layer)
    """
    policy = ALSpecAttention(threshold, chunk_size)
    if not ids:
        raise ValueError("the text has no tokens")
    cache, tokens = model.new_cache(1, len(ids)), torch.as_tensor(ids, dtype=torch.int64)
    for start in range(0, len(ids), FEW_ROWS):
        block = tokens[None, start : start + FEW_ROWS]
        model.forward(block, cache, policy=policy, logits="none")
        if progress is not None:
            progress(start + block.shape[1])
    return policy.statistics
