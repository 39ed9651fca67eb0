# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The stages of the self-test as data: what each needs, how long it may take, what runs it, and the way around it."""

from __future__ import annotations

import re
from typing import NamedTuple

LEVELS = ("quick", "full", "soak")
CHIPS, MODEL = f"{__package__}.on_chips", f"{__package__}.with_model"
SIM_PATIENCE = 10  # times a board's limit on simulated chips


class Stage(NamedTuple):
    """name: unique. body: "module:function", called as function(context) in a process of its own. advice: what goes on
    working without it. needs: stages without whose pass this one says nothing. level: the first of LEVELS that has it.
    limit_s: seconds on boards. chips: that the device is opened with, 0 for none. columns: of their mesh. grid: columns
    x rows of cores of a simulated chip. float32: it has ttnn ops on float32 tiles."""

    name: str
    body: str
    advice: tuple[str, ...]
    needs: tuple[str, ...] = ()
    level: str = "quick"
    limit_s: float = 120
    chips: int = 1
    columns: int = 1
    grid: str = "2x1"
    float32: bool = False

    @property
    def mesh(self) -> tuple[int, int] | None:
        """Return the rows and columns of the mesh to open, None if no device is needed."""
        return (self.chips // self.columns, self.columns) if self.chips else None

    def runs_at(self, level: str) -> bool:
        return LEVELS.index(self.level) <= LEVELS.index(level)


_CPU = "`llama-alspec --device cpu` needs no board"
_EXACT = "`--attention exact` on the same mesh needs neither gate nor exchange"
_NO_TREES = ("`--draft none` needs no token trees",)
_ONE = "`--mesh 1x1` needs no link"
_CABLES = "check the cables of the chips that are named"
_INTERLEAVED = "`--decode-sharding interleaved` decodes with ttnn's default placements"
# fmt: off
STAGES = (
    Stage("host", f"{CHIPS}:host", (_CPU, "`python -m runtime_patches.board.doctor`"), limit_s=20, chips=0),
    Stage("cards", f"{CHIPS}:cards", ("choose N150 boards with TT_VISIBLE_DEVICES", _CPU), ("host",), limit_s=20,
          chips=0),
    Stage("open", f"{CHIPS}:opens", ("`tt-smi -r`, then once more: a first opening fails now and then",
          "update firmware and driver"), ("cards",)),
    Stage("stock op", f"{CHIPS}:stock_op", ("ttnn itself does not compute: `tt-smi -r`, then ttnn's own examples",),
          ("open",)),
    Stage("HiFi4 probe", f"{CHIPS}:hifi4_probe", ("`--precision performance` has no product with float32 sums",),
          ("stock op",), float32=True),
    Stage("flash decode", f"{CHIPS}:flash_decode", ("`--attention exact --decode-sharding interleaved` decodes with "
          "ttnn's own attention",), ("stock op",)),
    Stage("gate", f"{CHIPS}:gate", (_EXACT,), ("stock op",)),
    Stage("tree attention", f"{CHIPS}:tree_attention", _NO_TREES, ("stock op",), "full"),
    Stage("verification", f"{CHIPS}:verification", (*_NO_TREES, "`--sample-on host` chooses tokens on the host"),
          ("stock op",), "full"),
    Stage("link", f"{CHIPS}:exchange", (_ONE, _EXACT, _CABLES), ("gate",), "full", 300, 2),
    Stage("collectives", f"{CHIPS}:collectives", ("`--mesh 1x1` or 2x1 has no TP group, so no collectives", _CABLES),
          ("stock op",), "full", 300, 2, 2, "4x2"),
    Stage("layer", f"{MODEL}:interleaved", ("`--precision accuracy`", _CPU), ("stock op",), "full", 300,
          float32=True),
    Stage("sharded layer", f"{MODEL}:sharded", (_INTERLEAVED,), ("flash decode", "layer"), "full", 300, grid="8x8",
          float32=True),
    Stage("pair", f"{MODEL}:speculating_pair", (_EXACT, "`--mesh 1x2` shares the work between both chips"),
          ("flash decode", "layer", "link"), "full", 300, 2, grid="2x2"),
    Stage("token trees", f"{MODEL}:token_trees", _NO_TREES, ("tree attention", "verification", "layer"), "full", 300,
          float32=True),
    Stage("links of 4", f"{CHIPS}:exchange", ("`--mesh 2x1` or 1x2 on chips whose pair passes", _CABLES), ("link",),
          "full", 300, 4, 2),
    Stage("links of 8", f"{CHIPS}:exchange", ("`--mesh 2x2` or smaller on chips whose pairs pass", _CABLES), ("link",),
          "full", 300, 8, 4),
    Stage("collectives of 4", f"{CHIPS}:collectives", ("`--mesh 2x1` has no collectives",), ("links of 4",), "full",
          300, 4, 2, "4x2"),
    Stage("collectives of 8", f"{CHIPS}:collectives", ("`--mesh 2x2`, or 2x1, which has no collectives",),
          ("links of 8",), "full", 300, 8, 4, "4x2"),
    Stage("replay", f"{MODEL}:replay", (_INTERLEAVED, "report this: results must not change from replay to replay"),
          ("layer",), "full", 300, float32=True),
    Stage("soak", f"{MODEL}:soak", ("TT_METAL_OPERATION_TIMEOUT_SECONDS=60 turns a hang into an error",),
          ("replay",), "soak", 1800, float32=True),
)
# What N150s are known to say, with what helped others.
KNOWN = (
    (r"no /sys/module/tenstorrent", "the driver is not loaded: install tt-kmd, then `modprobe tenstorrent`"),
    (r"hugepage", "hugepages are missing: install tenstorrent-tools, `systemctl restart tenstorrent-hugepages`"),
    (r"iommu", "IOMMU: boot with iommu=pt, or without hugepages take a driver that uses the IOMMU"),
    (r"firmware|fw.?bundle", "firmware and driver must fit each other: tt-flash and tt-kmd of one release"),
    (r"ethernet|eth core|training|link", "links: `tt-smi -r`; look at the cables; tt-topology flashes their layout"),
    (r"out of memory|not enough space|beyond max L1", "memory: a smaller --max-context, or more chips"),
    (r"no (chips|devices)|not find.*device|/dev/tenstorrent", "no card is seen: `lspci -d 1e52:`, then the driver"),
    (r"permission denied", "permissions: your user must be able to open /dev/tenstorrent/*"),
    (r"timed? ?out|did not end", "a hang: `tt-smi -r`; TT_METAL_OPERATION_TIMEOUT_SECONDS=60 shows which op"),
)
KILLED = "the process was killed from outside: memory may be short (`dmesg`)"
# fmt: on


def advice(stage: Stage, why: str) -> tuple[str, ...]:
    """Return advice for a stage that did not pass, first what its message is known for. A way around the stage is none
    around what killed its process."""
    if "SIGKILL" in why:
        return (KILLED,)
    return (*(text for pattern, text in KNOWN if re.search(pattern, why, re.IGNORECASE)), *stage.advice)
