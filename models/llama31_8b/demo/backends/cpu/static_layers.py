# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The fixed layers of static attention, measured as in section 2 of the ALSpec paper."""

from __future__ import annotations

from pathlib import Path

from ....checkpoint.load import LoadedModel
from ....reference.alspec.policies import ALSpecAttention
from ....reference.generate import generate
from ...options import DemoOptions, UserError

SAMPLE_PROMPT = Path(__file__).parents[2] / "sample_prompt.txt"
CALIBRATION_TOKENS = 32
# A layer is fixed to the guess when that passes on more than this share of tokens (figure 3b, p = 0.8).
LIKELIHOOD = 0.8


def calibrated_layers(loaded: LoadedModel, options: DemoOptions) -> frozenset[int]:
    """Layers whose guess passes `options.threshold` on over 80% of 32 greedy tokens after the sample prompt.

    The text is repeated until the speculation's 2S tokens are cached. Independent of the user's own prompt.
    Raises UserError when the model's context is too short for 2S tokens.
    """
    sample = loaded.tokenizer.encode(SAMPLE_PROMPT.read_text(encoding="utf-8"))
    ids, needed = list(sample), 2 * options.chunk_size
    while len(ids) < needed:
        ids += sample
    limit = loaded.config.max_position_embeddings
    if len(ids) + CALIBRATION_TOKENS > limit:
        ids = ids[: max(needed, limit - CALIBRATION_TOKENS)]
    if len(ids) + CALIBRATION_TOKENS > limit:
        raise UserError(
            f"choosing static layers needs {needed + CALIBRATION_TOKENS} tokens of context for chunk size "
            f"{options.chunk_size}, the limit is {limit}; name the layers with --static-layers"
        )
    policy = ALSpecAttention(options.threshold, options.chunk_size, options.tail_alignment)
    generate(loaded.model, [ids], max_new_tokens=CALIBRATION_TOKENS, policy=policy, eos_token_ids=())
    rates = policy.statistics.hit_rate_per_layer
    return frozenset(layer for layer, rate in enumerate(rates) if rate is not None and rate > LIKELIHOOD)
