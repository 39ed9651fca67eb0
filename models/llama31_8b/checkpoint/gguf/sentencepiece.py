# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The SentencePiece BPE vocabulary of a GGUF file (Llama 2, TinyLlama, Mistral) as a `tokenizers` tokenizer.

SentencePiece stores no merges: again and again it joins the two neighbouring pieces whose union scores
highest. Ranked by score, all ways to split each piece in two are the equivalent list of merges.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers

# llama.cpp's token types.
_NORMAL, _UNKNOWN, _BYTE = 1, 2, 6
SPACE = "▁"


def sentencepiece_tokenizer(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[int], space_prefix: bool
) -> Tokenizer:
    """Build the tokenizer. tokens, scores, types: an entry per id. space_prefix: read text as if it began with a
    space."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = next((token for token, kind in zip(tokens, types) if kind == _UNKNOWN), None)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=merges_by_score(tokens, scores, types),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=_BYTE in types,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    undo: list[decoders.Decoder] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if space_prefix:
        steps.insert(0, normalizers.Prepend(SPACE))
        undo.append(decoders.Strip(content=" ", left=1, right=0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(undo)
    return tokenizer


def merges_by_score(tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]) -> list[tuple[str, str]]:
    """Return every split of a normal piece into two normal pieces, best-scored piece first."""
    ids = {token: index for index, token in enumerate(tokens) if types[index] == _NORMAL}
    merges = []
    for piece in sorted(ids, key=lambda token: (-scores[ids[token]], ids[token])):
        splits = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [(left, right) for left, right in splits if left in ids and right in ids]
        merges += sorted(known, key=lambda split: (ids[split[0]], ids[split[1]]))
    return merges
