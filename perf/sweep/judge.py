# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a sweep is held against: another sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perf.sweep.table import Block, table


class Difference(NamedTuple):
    """Times of an op of a configuration in ns; None where only one sweep has it."""

    name: str
    group: str
    op: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float:
        """Return how much slower it is, infinite where only one sweep has it, as tt-metal's check_device_perf."""
        return self.after / self.before - 1 if self.before and self.after is not None else float("inf")


def compare(before: Sequence[Block], after: Sequence[Block]) -> list[Difference]:
    """Return every op of the configurations that both sweeps have of the same time source, passed or not.

    Raises ValueError where there is none.
    """
    old, new = ({f"{b.name} ({b.source})": b for b in blocks} for blocks in (before, after))
    shared = [name for name in old if name in new]
    if not shared:
        raise ValueError("the sweeps have no configuration of the same time source in common")
    found = []
    for name in shared:
        was, now = _ops(old[name]), _ops(new[name])
        found += [Difference(name, *op, was.get(op), now.get(op)) for op in dict.fromkeys([*was, *now])]
    return found


def _ops(block: Block) -> dict[tuple[str, str], float]:
    return {
        (group, op): entry["kernel_duration"] * entry["calls"]
        for group, ops in table(block).items()
        for op, entry in ops.items()
    }


def differences(found: Sequence[Difference], tolerance: float) -> tuple[str, bool]:
    """Return those beyond the tolerance, either way, the largest first, and how many; and whether there are any."""
    beyond = sorted((d for d in found if abs(d.change) > tolerance), key=lambda d: -abs(d.change))
    lines = []
    for d in beyond:
        if d.before is None or d.after is None:
            what = f"only {'before' if d.after is None else 'after'}"
        else:
            what = f"{d.change:+.1%} {'slower' if d.change > 0 else 'faster'}: {d.before:.0f} -> {d.after:.0f} ns"
        lines.append(f"{what}  {d.op} [{d.group}]  {d.name}")
    lines.append(f"{len(beyond)} of {len(found)} ops differ by more than {tolerance:.1%}")
    return "\n".join(lines), bool(beyond)
