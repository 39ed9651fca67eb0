# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a sweep is held against: another sweep, and for a decode step the decode model and what DRAM allows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S
from perf.projection.decode import Step
from perf.sweep.configurations import FAMILIES, Configuration
from perf.sweep.modelled import rows as model_rows
from perf.sweep.table import (
    FIRST,
    GROUP,
    GROUPS,
    LAYER,
    MID,
    PASS,
    ROLE,
    Block,
    Outcome,
    as_block,
    layers_in,
    merged,
    ns_of,
    table,
)  # fmt: skip

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
}


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

    Raises ValueError where they have no configuration in common.
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


def differences(differences: Sequence[Difference], tolerance: float) -> str:
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


@dataclass(frozen=True)
class Kind:
    """Times of a group's layer in ns. floor: reading the kind's weights and cache at the specified rate."""

    group: str
    kind: str
    measured: float
    modelled: float
    floor: float

    @property
    def ratio(self) -> float:
        return self.measured / self.modelled if self.modelled else float("inf")


def configuration_of(block: Block) -> Configuration:
    """Return the configuration of a name. Raises ValueError for one of another version."""
    options = block.options()
    family = options.pop("family")
    known = FAMILIES.get(family, {})
    typed = {name: int(value) if isinstance(known.get(name), int) else value for name, value in options.items()}
    return Configuration.make(family, **typed)


def kind_of(row: Mapping[str, str]) -> str:
    if row[ROLE] == "attention":
        return "attention"
    code = row["OP CODE"]
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, code)), "everything else")


def against_model(block: Block) -> list[Kind]:
    """Compare by group and kind, in the model's plan of the same name. Raises ValueError for what is no passed decode
    step, or one that the model does not know."""
    configuration = configuration_of(block)
    if configuration.family != "decode" or block.status != PASS:
        raise ValueError(f"{block.name} is no decode step that passed ({block.status})")
    other = as_block(Outcome(block.name, "model", PASS, "", model_rows(configuration)))
    measured, told, floors = sums(block), sums(other), _floors(configuration)
    return [
        Kind(*key, measured.get(key, 0.0), told.get(key, 0.0), floors.get(key, 0.0))
        for key in dict.fromkeys([*told, *measured])
    ]


def sums(block: Block) -> dict[tuple[str, str], float]:
    """Return the ns of a layer by (group, kind); the programs before the first layer are of decoder-first."""
    found: dict[tuple[str, str], float] = {}
    for row in merged(block):
        key = (row[GROUP], kind_of(row))
        found[key] = found.get(key, 0.0) + ns_of(row) / layers_in(block, row[GROUP])
    return dict(sorted(found.items(), key=lambda item: (GROUPS.index(item[0][0]), -item[1])))


def _floors(c: Configuration) -> dict[tuple[str, str], float]:
    step = Step(c.mesh, c["context"], c["users"], c["plan"], c["precision"])
    parts = [(FIRST, step.layer(0)), (MID, step.layer(1)), (GROUPS[2], step.after())]
    found: dict[tuple[str, str], float] = {}
    for group, ops in parts:
        for op in ops:
            key = (group, kind_of({ROLE: op.role, "OP CODE": op.name, LAYER: ""}))
            found[key] = found.get(key, 0.0) + op.dram_bytes / DRAM_BYTES_PER_S * 1e9
    return found


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
