# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Points of benches and sweeps as text: every combination of OPTION=VALUE[,VALUE...]."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any


def combinations(
    assignments: Sequence[str], defaults: Mapping[str, Any], choices: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Return all options of every combination, with values of the types of their defaults.

    Args:
        assignments: each "OPTION=VALUE[,VALUE...]"; the first one varies slowest.
        defaults: every option that there is.
        choices: the values of those that have few.

    Raises:
        ValueError: for another option, or a value of another type or that is no choice.
    """
    lists: dict[str, list[Any]] = {}
    for text in assignments:
        name, sign, values = text.partition("=")
        if not sign or name not in defaults:
            raise ValueError(f"cannot read {text!r}: OPTION=VALUE[,VALUE...] of {', '.join(defaults)}")
        lists[name] = [_value(name, value, defaults[name]) for value in values.split(",")]
        for value in lists[name] if name in choices else ():
            if value not in choices[name]:
                raise ValueError(f"{name} must be one of {', '.join(map(str, choices[name]))}, got {value}")
    return [{**defaults, **dict(zip(lists, one, strict=True))} for one in itertools.product(*lists.values())]


def _value(name: str, text: str, like: Any) -> Any:
    if isinstance(like, bool):
        if text not in ("True", "False"):
            raise ValueError(f"{name} must be True or False, got {text!r}")
        return text == "True"
    if isinstance(like, str):
        return text
    if not text.isdigit():
        raise ValueError(f"{name} must be a whole number, got {text!r}")
    return int(text)
