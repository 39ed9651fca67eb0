# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Give attention-level speculation to every decoder of transformers: importing this package registers "alspec".

    import models.llama31_8b.huggingface as alspec
    model = AutoModelForCausalLM.from_pretrained(ID, attn_implementation="alspec")
    speculation = alspec.AttentionSpeculation(threshold=0.10, chunk_size=128).attach(model)
    model.generate(...)
    print(speculation.hit_rate)

Needs transformers 4.53 or newer (masks by AttentionMaskInterface); tests run with 4.57 and 5.23.
"""

from transformers import AttentionInterface, AttentionMaskInterface

from .attention import alspec_attention, alspec_mask
from .scoring import TextScore, score
from .speculation import ATTENTION_NAME, AttentionSpeculation, UnsupportedAttentionError, speculation_of

__all__ = [
    "ATTENTION_NAME",
    "AttentionSpeculation",
    "TextScore",
    "UnsupportedAttentionError",
    "score",
    "speculation_of",
]

# Under one name: without a mask function of that name transformers passes no mask, and causality is lost.
AttentionInterface.register(ATTENTION_NAME, alspec_attention)
AttentionMaskInterface.register(ATTENTION_NAME, alspec_mask)
