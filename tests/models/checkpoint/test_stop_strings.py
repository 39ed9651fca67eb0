# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stop strings end a text wherever tokens cut them."""

from __future__ import annotations

import pytest

from models.llama31_8b.checkpoint.tokenizer import StopStrings, Tokenizer
from tests.support.gguf_files import write_hf_folder


class Pieces:
    """Token t is the t-th piece of a text."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(self.pieces[token] for token in ids)


@pytest.mark.parametrize(
    "pieces", [["abc"], ["a", "b", "c"], ["ab", "c"], ["a", "bc"], ["xxa", "", "b", "cx"]], ids=str
)
def test_a_stop_string_is_found_with_its_last_piece(pieces):
    stop = StopStrings(["abc", "#"], Pieces(pieces))
    assert [stop(0, token) for token in range(len(pieces))] == [False] * (len(pieces) - 1) + [True]


def test_users_have_texts_of_their_own():
    stop = StopStrings(["ab"], Pieces(["a", "b"]))
    assert [stop(0, 0), stop(1, 1), stop(0, 1)] == [False, False, True]


@pytest.mark.parametrize(
    "stop, text, at",
    [
        ("<|im_start|>", "the<|im_start|>and", 1),
        ("<|im_start|>an", "the<|im_start|>and", 2),
        ("he<|im_start|>", "the<|im_start|>and", 1),
        ("im_start", "the<|im_start|>and", 1),
        ("thean", "the<|im_start|>and", None),
        ("thean", "thean", 1),
        ("🎉<|im_end|>", "🎉<|im_end|>", 4),
    ],
)
@pytest.mark.parametrize("kind", ["ours", "transformers"])
def test_what_the_model_wrote_is_matched_special_tokens_too(stop, text, at, kind, tmp_path):
    """Text on both sides of a special token does not join."""
    write_hf_folder(tmp_path)
    tokenizer = decoder = Tokenizer.from_folder(tmp_path)
    if kind == "transformers":
        from transformers import AutoTokenizer

        decoder = AutoTokenizer.from_pretrained(tmp_path)
    ids, stops = tokenizer.encode(text), StopStrings([stop], decoder)
    found = [stops(0, token) for token in ids]
    assert (found.index(True) if True in found else None) == at
