# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device cpu`: the reference model in torch; everything the project does, on a machine without boards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loguru import logger

from ...checkpoint.load import resolve_source
from ...spec_decode.draft_settings import DraftShape
from ..chat import chat, check_chat
from ..options import DemoOptions, named
from ..session import Session, run_prompts
from ..text import encode_prompts

if TYPE_CHECKING:
    from ...reference.load import LoadedModel
    from ...results import AttentionStatistics


def run(options: DemoOptions, texts: Sequence[str] | None) -> int:
    """Generate for the prompts `texts`, or chat where there are none; return the exit code. Raises UserError, and what
    `load_model` raises."""
    # What is not there is refused before torch is read, and before the model is.
    if options.draft_kind == "model":
        resolve_source(options.drafter)
    resolve_source(options.model)
    from ...reference.load import load_model

    loaded = load_model(options.model, max_context=options.max_context, layers=options.layers)
    if texts is None:
        check_chat(loaded)
        return chat(ReferenceSession(loaded, options, chat=True))
    prompts = encode_prompts(loaded, options, texts)
    session = ReferenceSession(loaded, options)
    drafts = "" if session.drafter is None else f", {options.drafter} drafts"
    counts = " + ".join(str(len(ids)) for ids in prompts)
    logger.info("{}: {} prompt tokens, {} attention{}", loaded.source, counts, options.attention, drafts)
    return run_prompts(session, prompts)


class ReferenceSession(Session):
    """The reference model on this machine. chat: one user's cache is kept from text to text."""

    def __init__(self, loaded: LoadedModel, options: DemoOptions, chat: bool = False) -> None:
        """Load a draft model, if any. Raises UserError for drafts that do not go with the model, and what loading a
        checkpoint raises."""
        import torch

        from ...reference.alspec import policies
        from ...reference.generate import TorchEngine, drafter_for
        from ...spec_decode.loop import Generator

        super().__init__()
        self.checkpoint, self.options = loaded, options
        self.policy = policy = policies.by_name(*options.attention_settings().named)
        limit = loaded.config.max_position_embeddings
        self.capacity = options.chat_context(limit) if chat else limit
        self.engine = TorchEngine(loaded.model, policy, capacity=self.capacity if chat else None, on_prefill=self._bar)
        self.drafter, shape = None, DraftShape()
        if options.drafter != "none":
            shape = options.draft_shape()
            with named(f"--draft {options.drafter}: "):
                self.drafter = drafter_for(loaded, options.drafter, fuzzy=options.fuzzy)
        with named(""):
            self.generator = Generator(self.engine, self.drafter, shape)
        self.threads = torch.get_num_threads()

    @property
    def statistics(self) -> AttentionStatistics | None:
        return self.policy.statistics
