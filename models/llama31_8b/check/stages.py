# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The stages of the self-test as data: what each needs, how long it may take, and what runs it."""

from __future__ import annotations

from typing import NamedTuple

LEVELS = ("quick", "full", "soak")
BODIES = "models.llama31_8b.check.bodies"


class Stage(NamedTuple):
    """name: unique. body: "module:function", called as function(context) in a process of its own. needs: stages without
    whose pass this one says nothing. level: the first of LEVELS that has it. limit_s: seconds on boards; simulated
    chips get SIM_PATIENCE times as many. chips: that the device is opened with, 0 for none."""

    name: str
    body: str
    needs: tuple[str, ...] = ()
    level: str = "quick"
    limit_s: float = 60
    chips: int = 1

    def runs_at(self, level: str) -> bool:
        return LEVELS.index(self.level) <= LEVELS.index(level)


SIM_PATIENCE = 10

STAGES = (
    Stage("host", f"{BODIES}.host:host", limit_s=20, chips=0),
    Stage("cards", f"{BODIES}.host:cards", ("host",), limit_s=20, chips=0),
    Stage("open", f"{BODIES}.device:opens", ("cards",), limit_s=120),
    Stage("stock op", f"{BODIES}.device:stock_op", ("open",), limit_s=120),
    Stage("HiFi4 probe", f"{BODIES}.device:hifi4_probe", ("stock op",), limit_s=120),
    Stage("flash decode", f"{BODIES}.ops:flash_decode", ("stock op",), limit_s=120),
    Stage("gate", f"{BODIES}.ops:gate", ("stock op",), limit_s=120),
    Stage("tree attention", f"{BODIES}.ops:tree_attention", ("stock op",), "full", 120),
    Stage("verification", f"{BODIES}.ops:verification", ("stock op",), "full", 120),
    Stage("link", f"{BODIES}.links:exchange", ("gate",), "full", 300, chips=2),
    Stage("replay", f"{BODIES}.device:replay", ("flash decode",), "full", 300),
    Stage("soak", f"{BODIES}.device:soak", ("replay",), "soak", 1800),
)
