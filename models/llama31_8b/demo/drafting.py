# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The drafter a run asks for."""

from __future__ import annotations

from loguru import logger

from models.llama31_8b.reference.token_speculation.drafter import Drafter
from models.llama31_8b.reference.token_speculation.model_drafter import ModelDrafter, SelfDrafter
from models.llama31_8b.reference.token_speculation.ngram_drafter import NGramDrafter
from models.llama31_8b.token_speculation.vocabulary import VocabularyMismatchError, check_vocabularies

from ..weights import LoadedModel, load_model
from .options import DemoOptions, UserError


def make_drafter(loaded: LoadedModel, options: DemoOptions) -> Drafter | None:
    """The drafter of --draft, None for none. A draft model is loaded here.

    Raises UserError for a draft model with another vocabulary, or a layer-parallel size the model is too
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
            return SelfDrafter(loaded.model, shape, window=options.draft_window, fuzzy=options.fuzzy)
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
