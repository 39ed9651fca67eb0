# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a bench of an op is: points, and how one is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from perf.lib.chip import Chip
from perf.lib.options import combinations

Point = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """Points of one op.

    about: what is compared, a line.
    options: of a point, with their defaults. choices: the values of those that have few.
    points: named lists of points, of which "default" is measured when none is asked for, each "OPTION=VALUE[,VALUE...]
    ..." as on the command line. chip: what a point is measured on.
    measure: "MODULE.FUNCTION" of this folder, which returns a point's rows, given the open device. judge: likewise, the
    row whose columns `errors` a chip without cycles gives; None where there are none. check: raises ValueError where a
    point cannot be measured.
    complete: returns columns that follow from a row and earlier ones. apart: each point has a process of its own.
    """

    about: str
    options: Mapping[str, Any]
    points: Mapping[str, Sequence[str]]
    chip: Callable[[SimpleNamespace], Chip]
    measure: str
    judge: str | None = None
    errors: Sequence[str] = ()
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    check: Callable[[SimpleNamespace], Any] = lambda point: None
    complete: Callable[[Row, Sequence[Row]], Row] = lambda row, earlier: {}
    apart: bool = False

    def named(self, name: str) -> list[Point]:
        """Return the points of a list. Raises ValueError for another name."""
        if name not in self.points:
            raise ValueError(f"--points must be one of {', '.join(self.points)}, got {name!r}")
        return [point for text in self.points[name] for point in self.asked(text.split())]

    def asked(self, assignments: Sequence[str]) -> list[Point]:
        """Return every combination of OPTION=VALUE[,VALUE...], with all options. Raises ValueError for one that cannot
        be measured."""
        points = combinations(assignments, self.options, self.choices)
        for point in points:
            self.check(SimpleNamespace(**point))
        return points


def measurable(row: Row, *names: str) -> Row:
    """Return a row. Raises ValueError unless all of its cycles, or those in `names`, can have been measured."""
    wrong = [name for name in names or row if row[name] is not None and not row[name] > 0]
    if wrong:
        raise ValueError(f"not measurable: {wrong[0]} of {row}")
    return row
