# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The drafter of a run on the CPU."""

from __future__ import annotations

from loguru import logger

from ....checkpoint.load import LoadedModel, load_model
from ....reference.spec_decode.drafter import Drafter
from ....reference.spec_decode.model_drafter import ModelDrafter, SelfDrafter
from ....reference.spec_decode.ngram_drafter import NGramDrafter
from ....spec_decode.vocabulary import VocabularyMismatchError, check_vocabularies
from ...options import DemoOptions, UserError


def make_drafter(loaded: LoadedModel, options: DemoOptions) -> Drafter | None:
    """Return the drafter of --draft, None for none; load a draft model.

    Raises UserError for a draft model with another vocabulary, or a layer-parallel size that the model is too
    small for, and what load_model raises.
    """
    kind = options.drafter
    if kind == "none":
        return None
    shape = options.draft_shape()
    try:
        if kind == "ngram":
            return NGramDrafter(shape)
        if kind == "self":
            return SelfDrafter(loaded.model, shape, fuzzy=options.fuzzy)
        draft = load_model(kind)
        prints = draft.tokenizer.fingerprint(), loaded.tokenizer.fingerprint()
        check_vocabularies(loaded.config, draft.config, prints[1], prints[0])
        logger.info("draft model: {}", draft.source)
        return ModelDrafter(
            draft.model, shape, fuzzy=options.fuzzy, fingerprint=prints[0], target_fingerprint=prints[1]
        )
    except VocabularyMismatchError as error:
        raise UserError(f"--draft {kind}: {error}") from error
    except ValueError as error:
        raise UserError(str(error)) from error
