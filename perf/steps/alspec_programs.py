# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a bench calls its steps and their programs, and which layers it lets hit."""

import math

# How the programs of speculation are named; others have the name of their ttnn op.
ATTENTION, EXCHANGE, GATE = "attention", "exchange", "gate"
# What measured steps are called beside the hit rates that were forced: exact attention, and the layers' own decisions.
EXACT, OWN = "exact", "own"


def own_names(walk: int) -> list[str]:
    """Return the names of the steps in which the layers decide: one, or `walk` of them that follow one another."""
    return [f"{OWN} {step}" for step in range(walk)] if walk else [OWN]


def is_own(name: str) -> bool:
    return name.split()[0] == OWN


def hit_pattern(layers: int, rate: float) -> list[bool]:
    """Return which layers hit: the whole number of them nearest below `rate`, spread evenly, as appendix F counts
    them."""
    hits = math.floor(layers * rate)
    return [(index + 1) * hits // layers > index * hits // layers for index in range(layers)]
