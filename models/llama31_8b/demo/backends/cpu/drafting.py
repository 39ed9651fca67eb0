# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The drafter of a run on the CPU."""

from __future__ import annotations

from loguru import logger

from ....checkpoint.load import LoadedModel, load_model
from ....reference.generate import model_drafter, self_drafter
from ....spec_decode.drafters import NGramDrafter
from ....spec_decode.loop import Drafter
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
    try:
        if kind == "ngram":
            return NGramDrafter()
        if kind == "self":
            return self_drafter(loaded.model, fuzzy=options.fuzzy)
        draft = load_model(kind)
        check_vocabularies(loaded.config, draft.config, loaded.tokenizer.fingerprint(), draft.tokenizer.fingerprint())
        logger.info("draft model: {}", draft.source)
        return model_drafter(draft.model, fuzzy=options.fuzzy)
    except VocabularyMismatchError as error:
        raise UserError(f"--draft {kind}: {error}") from error
    except ValueError as error:
        raise UserError(str(error)) from error
