# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What both levels of speculation gain together in steps that were measured: one chip decoding a token, a pair
speculating by attention, one chip verifying a token tree, and a pair doing both.

A step over a tree yields as many tokens as its drafts are worth, whoever verifies it: equal acceptance cancels in what
the pair adds to trees. The two gains multiply if a pair shortens a tree's step by the factor by which it shortens a
token's; `share_of_product` is how much of that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perf.steps.alspec_programs import EXACT
from perf.steps.alspec_table import Step, cycles, cycles_alone


def rows(
    tokens: Mapping[str, Step],
    trees: Mapping[str, Step],
    shape: Mapping[str, Any],
    nodes: int,
) -> list[dict[str, Any]]:
    """Return a row per hit rate that was forced in both: cycles of the four steps, and gains over one chip decoding a
    token, those of trees per token that a step yields.

    tokens, trees: steps of `alspec_step.measure`, the exact ones of one chip.
    """
    plain, alone = cycles_alone(tokens), cycles_alone(trees)
    found = []
    for name in tokens:
        if name == EXACT or name not in trees:
            continue
        pair, both = cycles(tokens[name]), cycles(trees[name])
        found.append(
            dict(shape)
            | {
                "nodes": nodes,
                "hit_rate": float(name),
                "plain": plain,
                "pair": pair,
                "trees": alone,
                "both": both,
                "gain_of_pair": plain / pair,
                "gain_of_trees": plain / alone,
                "gain_of_both": plain / both,
                "share_of_product": alone * pair / (plain * both),
            }
        )
    return found


def report(found: list[dict[str, Any]]) -> str:
    """Return the rows as text."""
    shape = found[0]
    lines = [
        f"{shape['layers']} layers, MLP {shape['intermediate']}, {shape['context']} cached tokens, chunks of "
        f"{shape['chunk_size']}, trees of {shape['nodes']} nodes; cycles of a step, fast dispatch, from a trace; gains "
        "over one chip decoding a token, those of trees times the tokens that a step yields",
        f"{'hits':>6}{'token, one':>12}{'pair':>9}{'tree, one':>11}{'pair':>9}{'pair':>8}{'trees':>8}{'both':>8}"
        f"{'of the product':>16}",
    ]
    lines += [
        f"{row['hit_rate']:>6.0%}{row['plain']:>12}{row['pair']:>9}{row['trees']:>11}{row['both']:>9}"
        f"{row['gain_of_pair']:>7.2f}x{row['gain_of_trees']:>7.2f}x{row['gain_of_both']:>7.2f}x"
        f"{row['share_of_product']:>16.2f}"
        for row in found
    ]
    return "\n".join(lines)
