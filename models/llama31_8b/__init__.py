# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llama 3.1 on a CPU, on simulated chips, and on boards, with speculation at two levels.

    from models.llama31_8b import Attention, load

    with load(attention=Attention("alspec"), mesh="2x1") as llama:  # without a mesh: on the CPU
        print(llama.generate("The tides are caused by", max_new_tokens=32).texts[0])

- `load` -> `Llama`: a checkpoint, ready to run; `Llama.generate` writes texts.
- `Attention`, `Draft`, `Sampling`: what decode steps attend to, what drafts for them, how tokens are drawn.
- `Mesh`: rows and columns of chips.
- `Result`: texts, times, counts of both levels.
- `measure_hits`: how often guesses of a given text pass.

Importing this needs neither ttnn nor transformers, nor torch: names are imported when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import Attention, Draft, Llama, Mesh, Result, Sampling, load, measure_hits

__all__ = ["Attention", "Draft", "Llama", "Mesh", "Result", "Sampling", "load", "measure_hits"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".api", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
