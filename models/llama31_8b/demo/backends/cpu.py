# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device cpu`: the reference model in torch; everything the project does, on a machine without boards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from loguru import logger

from ..options import DemoOptions
from ..support import ATTENTIONS, DRAFTERS, Support

if TYPE_CHECKING:
    from ...reference.alspec.policies import AttentionPolicy
    from ...weights import LoadedModel

_CHIPS = "it is for chips, on --device n150 or sim"
SUPPORT = Support(
    device="cpu",
    what="the reference model in torch, on any machine",
    default_attention="alspec",
    attention={name: None for name in ATTENTIONS},
    drafting=dict.fromkeys(DRAFTERS),
    chat=None,
    refused={
        "layers": "the first layers alone write no text",
        "mesh": _CHIPS,
        "precision": _CHIPS,
        "precision_overrides": _CHIPS,
        "plan": _CHIPS,
        "sample_on": _CHIPS,
    },
)


def run(options: DemoOptions, text: str | None) -> int:
    """Generate for the prompt `text`, or chat where there is none; exit code. Raises UserError, and what `load_model`
    raises."""
    from ...weights import load_model
    from ..chat import chat
    from ..generation import make_policy
    from ..text import encode_prompt

    loaded = load_model(options.model, max_context=options.max_context)
    policy = make_policy(loaded, options)
    if text is None:
        return chat(loaded, options, policy)
    return run_once(loaded, options, policy, encode_prompt(loaded, options, text))


def run_once(loaded: LoadedModel, options: DemoOptions, policy: AttentionPolicy, ids: list[int]) -> int:
    """Generate once for the prompt `ids` and print text and report, or the JSON object. 130 where Ctrl-C ended it."""
    from ..drafting import make_drafter
    from ..generation import generate_text
    from ..report import make_report, show_result
    from ..text import EndAtToken, TextPrinter, token_callback

    drafter = make_drafter(loaded, options)
    logger.info(
        "{}: {} prompt tokens, {} attention{}",
        loaded.source,
        len(ids),
        options.attention,
        "" if drafter is None else f", {options.drafter} drafts",
    )
    printer = TextPrinter(loaded, None if options.json else sys.stdout)
    with EndAtToken(token_callback(loaded, options, printer.push)) as callback:
        result = generate_text(loaded, options, policy, ids, on_token=callback, drafter=drafter)
    printer.finish()
    report = make_report(
        loaded.source,
        options,
        [result],
        context=len(ids) + len(result.token_ids[0]),
        statistics=policy.statistics,
    )
    show_result(loaded, options, result, report, interrupted=callback.asked)
    if options.html is not None:
        write_page(loaded, options, policy, ids, result.token_ids[0])
    return 130 if callback.asked else 0


def write_page(
    loaded: LoadedModel, options: DemoOptions, policy: AttentionPolicy, prompt: list[int], tokens: list[int]
) -> None:
    """The page of --html. The first token comes of the prefill, where nothing speculates."""
    from pathlib import Path

    from ..shaded_page import shaded_page, shaded_tokens

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
