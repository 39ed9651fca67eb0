# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the programs of a speculative step are called in a timeline, and which of its layers a bench lets hit."""

import math

# How the programs of speculation are named; others have the name of their ttnn op.
ATTENTION, EXCHANGE, GATE = "attention", "exchange", "gate"
# What measured steps are called beside the hit rates that were forced: exact attention, and the layers' own decisions.
EXACT, OWN = "exact", "own"


def hit_pattern(layers: int, rate: float) -> list[bool]:
    """Return which layers hit: the whole number of them nearest below `rate`, spread evenly, as appendix F counts
    them."""
    hits = math.floor(layers * rate)
    return [(index + 1) * hits // layers > index * hits // layers for index in range(layers)]
