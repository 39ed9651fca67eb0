# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Limits of a draft model's passes; needs no device."""

from __future__ import annotations

from ...spec_decode.draft_shape import DraftShape
from ..mesh import TILE


def check_draft_shape(shape: DraftShape, users: int) -> int:
    """Return the nodes per user of a draft model's exact pass: the tokens that a round decides, or a tree's nodes with
    children. Raises ValueError for grown trees and for more than 32 rows."""
    if shape.grown:
        raise ValueError("a draft model on chips drafts trees of a fixed shape, none grown by confidence")
    nodes = shape.length + 1
    if shape.width > 1:
        # With torch, which takes a second to import: the demo's --help and its errors need none.
        from ...spec_decode.tree_shapes import fixed_shape

        # Towards the end of a text drafts are shorter, within as many nodes.
        lengths = range(1, shape.length + 1)
        nodes = max(nodes, *(len(fixed_shape(length, shape.width, shape.most_nodes).inner) for length in lengths))
    if users * nodes > TILE:
        raise ValueError(
            f"{users} users and drafts of {shape.length} tokens with {shape.width} candidates per node need "
            f"{users * nodes} rows per pass, the maximum is {TILE}"
        )
    return nodes
