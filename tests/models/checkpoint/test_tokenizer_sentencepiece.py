# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""SentencePiece vocabularies in GGUF against SentencePiece's rule itself: join the best-scored neighbours."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from models.llama31_8b.checkpoint.gguf_tokenizer import build_tokenizer
from models.llama31_8b.checkpoint.tokenizer import Tokenizer

CONTROL, NORMAL, UNKNOWN, BYTE = 3, 1, 2, 6
WORDS = [
    "the",
    "then",
    "hen",
    "in",
    "an",
    "and",
    "thin",
    "ten",
    "▁the",
    "▁and",
    "▁in",
    "na",
    "ni",
    "dan",
    "▁t",
    "▁an",
]


def vocabulary(seed: int) -> tuple[list[str], list[float], list[int]]:
    """<unk> <s> </s>, 256 bytes, letters, pieces and their beginnings, each piece with a score of its own."""
    pieces = sorted({word[:end] for word in WORDS for end in range(2, len(word) + 1)} | {"en", "he", "nd", "hi"})
    letters = ["▁", *"abdehint"]
    rng = random.Random(seed)
    scores = rng.sample(range(1000), len(pieces))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *letters]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(pieces) + len(letters))
    return tokens, [0.0] * 259 + [-float(score) for score in scores] + [-1e4] * len(letters), types


def make(seed: int = 0, **changes) -> Tokenizer:
    tokens, scores, types = vocabulary(seed)
    values = {
        "model": "llama",
        "tokens": tokens,
        "scores": scores,
        "token_type": types,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **changes,
    }
    backend, config = build_tokenizer({f"tokenizer.ggml.{k}": v for k, v in values.items()}, Path("spm.gguf"))
    special = {key: value for key, value in config.items() if key.endswith("_token") and key != "add_bos_token"}
    return Tokenizer(backend, special_tokens=special)


def best_first(text: str, seed: int) -> list[str]:
    """SentencePiece's rule, slowly: join the leftmost best pair while one is a piece; bytes for the rest."""
    tokens, scores, _ = vocabulary(seed)
    score = dict(zip(tokens, scores))
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        joined = [(score[a + b], -i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in score]
        if not joined:
            break
        i = -max(joined)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    spelled = []
    for part in parts:
        spelled += [part] if part in score else [f"<0x{byte:02X}>" for byte in part.encode()]
    return spelled


@pytest.mark.parametrize("seed", range(5))
def test_pieces_are_those_of_the_best_scores(seed):
    tokenizer, rng = make(seed), random.Random(seed)
    for _ in range(200):
        text = "".join(rng.choice(["the", "n", "and", "in", " ", "hi", "t", "é", "da", "🎉"]) for _ in range(8))
        ids = tokenizer.encode(text, add_bos=False)
        assert [tokenizer.token(token) for token in ids] == best_first(text, seed), repr(text)
        assert tokenizer.decode(ids) == text


def test_bos_is_the_default_and_can_be_turned_off():
    assert make().adds_bos and make().encode("the")[0] == 1
    assert not make(add_bos_token=False).adds_bos


def test_space_prefix():
    with_space, without = make(), make(add_space_prefix=False)
    assert with_space.token(with_space.encode("the", add_bos=False)[0]).startswith("▁")
    assert without.token(without.encode("the", add_bos=False)[0]) != "▁the"
    for tokenizer in (with_space, without):
        assert tokenizer.decode(tokenizer.encode(" the and", add_bos=False)) == " the and"


def test_streaming_of_bytes_and_spaces():
    tokenizer = make()
    stream = tokenizer.stream()
    ids = tokenizer.encode("the 🎉 and é in", add_bos=False)
    parts = [stream.push(token) for token in ids]
    assert "".join(parts) == "the 🎉 and é in" and not any("\ufffd" in part for part in parts)
    assert len(ids) > 8


def test_special_tokens_of_a_prompt_are_plain_text_where_asked():
    """A word after a special token begins as it does with the whole text."""
    tokenizer = make()
    tokenizer.chat_template = "{{ bos_token }}the{% for m in messages %}{{ m.content | trim }}</s>{% endfor %}"
    for content in ("then and", " the </s> and<s>the"):
        chat = [{"role": "user", "content": content}, {"role": "user", "content": "in"}]
        split = tokenizer.apply_chat_template(chat, split_special_tokens=True)
        assert [token for token in split if token < 3] == [1, 2, 2]
        assert (split == tokenizer.apply_chat_template(chat)) == ("<" not in content)
        assert tokenizer.decode(split, False).replace(" ", "") == tokenizer.render_chat(chat).replace(" ", "")
