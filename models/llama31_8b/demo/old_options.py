# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Options of earlier releases: those that were renamed still work and say so, those that are gone say what remains."""

from __future__ import annotations

from collections.abc import Sequence

from loguru import logger

from .options import UserError

RENAMED = {"--no-chat-template": "--raw"}
REMOVED = {
    "--tail-alignment": "the guess reads whole tiles of 32 tokens, as on chips; perf.studies.quality has the option",
    "--draft-window": "--draft self reads the first and last 256 cached tokens",
    "--precision-overrides": "--precision names the formats of all layers",
    "--verify": "drafts are verified exactly; the lossy sigmoid approximation is in tt_kernels/speculative_sampling",
}


def current_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments by the names of today. Raises UserError for an option that is gone."""
    current = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in REMOVED:
            raise UserError(f"{name} is gone since 0.2.0: {REMOVED[name]}")
        if name in RENAMED:
            logger.warning("{} is {} since 0.2.0; the old name works in this release", name, RENAMED[name])
        current.append(RENAMED.get(name, name) + equals + value)
    return current
