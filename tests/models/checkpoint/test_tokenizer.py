# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers from GGUF metadata and folders, chat templates, streaming, fingerprints."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from models.llama31_8b.checkpoint.gguf_tokenizer import build_tokenizer
from models.llama31_8b.checkpoint.tokenizer import StopStrings, StreamDecoder, Tokenizer
from models.llama31_8b.config import ModelLoadError
from tests.support.gguf_files import CHAT_TEMPLATE, tiny_vocabulary, tokenizer_tables, write_hf_folder


def make(chat_template: str | None = CHAT_TEMPLATE, **changes) -> Tokenizer:
    backend, config = build_tokenizer(tokenizer_tables(**changes), Path("test.gguf"))
    options = config | {"chat_template": chat_template}
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, **options))


PLAIN = make()


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([token]) for token in tokenizer.encode(text, add_special_tokens=False)]


def test_merges_and_special_tokens():
    tokenizer = make()
    assert pieces(tokenizer, "the in and then") == ["the", " ", "in", " ", "and", " the", "n"]
    ids = tokenizer.encode("<|im_start|>the<|im_end|>")
    assert ids[0] == 1 and ids[-1] == 2 and len(ids) == 3
    assert tokenizer.decode(ids) == "the"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>the<|im_end|>"


def test_pre_tokenizers_differ_where_they_should():
    """smollm splits every digit, llama3 takes three at a time, gpt-2 any number."""
    assert pieces(make(pre="smollm"), "1234") == ["1", "2", "3", "4"]
    assert pieces(make(pre="llama-bpe"), "1234") == ["123", "4"]
    assert pieces(make(pre="gpt-2"), "4123") == ["4", "123"]
    assert pieces(make(pre="llama-bpe"), "4123") == ["4", "12", "3"]


def test_a_file_without_a_pre_tokenizer_is_read_with_a_warning(logged):
    assert pieces(make(pre=None), "4123") == pieces(make(pre="gpt-2"), "4123")
    assert logged == ["test.gguf names no pre-tokenizer: splitting words by GPT-2's rules, which may be wrong"]


def test_llama3_words_are_those_of_its_pattern():
    """Against Python's own engine on the ASCII part of the pattern Meta publishes for Llama 3."""
    pattern = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}"
    pattern += r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    backend, _ = build_tokenizer(tokenizer_tables(pre="llama-bpe"), Path("test.gguf"))
    rng = random.Random(7)
    for _ in range(300):
        parts = ("a", "Zoe", "'ll", "'D", "12", "7", " ", "  ", "\n", "\r\n", "\t", "!?", "(")
        text = "".join(rng.choices(parts, k=12))
        words = [text[start:end] for _, (start, end) in backend.pre_tokenizer.pre_tokenize_str(text)]
        assert words == re.findall(pattern, text), repr(text)


def test_llama3_takes_whole_words_before_merges():
    """Llama 3's tokenizer looks a word up first: 'zq' is a token that no merge makes."""
    tokens, _, _ = tiny_vocabulary()
    tokens[-1] = "zq"
    assert pieces(make(pre="llama-bpe", tokens=tokens), "zq") == ["zq"]
    assert pieces(make(pre="gpt-2", tokens=tokens), "zq") == ["z", "q"]


def test_a_chat_begins_with_the_bos_of_its_template_alone():
    tokenizer = make("{{ bos_token }}{{ messages[0].content }}", add_bos_token=True)
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "a"}])
    assert chat == tokenizer.encode("a") == [1, *tokenizer.encode("a", add_special_tokens=False)]


def test_bos_is_added_where_the_model_wants_it():
    assert make().encode("a") == make().encode("a", add_special_tokens=False)
    explicit = make(add_bos_token=True)
    assert explicit.encode("a") == [1, *explicit.encode("a", add_special_tokens=False)]
    assert make(pre="llama-bpe").encode("a") == explicit.encode("a")
    assert make(pre="llama-bpe", add_bos_token=False).encode("a") == make().encode("a")


def test_control_tokens_are_those_of_ids_and_template_whatever_their_type(logged):
    """Files whose types mark none, or that have no types: as with the types, and one line says so."""
    backend, _ = build_tokenizer(
        tokenizer_tables(token_type=None) | {"tokenizer.chat_template": CHAT_TEMPLATE}, Path("a.gguf")
    )
    text = "<|im_start|>the<|im_end|>"
    assert backend.encode(text).ids == make().encode(text) and backend.decode(backend.encode(text).ids) == "the"
    assert logged == ["a.gguf: taken as control tokens, though not marked: <|im_start|>, <|im_end|>"]


