# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stages on chips that have a fault, called by name in the children that the runner starts."""

from __future__ import annotations

from unittest import mock

from models.llama31_8b.check.bodies import collectives, pair, trees
from models.llama31_8b.check.context import Context
from models.llama31_8b.check.findings import Check


def wrong_sum(context: Context) -> list[Check]:
    """The sum counts one part of it twice."""
    import ttnn

    summed = ttnn.reduce_scatter
    with mock.patch.object(ttnn, "reduce_scatter", lambda x, **named: summed(ttnn.add(x, x), **named)):
        return collectives.collectives(context)


def every_guess_accepted(context: Context) -> list[Check]:
    """The chips verify with a threshold that no guess misses."""
    from models.llama31_8b.tt import model as by_name

    make = by_name.AttentionSpeculation
    with mock.patch.object(
        by_name, "AttentionSpeculation", lambda *given, **named: make(*given, **named | {"threshold": 1e6})
    ):
        return pair.speculating_pair(context)


def nothing_moved(context: Context) -> list[Check]:
    """Accepted keys and values stay where the tree's nodes were."""
    from models.llama31_8b.tt.kv_cache import KVCache

    with mock.patch.object(KVCache, "commit", lambda *given, **named: None):
        return trees.token_trees(context)
