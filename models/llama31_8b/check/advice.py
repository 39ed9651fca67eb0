# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Say what to do about a finding: the fallback that goes on working, and what is known of its message."""

from __future__ import annotations

import re

FALLBACKS = {
    "host": ("`llama-alspec --device cpu` needs no board", "`python -m runtime_patches.board.doctor`"),
    "cards": ("choose N150 boards with TT_VISIBLE_DEVICES", "`llama-alspec --device cpu` needs no board"),
    "open": ("`tt-smi -r`, then once more: a first opening fails now and then", "update firmware and driver"),
    "stock op": ("ttnn itself does not compute here: `tt-smi -r`, then ttnn's own examples",),
    "HiFi4 probe": ("`--precision performance` has no bfloat16 weights, so no product with float32 accumulation",),
    "flash decode": ("`--attention exact --decode-sharding interleaved` decodes with ttnn's own attention",),
    "gate": ("`--attention exact` needs no gate",),
    "tree attention": ("`--draft none` needs no token trees",),
    "verification": ("`--draft none` verifies nothing", "`--sample-on host` chooses tokens on the host"),
    "link": ("`--mesh 1x1` needs no link", "`--attention exact` exchanges nothing; check the cable of that pair"),
    "collectives": ("`--mesh 1x1` or 2x1 has no TP group, so no collectives; check the cables of that group",),
    "links of 4": ("`--mesh 2x1` or 1x2 on two chips whose pair passes; a square needs four cables",),
    "links of 8": (
        "`--mesh 2x2` or smaller on chips whose pairs pass; 2x4 needs a cable for every pair of neighbours",
    ),
    "collectives of 4": ("`--mesh 2x1` has no TP group, so no collectives",),
    "collectives of 8": ("`--mesh 2x2`, or 2x1, which has no collectives",),
    "layer": ("`--precision accuracy`", "`llama-alspec --device cpu` computes the same layers on the host"),
    "sharded layer": ("`--decode-sharding interleaved` decodes with ttnn's default placements",),
    "pair": ("`--attention exact` on the same mesh, or `--mesh 1x2` shares the work between both chips",),
    "token trees": ("`--draft none` needs no token trees",),
    "rates": ("`--decode-sharding interleaved` uses neither op",),
    "replay": ("`--decode-sharding interleaved`; report this, results must not change from replay to replay",),
    "soak": ("TT_METAL_OPERATION_TIMEOUT_SECONDS=60 turns a hang into an error",),
}

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
    (r"timed? ?out|took longer", "a hang: `tt-smi -r`; TT_METAL_OPERATION_TIMEOUT_SECONDS=60 shows which op"),
)


def advice(stage: str, why: str) -> tuple[str, ...]:
    """Return advice for a stage that did not pass, first what its message is known for."""
    known = tuple(text for pattern, text in KNOWN if re.search(pattern, why, re.IGNORECASE))
    return (*known, *FALLBACKS.get(stage, ()))
