# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Two sweeps side by side: what became slower and what faster, beyond a tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perf.sweep.groups import table
from perf.sweep.table import PASS, Block


@dataclass(frozen=True)
class Difference:
    """Times of an op of a configuration in ns; None where only one sweep has it."""

    name: str
    group: str
    op: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        if self.before is None or self.after is None:
            return None
        return self.after / self.before - 1 if self.before else float("inf")

    def beyond(self, tolerance: float) -> bool:
        """Return whether it is slower or faster by more, as tt-metal's check_device_perf judges; what is gone or new
        counts too."""
        return self.change is None or abs(self.change) > tolerance


def compare(before: Sequence[Block], after: Sequence[Block]) -> list[Difference]:
    """Return every op of the configurations (and time sources) that both sweeps passed, and those that one did not
    pass.

    Errors: ValueError where they have no configuration in common.
    """
    old, new = ({(b.name, b.source): b for b in blocks} for blocks in (before, after))
    if not old.keys() & new.keys():
        raise ValueError("the sweeps have no configuration of the same time source in common")
    found = []
    for name, source in dict.fromkeys([*old, *new]):
        ops = [_ops(blocks.get((name, source))) for blocks in (old, new)]
        title = f"{name} ({source})"
        if (name, source) not in old or (name, source) not in new:
            continue
        for group, op in dict.fromkeys([*ops[0], *ops[1]]):
            found.append(Difference(title, group, op, ops[0].get((group, op)), ops[1].get((group, op))))
    return found


def _ops(block: Block | None) -> dict[tuple[str, str], float]:
    if block is None or block.status != PASS:
        return {}
    return {
        (group, op): entry["kernel_duration"] * entry["calls"]
        for group, ops in table(block).items()
        for op, entry in ops.items()
    }


def report(differences: Sequence[Difference], tolerance: float) -> str:
    """Return those beyond the tolerance, the largest first, and how many there were."""
    beyond = [d for d in differences if d.beyond(tolerance)]
    beyond.sort(key=lambda d: -abs(d.change) if d.change is not None else -float("inf"))
    lines = []
    for d in beyond:
        if d.change is None:
            what = f"only {'before' if d.after is None else 'after'}"
        else:
            what = f"{d.change:+.1%} {'slower' if d.change > 0 else 'faster'}: {d.before:.0f} -> {d.after:.0f} ns"
        lines.append(f"{what}  {d.op} [{d.group}]  {d.name}")
    lines.append(f"{len(beyond)} of {len(differences)} ops differ by more than {tolerance:.1%}")
    return "\n".join(lines)
