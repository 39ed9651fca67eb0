# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draft shapes, vocabulary checks, n-gram look-up, and layer-parallel strategies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.llama31_8b.spec_decode.draft_settings import DraftShape, layer_groups


@pytest.mark.parametrize(
    ("layers", "size", "strategy"),
    [
        (32, 2, "0 1-2 3-4 5-6 7-8 9-10 11-12 13-14 15-16 17-18 19-20 21-22 23-24 25-26 27-28 29-30 31"),
        (32, 3, "0 1-3 4-6 7-9 10-12 13-15 16-18 19-21 22-24 25-27 28-30 31"),
        (32, 4, "0 1-3 4-7 8-11 12-15 16-19 20-23 24-27 28-30 31"),
        (32, 5, "0 1-3 4-8 9-13 14-18 19-23 24-28 29-30 31"),
        (28, 4, "0 1-3 4-7 8-11 12-15 16-19 20-23 24-26 27"),
    ],
)
def test_strategies_of_table_6(layers, size, strategy):
    groups = [f"{group[0]}-{group[-1]}" if len(group) > 1 else str(group[0]) for group in layer_groups(layers, size)]
    assert groups == strategy.split()


@given(st.integers(1, 80), st.integers(1, 8))
def test_strategies_cover_every_layer_once(layers, size):
    if size > max(1, layers - 2):
        with pytest.raises(ValueError, match=f"model of {layers} layers, got {size}"):
            layer_groups(layers, size)
        return
    groups = layer_groups(layers, size)
    assert [layer for group in groups for layer in group] == list(range(layers))
    assert len(groups[0]) == 1 and len(groups[-1]) == 1 and max(map(len, groups)) <= size


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        (None, None, DraftShape(4)),
        (None, 7, DraftShape(7)),
        (None, 0, DraftShape(0)),
        ("5x3", None, DraftShape(5, 3, budget=16)),
        ("5x3", 5, DraftShape(5, 3, budget=16)),
        ("4x1", None, DraftShape(4, 1, budget=5)),
        ("4x9", None, DraftShape(4, 9, budget=32)),
        ("auto", None, DraftShape(5, 4, True)),
        ("auto", 6, DraftShape(6, 4, True)),
    ],
)
def test_tree_options(text, length, expected):
    assert DraftShape.parse(text, length) == expected


@pytest.mark.parametrize("text", ["4", "4x", "x4", "0x2", "2x0", "4x2x2", "-1x2", "Auto", "4 x 2"])
def test_bad_tree_options_are_refused(text):
    with pytest.raises(ValueError, match=text.replace("-", ".")):
        DraftShape.parse(text)


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError, match="tree 4x2 has depth 4, but the draft length is given as 5"):
        DraftShape.parse("4x2", 5)
    words = "a draft of 40 tokens needs 41 rows with its root, a verification pass has 32"
    with pytest.raises(ValueError, match=words):
        DraftShape.parse("40x2")
    for fields in ({"length": -1}, {"width": 0}, {"budget": 1}, {"length": 2.5}):
        with pytest.raises(ValueError, match="draft .* must be an integer"):
            DraftShape(**fields)
