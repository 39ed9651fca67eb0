# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device cpu`: the reference model in torch; everything the project does, on a machine without boards."""

from __future__ import annotations

from collections.abc import Sequence

from loguru import logger

from ..options import DemoOptions


def run(options: DemoOptions, texts: Sequence[str] | None) -> int:
    """Generate for the prompts `texts`, or chat where there are none; return the exit code. Raises UserError, and what
    `load_model` raises."""
    from ...checkpoint.load import resolve_source

    # What is not there is refused before torch is read, and before the model is.
    if options.draft_kind == "model":
        resolve_source(options.drafter)
    resolve_source(options.model)
    from ...reference.load import load_model
    from ..chat import chat, check_chat
    from ..session import run_prompts
    from ..text import encode_prompts
    from .reference_session import ReferenceSession

    loaded = load_model(options.model, max_context=options.max_context, layers=options.layers)
    options.check_static_layers(loaded.source, loaded.config.num_hidden_layers)
    if texts is None:
        check_chat(loaded)
        return chat(ReferenceSession(loaded, options, chat=True), options)
    prompts = encode_prompts(loaded, options, texts)
    session = ReferenceSession(loaded, options)
    drafts = "" if session.drafter is None else f", {options.drafter} drafts"
    counts = " + ".join(str(len(ids)) for ids in prompts)
    logger.info("{}: {} prompt tokens, {} attention{}", loaded.source, counts, options.attention, drafts)
    return run_prompts(session, options, prompts)[1]
