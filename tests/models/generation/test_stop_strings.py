# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stop strings end a text wherever tokens cut them."""

from __future__ import annotations

import pytest

from models.llama31_8b.generation.stop_strings import StopStrings


class Pieces:
    """Token t is the t-th piece of a text."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    def push(self, token: int) -> str:
        return self.pieces[token]


@pytest.mark.parametrize(
    "pieces", [["abc"], ["a", "b", "c"], ["ab", "c"], ["a", "bc"], ["xxa", "", "b", "cx"]], ids=str
)
def test_a_stop_string_is_found_with_its_last_piece(pieces):
    stop = StopStrings(["abc", "#"], lambda: Pieces(pieces))
    assert [stop(0, token) for token in range(len(pieces))] == [False] * (len(pieces) - 1) + [True]


def test_users_have_texts_of_their_own():
    stop = StopStrings(["ab"], lambda: Pieces(["a", "b"]))
    assert [stop(0, 0), stop(1, 1), stop(0, 1)] == [False, False, True]
