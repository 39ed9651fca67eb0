# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a sweep is held against: another sweep, and for a decode step the decode model and what DRAM allows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S
from perf.projection.decode import Step
from perf.sweep import modelled
from perf.sweep.configurations import from_lines
from perf.sweep.table import FIRST, GROUP, GROUPS, MID, PASS, ROLE, TAIL, Block, layers_in, merged, ns_of, table

# Op codes of either naming, the first that matches; attention is known by its role.
KINDS = {
    "collective": "AllGather|ReduceScatter|AllReduce",
    "matmul": "Matmul",
    "norm": "LayerNorm|RmsNorm",
    "rotation": "RotaryEmbedding",
    "cache": "UpdateCache",
    "heads": "CreateHeads|CreateQKVHeads|ConcatHeads|CreateQkvHeads",
    "attention": "ScaledDotProduct|SdpaDecode|FlashDecode",
    "addition and product": "Binary",
    "everything else": "",
}


Sums = defaultdict[tuple[str, str], float]  # ns by group and kind


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


class Kind(NamedTuple):
    """Times of a group's layer in ns. floor: reading the kind's weights and cache at the specified rate."""

    group: str
    kind: str
    measured: float
    modelled: float
    floor: float

    @property
    def ratio(self) -> float:
        return self.measured / self.modelled if self.modelled else float("inf")


def kind_of(row: Mapping[str, str]) -> str:
    if row[ROLE] == "attention":
        return "attention"
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, row["OP CODE"]))


def against_model(block: Block) -> list[Kind]:
    """Compare by group and kind, in the model's plan of the same name. Raises ValueError for what is no passed decode
    step, or one that the model does not know."""
    (c,) = from_lines(block.name)
    if c.family != "decode" or block.status != PASS:
        raise ValueError(f"{block.name} is no decode step that passed ({block.status})")
    measured, told = sums(block), sums(Block.make(block.name, "model", PASS, rows=modelled.rows(c)))
    step, floors = Step(c.mesh, c["context"], c["users"], c["plan"], c["precision"]), Sums(float)
    for group, ops in ((FIRST, step.layer(0)), (MID, step.layer(1)), (TAIL, step.after())):
        for op in ops:
            floors[group, kind_of({ROLE: op.role, "OP CODE": op.name})] += op.dram_bytes / DRAM_BYTES_PER_S * 1e9
    return [Kind(*key, measured[key], told[key], floors[key]) for key in {**told, **measured}]


def sums(block: Block) -> Sums:
    """Return the ns of a layer by (group, kind); the programs before the first layer are of decoder-first."""
    found = Sums(float)
    for row in merged(block):
        found[row[GROUP], kind_of(row)] += ns_of(row) / layers_in(block, row[GROUP])
    return Sums(float, sorted(found.items(), key=lambda item: (GROUPS.index(item[0][0]), -item[1])))


def report(block: Block) -> str:
    lines = [
        f"{block.name}: {block.source} beside the decode model, us of a layer",
        f"{'':32}{'measured':>10}{'model':>10}{'ratio':>8}{'DRAM floor':>12}",
    ]
    for kind in against_model(block):
        lines.append(
            f"{f'{kind.group} {kind.kind}':32}{kind.measured / 1000:10.1f}{kind.modelled / 1000:10.1f}"
            f"{kind.ratio:8.2f}{kind.floor / 1000:12.1f}"
        )
    return "\n".join(lines)
