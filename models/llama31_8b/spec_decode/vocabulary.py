# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The check that draft and target number their tokens alike."""

from __future__ import annotations

from ..config import LlamaConfig


class VocabularyMismatchError(ValueError):
    """Draft and target do not number their tokens alike; the message gives both sides."""


def check_vocabularies(
    target: LlamaConfig,
    draft: LlamaConfig,
    target_fingerprint: str | None = None,
    draft_fingerprint: str | None = None,
) -> None:
    """Raise VocabularyMismatchError unless sizes, and fingerprints where both are known, are equal."""
    if target.vocab_size != draft.vocab_size:
        raise VocabularyMismatchError(
            f"the draft model {draft.name} has {draft.vocab_size} token ids and the target {target.name} has "
            f"{target.vocab_size}: a draft model must share the target's tokenizer"
        )
    if target_fingerprint and draft_fingerprint and target_fingerprint != draft_fingerprint:
        raise VocabularyMismatchError(
            f"the draft model {draft.name} and the target {target.name} both have {target.vocab_size} "
            f"token ids, but their vocabularies differ (fingerprints {draft_fingerprint[:12]} and "
            f"{target_fingerprint[:12]})"
        )
