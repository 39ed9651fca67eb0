# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation on the CPU: how often is a cheap guess of the attention good enough?

    python examples/cpu_attention_speculation.py

The guess attends to the first and the last 32 cached tokens alone. With threshold 0 no guess is accepted, and the text
is that of exact attention, bit for bit.
"""

from models.llama31_8b.checkpoint.load import load_model
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, ExactAttention
from models.llama31_8b.reference.generate import generate

PROMPT = "The tides are caused by the moon and the sun. " * 8 + "In short, the tides"


def main() -> dict[str, tuple[str, float | None]]:
    """Print and return the text and the hit rate of each policy."""
    loaded = load_model()
    prompt = loaded.tokenizer.encode(PROMPT)
    found: dict[str, tuple[str, float | None]] = {}
    for policy in (ExactAttention(), ALSpecAttention(threshold=0.0, chunk_size=32), ALSpecAttention(0.2, 32)):
        result = generate(loaded.model, [prompt], max_new_tokens=12, policy=policy)
        rate = None if policy.statistics is None else policy.statistics.hit_rate
        name = f"{policy.name} {getattr(policy, 'threshold', '')}".strip()
        found[name] = loaded.tokenizer.decode(result.token_ids[0]), rate
        print(f"{name}: {found[name][0]!r}" + (f", {rate:.0%} of the guesses accepted" if rate is not None else ""))
    return found


if __name__ == "__main__":
    main()
