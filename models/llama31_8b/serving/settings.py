# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter's own settings, which vLLM carries in the model's Hugging Face config.

--hf-overrides '{"alspec": {"attention": "alspec", "chunk_size": 128, "threshold": 0.1}}'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tt.precision import PRECISIONS
from ..tt.settings import AttentionSettings, ModelSettings

_OF_ALSPEC = ("chunk_size", "threshold", "predictor", "budget")
SETTINGS = ("attention", *_OF_ALSPEC, "decode_sharding", "precision")


def model_settings(overrides: Mapping[str, Any] | None, optimizations: str | None, users: int) -> dict[str, Any]:
    """Return the arguments of ModelSettings that a server's settings name, without the cache's.

    overrides: `alspec` of the Hugging Face config, None if absent. optimizations: vllm-tt-plugin's, "performance",
    "accuracy" or None. users: slots. Raises ValueError for an unknown name or value, or two that contradict."""
    given = dict(overrides or {})
    if unknown := sorted(set(given) - set(SETTINGS)):
        raise ValueError(f"alspec has no setting {unknown[0]!r}; settings: {', '.join(SETTINGS)}")
    if "precision" in given and optimizations is not None:
        raise ValueError(f"precision {given['precision']!r} and optimizations {optimizations!r}: name one of them")
    precision = given.get("precision", optimizations or "performance")
    if precision not in PRECISIONS:
        raise ValueError(f"no precision {precision!r}; precisions: {', '.join(PRECISIONS)}")
    attention = {name: given[name] for name in _OF_ALSPEC if name in given}
    policy = given.get("attention", "exact")
    if policy == "exact" and attention:
        raise ValueError(f"{', '.join(attention)} have no effect with exact attention")
    settings = AttentionSettings(policy, **attention)
    sharding = given.get("decode_sharding", "interleaved")
    found = {"users": users, "precision": precision, "attention": settings, "decode_sharding": sharding}
    ModelSettings(**found)
    return found
