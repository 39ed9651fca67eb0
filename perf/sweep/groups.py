# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The groups of tt_transformers' device perf tests, and the table of ops by group."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from perf.sweep.table import FIRMWARE_NS, GAP_NS, GROUP, KERNEL_NS, LAYER, Block

FIRST, MID, TAIL, OP_GROUP = "decoder-first", "decoder-mid", "model-tail", "op"
GROUPS = (FIRST, MID, TAIL)
COLLECTIVES = ("AllGather", "ReduceScatter", "AllReduce")


def group_of(layer: int | None, layers_begun: bool) -> str:
    """decoder-first: layer 0 and what comes before it; decoder-mid: the other layers; model-tail: what follows."""
    if layer is None:
        return TAIL if layers_begun else FIRST
    return FIRST if layer == 0 else MID


def ns_of(row: dict[str, str]) -> float:
    """Return what a program adds to a chip's time: its kernels' duration."""
    return float(row[KERNEL_NS] or row[FIRMWARE_NS])


def merged(block: Block) -> list[dict[str, str]]:
    """Return the rows of all chips as one chip's, as tt-metal merges them: of a program the slowest chip's, of a
    collective the mean. Where the chips ran other programs (sender and receiver), the rows of the chip that took
    longest."""
    chips: dict[str, list[dict[str, str]]] = {}
    for row in block.rows:
        chips.setdefault(row["DEVICE ID"], []).append(row)
    lists = list(chips.values())
    if not lists:
        return []
    if len({tuple(row["OP CODE"] for row in rows) for rows in lists}) > 1:
        return max(lists, key=lambda rows: sum(map(ns_of, rows)))
    found = []
    for same in zip(*lists, strict=True):
        slowest = max(same, key=ns_of)
        if any(name in slowest["OP CODE"] for name in COLLECTIVES):
            slowest = slowest | {KERNEL_NS: f"{mean(map(ns_of, same)):.10g}"}
        found.append(slowest)
    return found


def layers_in(block: Block, group: str) -> int:
    return max(1, len({row[LAYER] for row in block.rows if row[GROUP] == group and row[LAYER]}))


def table(block: Block) -> dict[str, dict[str, dict[str, float]]]:
    """Return {group: {op code: {"kernel_duration", "op_to_op" (means, ns; the latter where known), "calls" a layer}}}:
    the fields of tt_transformers' device_perf_measurements JSON."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    rows = merged(block)
    for group in dict.fromkeys(row[GROUP] for row in rows):
        for code in dict.fromkeys(row["OP CODE"] for row in rows if row[GROUP] == group):
            same = [row for row in rows if (row[GROUP], row["OP CODE"]) == (group, code)]
            entry = {
                "kernel_duration": mean(map(ns_of, same)),
                "calls": len(same) / layers_in(block, group),
            }
            if gaps := [float(row[GAP_NS]) for row in same if row[GAP_NS]]:
                entry["op_to_op"] = mean(gaps)
            found.setdefault(group, {})[code] = entry
    return found


def report(blocks: Sequence[Block]) -> str:
    """Return a table for each decode step: us per layer by op and group."""
    lines = []
    for block in blocks:
        groups = table(block)
        if not any(group in GROUPS for group in groups):
            continue
        lines.append(f"{block.name} ({block.source})")
        for group, ops in groups.items():
            whole = sum(op["kernel_duration"] * op["calls"] for op in ops.values())
            lines.append(f"  {group:16}{whole / 1000:12.2f} us")
            for code, op in sorted(ops.items(), key=lambda item: -item[1]["kernel_duration"] * item[1]["calls"]):
                gap = f", {op['op_to_op'] / 1000:.2f} after the one before" if "op_to_op" in op else ""
                lines.append(f"    {code:44}{op['kernel_duration'] / 1000:10.2f} us x {op['calls']:g}{gap}")
    return "\n".join(lines)