REFUSED = {
    "SentencePiece": (dict(model="llama"), "tokenizer model 'llama' is not supported in GGUF; supported: 'gpt2' "),
    "pre-tokenizer": (dict(pre="qwen2"), "pre-tokenizer 'qwen2' is not supported in GGUF; supported: gpt-2, smollm"),
    "no tokens": (dict(tokens=None), "metadata lacks tokenizer.ggml.tokens"),
    "no merges": (dict(merges=None), "metadata lacks tokenizer.ggml.merges"),
    "types too short": (dict(token_type=[1, 1]), "320 tokens but 2 token types"),
    "token twice": (dict(tokens=["a", "b", "a"], token_type=[1] * 3), "holds 1 tokens twice"),
    "merge of one": (dict(merges=["th"]), "inconsistent tokens and merges"),
    "merge of nothing": (dict(merges=["x yz"]), "inconsistent tokens and merges"),
    "special out of range": (dict(eos_token_id=999), "eos_token_id is 999 but there are 320 tokens"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case):
    changes, message = REFUSED[case]
    with pytest.raises(ModelLoadError, match=message) as caught:
        make(**changes)
    assert "test.gguf" in str(caught.value)


def test_streaming_holds_characters_back_until_they_are_whole():
    """Every byte of the emoji is a token of its own here."""
    tokenizer = make()
    stream = StreamDecoder(tokenizer)
    ids = tokenizer.encode("a🎉é!")
    assert len(ids) == 8
    assert [stream.push(token) for token in ids] == ["a", "", "", "", "🎉", "", "é", "!"]
    assert stream.flush() == ""


@settings(max_examples=60)
@given(st.lists(st.integers(0, 319), max_size=30))
def test_streaming_any_ids_equals_decoding_them(ids):
    """Random bytes, most of them no UTF-8."""
    stream = StreamDecoder(PLAIN)
    assert "".join(stream.push(token) for token in ids) + stream.flush() == PLAIN.decode(ids)


def test_streaming_keeps_the_spaces_of_sentencepiece_decoders():
    """Metaspace decoders drop the first space of a text; the stream must not drop it from every piece."""
    backend = Backend(models.WordLevel({"▁once": 0, "▁upon": 1, "▁a": 2, "time": 3}, unk_token="▁a"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))
    stream = StreamDecoder(tokenizer)
    assert "".join(stream.push(token) for token in (0, 1, 2, 3)) == tokenizer.decode([0, 1, 2, 3]) == "once upon atime"


def test_fingerprint_tells_vocabularies_apart():
    assert make().fingerprint() == make(pre="llama-bpe").fingerprint()
    tokens, _, _ = tiny_vocabulary()
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
    assert make(tokens=tokens).fingerprint() != make().fingerprint()


def test_folder_errors(tmp_path):
    write_hf_folder(tmp_path)
    assert Tokenizer.from_folder(tmp_path, eos_token_ids=(3,)).eos_token_ids == (3, 2)
    for name, text in (("tokenizer_config.json", "{"), ("tokenizer.json", "{}")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ModelLoadError, match="tokenizer.json or a file beside it is damaged"):
            Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match="no tokenizer.json in"):
        Tokenizer.from_folder(tmp_path)


def test_users_have_texts_of_their_own():
    stop, (a, b) = StopStrings(["ab"], PLAIN), PLAIN.encode("ab", add_special_tokens=False)
    assert [stop(0, a), stop(1, b), stop(0, b)] == [False, False, True]


@pytest.mark.parametrize(
    "stop, text, at",
    [
        ("<|im_start|>", "the<|im_start|>and", 1),
        ("<|im_start|>an", "the<|im_start|>and", 2),
        ("he<|im_start|>", "the<|im_start|>and", 1),
        ("im_start", "the<|im_start|>and", 1),
        ("thean", "the<|im_start|>and", None),
        ("thean", "thean", 1),
        ("abc", "zabcz", 3),
        ("🎉<|im_end|>", "🎉<|im_end|>", 4),
    ],
)
def test_what_the_model_wrote_is_matched_special_tokens_too(stop, text, at):
    """Text on both sides of a special token does not join."""
    ids, stops = PLAIN.encode(text), StopStrings([stop], PLAIN)
    found = [stops(0, token) for token in ids]
    assert (found.index(True) if True in found else None) == at
