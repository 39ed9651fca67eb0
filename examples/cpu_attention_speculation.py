# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation on the CPU: how often is a cheap guess of the attention good enough?

    python examples/cpu_attention_speculation.py

The guess attends to the first and the last 32 cached tokens alone. With threshold 0 no guess is accepted, and the text
is that of exact attention, bit for bit.
"""

from models.llama31_8b import Attention, load

PROMPT = "The tides are caused by the moon and the sun. " * 8 + "In short, the tides"


def generate(*attention):
    result = load(attention=Attention(*attention)).generate(PROMPT, max_new_tokens=12)
    return result.texts[0], result.statistics and result.statistics.hit_rate


if __name__ == "__main__":
    print(f"exact: {generate('exact')[0]!r}")
    for threshold in (0.0, 0.2):
        text, rate = generate("alspec", 32, threshold)
        print(f"alspec {threshold}: {text!r}, {rate:.0%} of the guesses accepted")
