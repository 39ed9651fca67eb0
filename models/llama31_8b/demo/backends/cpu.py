# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device cpu`: the reference model in torch; everything the project does, on a machine without boards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loguru import logger

from ...checkpoint.load import resolve_source
from ...spec_decode.draft_settings import DraftShape
from ..options import DemoOptions, named
from ..session import Session, run_session
from ..text import encode_prompts

if TYPE_CHECKING:
    from ...reference.load import LoadedModel


def run(options: DemoOptions, texts: Sequence[str] | None) -> int:
    """Generate for the prompts `texts`, or chat where there are none; return the exit code. Raises UserError, and what
    `load_model` raises."""
    # What is not there is refused before torch is read, and before the model is.
    if options.draft_kind == "model":
        resolve_source(options.drafter)
    resolve_source(options.model)
    from ...reference.load import load_model

    loaded = load_model(options.model, max_context=options.max_context, layers=options.layers)
    prompts = encode_prompts(loaded, options, texts)
    session = session_on_cpu(loaded, options, chats=prompts is None)
    if prompts is not None:
        drafts = "" if session.generator.drafter is None else f", {options.drafter} drafts"
        counts = " + ".join(str(len(ids)) for ids in prompts)
        logger.info("{}: {} prompt tokens, {} attention{}", loaded.source, counts, options.attention, drafts)
    return run_session(session, prompts)


def session_on_cpu(loaded: LoadedModel, options: DemoOptions, chats: bool) -> Session:
    """Return the reference model's session, with a draft model, if any. chats: one user's cache is kept from text to
    text. Raises UserError for drafts that do not go with the model, and what loading a checkpoint raises."""
    import torch

    from ...reference.alspec import policies
    from ...reference.generate import TorchEngine, drafter_for
    from ...spec_decode.loop import Generator

    policy = policies.by_name(*options.attention_settings().named)
    limit = loaded.config.max_position_embeddings
    capacity = options.chat_context(limit) if chats else limit
    engine = TorchEngine(loaded.model, policy, capacity=capacity if chats else None)
    drafter, shape = None, DraftShape()
    if options.drafter != "none":
        shape = options.draft_shape()
        with named(f"--draft {options.drafter}: "):
            drafter = drafter_for(loaded, options.drafter, fuzzy=options.fuzzy)
    with named(""):
        generator = Generator(engine, drafter, shape)
    return Session(loaded, options, generator, capacity, torch.get_num_threads())
