# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device cpu`: the reference model in torch; everything the project does, on a machine without boards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loguru import logger

from ...options import DemoOptions
from ...support import ATTENTIONS, DRAFTERS, Support

if TYPE_CHECKING:
    from ....checkpoint.load import LoadedModel
    from ....reference.alspec.policies import AttentionPolicy

_CHIPS = "it is for chips, on --device n150 or sim"
SUPPORT = Support(
    device="cpu",
    what="the reference model in torch, on any machine",
    default_attention="alspec",
    attention={name: None for name in ATTENTIONS},
    drafting=dict.fromkeys(DRAFTERS),
    chat=None,
    prompts_refuse={"html": "a page shows one text"},
    refused={
        "layers": "the first layers alone write no text",
        "mesh": _CHIPS,
        "precision": _CHIPS,
        "decode_sharding": _CHIPS,
        "sample_on": _CHIPS,
    },
)


def run(options: DemoOptions, texts: Sequence[str] | None) -> int:
    """Generate for the prompts `texts`, or chat where there are none; return the exit code. Raises UserError, and what
    `load_model` raises."""
    from ....checkpoint.load import load_model
    from ...chat import chat, check_chat
    from ...session import run_prompts
    from ...text import encode_prompts
    from .generation import ReferenceSession

    loaded = load_model(options.model, max_context=options.max_context)
    options.check_static_layers(loaded.source, loaded.config.num_hidden_layers)
    policy = options.policy()
    if texts is None:
        check_chat(loaded)
        return chat(ReferenceSession(loaded, options, policy, chat=True), options)
    prompts = encode_prompts(loaded, options, texts)
    session = ReferenceSession(loaded, options, policy)
    logger.info(
        "{}: {} prompt tokens, {} attention{}",
        loaded.source,
        " + ".join(str(len(ids)) for ids in prompts),
        options.attention,
        "" if session.drafter is None else f", {options.drafter} drafts",
    )
    result, code = run_prompts(session, options, prompts)
    if options.html is not None:
        write_page(loaded, options, policy, prompts[0], result.token_ids[0])
    return code


def write_page(
    loaded: LoadedModel, options: DemoOptions, policy: AttentionPolicy, prompt: list[int], tokens: list[int]
) -> None:
    """Write the page of --html. The first token comes from the prefill, where nothing speculates."""
    from pathlib import Path

    from ...shaded_page import shaded_page, shaded_tokens

    statistics = policy.statistics
    assert statistics is not None, "Support.check lets --html through with alspec attention only"
    path, rate = Path(str(options.html)), statistics.hit_rate
    facts = {
        "model": loaded.source,
        "threshold": f"{options.threshold:g}",
        "chunk size": str(options.chunk_size),
        "hit rate": "nothing verified" if rate is None else f"{rate:.1%}",
    }
    shaded = shaded_tokens(loaded.tokenizer, tokens, [None, *statistics.decisions_per_token()])
    path.write_text(shaded_page(facts, loaded.tokenizer.decode(prompt), shaded), encoding="utf-8")
    logger.info("the text, shaded: {}", path)
