# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run device tests on a ttsim library (`--simulator PATH`), alone or beside the project's simulator, bit for bit."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import pytest

from runtime_patches.simulated_n150 import library
from runtime_patches.simulated_n150.testing.worker import DeviceWorker, WorkerFailure


def why_not_on_library(variables: Mapping[str, str] | None) -> str | None:
    """Return why a test that asks for these environment variables cannot run on a ttsim library, else None."""
    return "counts no cycles" if any(name.startswith("TT_SIM") for name in variables or {}) else None


class LibraryWorker(DeviceWorker):
    """A worker on a ttsim library; a test that one of ttnn's own kernels stops there is skipped with the reason."""

    def _call(self, request: tuple, what: str, timeout: float) -> Any:
        try:
            return super()._call(request, what, timeout)
        except WorkerFailure as failure:
            if said := library.complaint(str(failure)):
                pytest.skip(f"ttsim: refuses a kernel of ttnn: {said}")
            raise


def outcomes(reports: Mapping[str, Sequence[Any]]) -> Counter[tuple[str, str]]:
    """Return how many tests of each file ended how. reports: pytest's reports by outcome.

    A skip's outcome has its reason: "skipped: ttsim: counts no cycles". An error while a fixture is made is a failure.
    """
    found: Counter[tuple[str, str]] = Counter()
    for outcome, name in (("passed", "passed"), ("failed", "failed"), ("error", "failed"), ("skipped", "skipped")):
        for report in reports.get(outcome, ()):
            reason = f": {report.longrepr[2].removeprefix('Skipped: ')}" if outcome == "skipped" else ""
            found[report.nodeid.partition("::")[0], name + reason] += 1
    return found


def by_file(found: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Return a row per file of tests: how many passed, failed and were skipped, and the number of skips by reason."""
    rows = []
    for file in sorted({file for file, _ in found}):
        ended = {outcome: tests for (of, outcome), tests in sorted(found.items()) if of == file}
        skips = {name.partition(": ")[2]: tests for name, tests in ended.items() if name.startswith("skipped")}
        passed, failed = ended.get("passed", 0), ended.get("failed", 0)
        row: dict[str, Any] = {"tests_in": file, "passed": passed, "failed": failed, "skipped": sum(skips.values())}
        rows.append(row | {"why": "; ".join(f"{tests} {reason}" for reason, tests in skips.items()) or None})
    return rows


@dataclass
class Count:
    """What was compared in the tests of one file."""

    tests: set[str] = field(default_factory=set)
    calls: int = 0
    refused: int = 0
    values: int = 0
    differing: int = 0
    differing_tests: set[str] = field(default_factory=set)


class Comparison:
    """Runs each call on both simulators and counts the values that differ, by file of tests."""

    def __init__(self) -> None:
        self.files: dict[str, Count] = {}

    def both(self, own: Callable[[], DeviceWorker], judge: Callable[[], DeviceWorker]) -> Both:
        """Return a device whose calls run on both workers; it answers as the project's own simulator does."""
        return Both(self, own, judge)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per file of tests."""
        return [
            {
                "tests_in": name,
                "tests": len(count.tests),
                "calls": count.calls,
                "refused": count.refused,
                "values": count.values,
                "differing": count.differing,
                "differing_tests": sorted(count.differing_tests),
            }
            for name, count in sorted(self.files.items())
        ]

    def count(self, found: Any, other: Any, refused: bool) -> None:
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]  # a parameter may hold spaces
        count = self.files.setdefault(test.partition("::")[0], Count())
        count.tests.add(test)
        count.calls += 1
        count.refused += refused
        if not refused:
            values, differing = compare(found, other)
            count.values += values
            count.differing += differing
            if differing:
                count.differing_tests.add(test)


class Both:
    """One device on two simulators. Everything but `run` is asked of the project's own."""

    def __init__(self, comparison: Comparison, own: Callable[[], DeviceWorker], judge: Callable[[], DeviceWorker]):
        self._comparison, self._own, self._judge = comparison, own, judge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own(), name)

    def run(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        outcome, raised = _outcome(self._own(), function, args, kwargs)
        try:
            other, _ = _outcome(self._judge(), function, args, kwargs)
            refused = False
        except pytest.skip.Exception:
            other, refused = None, True
        self._comparison.count(outcome, other, refused)
        if raised is not None:
            raise raised
        return outcome


def _outcome(worker: DeviceWorker, function: Callable, args: tuple, kwargs: Mapping) -> tuple[Any, Exception | None]:
    """Return a call's result, or its exception's type and text and the exception."""
    try:
        return worker.run(function, *args, **kwargs), None
    except WorkerFailure:
        raise
    except Exception as error:
        return (type(error).__name__, str(error)), error


def compare(a: Any, b: Any) -> tuple[int, int]:
    """Return how many values two results have, and how many of them differ in any bit; NaN equals the same NaN."""
    left, right = list(_leaves(a)), list(_leaves(b))
    if len(left) != len(right):
        return max(len(left), len(right)), max(len(left), len(right))
    values = differing = 0
    for x, y in zip(left, right, strict=True):
        size, wrong = _compare_leaves(x, y)
        values += size
        differing += wrong
    return values, differing


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for name in sorted(value, key=repr):
            yield from _leaves(value[name])
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from _leaves(getattr(value, part.name))
    else:
        yield value


def _compare_leaves(x: Any, y: Any) -> tuple[int, int]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if not isinstance(y, torch.Tensor) or x.shape != y.shape or x.dtype != y.dtype:
            return x.numel(), x.numel()
        if x.numel() == 0:
            return 0, 0
        bits = [part.contiguous().flatten().view(torch.uint8).view(x.numel(), -1) for part in (x, y)]
        return x.numel(), int((bits[0] != bits[1]).any(1).sum())
    return 1, int(repr(x) != repr(y))
