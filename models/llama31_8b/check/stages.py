# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The stages of the self-test as data: what each needs, how long it may take, and what runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LEVELS = ("quick", "full", "soak")
BODIES = "models.llama31_8b.check.bodies"


class Stage(NamedTuple):
    """name: unique. body: "module:function", called as function(context) in a process of its own. needs: stages without
    whose pass this one says nothing. level: the first of LEVELS that has it. limit_s: seconds on boards; simulated
    chips get SIM_PATIENCE times as many. chips: that the device is opened with, 0 for none. columns: of their mesh.
    grid: columns x rows of cores of a simulated chip. timed: whether simulated kernels count their cycles.
    recorded: whether its outputs are compared with recorded ones."""

    name: str
    body: str
    needs: tuple[str, ...] = ()
    level: str = "quick"
    limit_s: float = 60
    chips: int = 1
    columns: int = 1
    grid: str = "2x1"
    timed: bool = False
    recorded: bool = False

    @property
    def mesh(self) -> tuple[int, int] | None:
        """Return the rows and columns of the mesh to open, None if no device is needed."""
        return (self.chips // self.columns, self.columns) if self.chips else None

    def runs_at(self, level: str) -> bool:
        return LEVELS.index(self.level) <= LEVELS.index(level)


SIM_PATIENCE = 10

STAGES = (
    Stage("host", f"{BODIES}.host:host", limit_s=20, chips=0),
    Stage("cards", f"{BODIES}.host:cards", ("host",), limit_s=20, chips=0),
    Stage("open", f"{BODIES}.device:opens", ("cards",), limit_s=120),
    Stage("stock op", f"{BODIES}.device:stock_op", ("open",), limit_s=120),
    Stage("HiFi4 probe", f"{BODIES}.device:hifi4_probe", ("stock op",), limit_s=120),
    Stage("flash decode", f"{BODIES}.ops:flash_decode", ("stock op",), limit_s=120, recorded=True),
    Stage("gate", f"{BODIES}.ops:gate", ("stock op",), limit_s=120),
    Stage("tree attention", f"{BODIES}.ops:tree_attention", ("stock op",), "full", 120, recorded=True),
    Stage("verification", f"{BODIES}.ops:verification", ("stock op",), "full", 120, recorded=True),
    Stage("link", f"{BODIES}.links:exchange", ("gate",), "full", 300, chips=2),
    Stage("collectives", f"{BODIES}.collectives:collectives", ("stock op",), "full", 300, 2, 2, "4x2"),
    Stage("layer", f"{BODIES}.layer:interleaved", ("stock op",), "full", 300),
    Stage("sharded layer", f"{BODIES}.layer:sharded", ("flash decode", "layer"), "full", 300, grid="8x8"),
    Stage("pair", f"{BODIES}.pair:speculating_pair", ("flash decode", "layer", "link"), "full", 300, 2, grid="2x2"),
    Stage("token trees", f"{BODIES}.trees:token_trees", ("tree attention", "verification", "layer"), "full", 300),
    Stage("links of 4", f"{BODIES}.links:exchange", ("link",), "full", 300, 4, columns=2),
    Stage("links of 8", f"{BODIES}.links:exchange", ("link",), "full", 300, 8, columns=4),
    Stage("collectives of 4", f"{BODIES}.collectives:collectives", ("links of 4",), "full", 300, 4, 2, "4x2"),
    Stage("collectives of 8", f"{BODIES}.collectives:collectives", ("links of 8",), "full", 300, 8, 4, "4x2"),
    Stage("rates", f"{BODIES}.rates:rates", ("flash decode",), "full", 300, grid="8x8", timed=True),
    Stage("replay", f"{BODIES}.device:replay", ("flash decode",), "full", 300),
    Stage("soak", f"{BODIES}.soak:soak", ("layer", "replay"), "soak", 1800),
)


def recorded_stages(stages: Sequence[Stage] = STAGES) -> tuple[Stage, ...]:
    """Return the stages whose outputs are recorded, and those that they need, in order."""
    wanted: set[str] = set()
    for stage in reversed(stages):
        if stage.recorded or stage.name in wanted:
            wanted |= {stage.name, *stage.needs}
    return tuple(stage for stage in stages if stage.name in wanted)
