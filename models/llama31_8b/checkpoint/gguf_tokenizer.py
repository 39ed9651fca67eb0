# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer inside a GGUF file, as the tokenizer.json and tokenizer_config.json of a Hugging Face folder.

GGUF names the pre-tokenizer ("smollm", "llama-bpe", ...) instead of storing its rules; the rules of the names
supported here are those of the models' own tokenizer.json. transformers' converters take GPT-2's rules for all of them,
and so split digits of Llama 3 and SmolLM2 otherwise than the models do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from ..config import ModelLoadError

# llama.cpp's token types.
_CONTROL, _USER_DEFINED = 3, 4

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
_SMOLLM = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _GPT2])
_LLAMA3 = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(_LLAMA3_WORDS), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3")
_PRE_TOKENIZERS = {"gpt-2": _GPT2, "smollm": _SMOLLM, **dict.fromkeys(LLAMA3_NAMES, _LLAMA3)}


def build_tokenizer(metadata: Mapping[str, Any], path: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """Return (tokenizer, tokenizer_config) from the `tokenizer.*` metadata of the GGUF file `path`.

    Byte-level BPE ("gpt2") with a known pre-tokenizer. Raises ModelLoadError naming any other,
    and for missing or inconsistent tables.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelLoadError(
            f"{path}: tokenizer model {kind!r} is not supported in GGUF; supported: 'gpt2' (byte-level BPE). "
            "Load the model from its Hugging Face folder instead"
        )
    tokens = _table(metadata, "tokenizer.ggml.tokens", path)
    types = list(metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens))
    if len(types) != len(tokens):
        raise ModelLoadError(f"{path}: {len(tokens)} tokens but {len(types)} token types")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelLoadError(f"{path}: the token table holds {len(tokens) - len(vocabulary)} tokens twice")

    tokenizer, adds_bos = _byte_level(metadata, vocabulary, path)
    special = {name: _token(metadata, f"tokenizer.ggml.{key}_token_id", tokens, path) for name, key in _SPECIAL.items()}
    types = _with_control_tokens(types, tokens, special, metadata, path)
    for wanted, add in ((_CONTROL, tokenizer.add_special_tokens), (_USER_DEFINED, tokenizer.add_tokens)):
        texts = [token for token, kind in zip(tokens, types) if kind == wanted]
        add([AddedToken(text, normalized=False, special=wanted == _CONTROL) for text in texts])

    bos = special["bos_token"]
    add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", adds_bos)) and bos is not None
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, vocabulary[bos])]
        )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": add_bos,
        "clean_up_tokenization_spaces": False,
        "chat_template": metadata.get("tokenizer.chat_template"),
        **special,
    }
    return tokenizer, {key: value for key, value in config.items() if value is not None}


def _with_control_tokens(
    types: list[int], tokens: list[str], special: Mapping[str, str | None], metadata: Mapping[str, Any], path: Path
) -> list[int]:
    """Return the token types with control tokens that the file does not mark as such: those of its ids, and those that
    its chat template writes."""
    template = str(metadata.get("tokenizer.chat_template") or "")
    named = {token for name, token in special.items() if token and name != "unk_token"}
    named |= {token for token in tokens if token.startswith("<|") and token.endswith("|>") and token in template}
    unmarked = [token for token, kind in zip(tokens, types) if token in named and kind not in (_CONTROL, _USER_DEFINED)]
    if unmarked:
        logger.warning("{}: taken as control tokens, though not marked: {}", path, ", ".join(unmarked))
    return [_CONTROL if token in unmarked else kind for token, kind in zip(tokens, types)]


def _byte_level(metadata: Mapping[str, Any], vocabulary: dict[str, int], path: Path) -> tuple[Tokenizer, bool]:
    """Return (tokenizer, whether it adds a BOS when the file does not say)."""
    pre = metadata.get("tokenizer.ggml.pre")
    if pre is None:
        logger.warning("{} names no pre-tokenizer: splitting words by GPT-2's rules, which may be wrong", path)
        pre = "gpt-2"
    if pre not in _PRE_TOKENIZERS:
        raise ModelLoadError(
            f"{path}: pre-tokenizer {pre!r} is not supported in GGUF; supported: "
            f"{', '.join(_PRE_TOKENIZERS)}. Load the model from its Hugging Face folder instead"
        )
    llama3 = pre in LLAMA3_NAMES
    merges = [tuple(merge.split(" ", 1)) for merge in _table(metadata, "tokenizer.ggml.merges", path)]
    try:
        # Llama 3's tokenizer takes a word that is itself a token before it tries merges.
        model = models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False, ignore_merges=llama3)
    except Exception as error:  # the Rust library raises bare Exception for a merge that is no pair of tokens
        raise ModelLoadError(f"{path}: inconsistent tokens and merges ({error})") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[pre]
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, llama3  # Llama 3 files older than the add_bos_token key rely on the pre-tokenizer's name


_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def _table(metadata: Mapping[str, Any], key: str, path: Path) -> list[Any]:
    value = metadata.get(key)
    if not value:
        raise ModelLoadError(f"{path}: GGUF metadata lacks {key}")
    return list(value)


def _token(metadata: Mapping[str, Any], key: str, tokens: list[str], path: Path) -> str | None:
    if key not in metadata:
        return None
    index = int(metadata[key])
    if not 0 <= index < len(tokens):
        raise ModelLoadError(f"{path}: {key} is {index} but there are {len(tokens)} tokens")
    return tokens[index]
