# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The real tt-perf-report reads a sweep, the golden one of simulated chips."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from perf.sweep.configurations import suites
from perf.sweep.table import GROUPS, KERNEL_NS, MID, NOT_RUN, PASS, Block, ns_of, opened, read, table
from tests.perf.sweep import tt_perf_report

# `python -m perf.sweep --suite tiny --source sim --csv tests/perf/sweep/golden_sweep.csv`
# in several goes; kernel durations and gaps of the first 17 derived, by the rule of rows_of, from recorded cycles.
GOLDEN = Path(__file__).with_name("golden_sweep.csv")


@pytest.fixture(scope="module")
def report():
    try:
        tt_perf_report.program()
    except tt_perf_report.NotInstalled as error:
        pytest.skip(f"tt-perf-report {tt_perf_report.VERSION} cannot be installed here: {error}")
    return tt_perf_report.read


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def programs(blocks: list[Block]) -> list[dict[str, str]]:
    return [row for block in blocks for row in block.rows]


@pytest.mark.slow  # it installs a program
def test_the_golden_sweep(report, tmp_path):
    """All programs of one chip; it merges those of several devices."""
    blocks = read(GOLDEN)
    alone = [block for block in blocks if "mesh=" not in block.name or "mesh=1x1" in block.name]
    first, answer = tmp_path / "one_chip.csv", tmp_path / "table.csv"
    with opened(first) as kept:
        for block in alone:
            kept.append(block)
    report(first, answer, "--ignore-signposts", "--no-summary")
    times = [float(row["Device Time"]) for row in rows_of(answer) if row["Device Time"]]
    assert times == pytest.approx([ns_of(row) / 1000 for row in programs(alone)], rel=1e-3)
    codes = " ".join(row["OP Code"] for row in rows_of(answer))
    assert "MatmulDeviceOperation 32 x 64 x 128" in codes and "SpeculativeFlashDecodePair" in codes


def test_what_the_golden_sweep_holds():
    """Every configuration of the suite, each named, timed, and grouped."""
    by_name = {block.name: block for block in read(GOLDEN)}
    # A step of a pair has not been swept yet: minutes of compiling for a mesh.
    wanted = {c.name: c for c in suites()["tiny"] if not (c.family == "decode" and c.mesh.sp == 2)}
    assert by_name.keys() == wanted.keys() and {block.source for block in by_name.values()} == {"sim"}
    steps, flash = [], {}
    for name, block in by_name.items():
        assert block.status == PASS or (block.status == NOT_RUN and block.reason), name
        assert all(0 <= ns_of(row) < 1e6 and row[KERNEL_NS] for row in block.rows)
        if block.rows and wanted[name].family == "flash_decode":
            flash[wanted[name]["variant"], wanted[name]["context"]] = ns_of(block.rows[0])
        if block.rows and wanted[name].family == "decode":
            steps.append(table(block))
    assert len(steps) >= 4 and all(flash[variant, 128] < flash[variant, 256] for variant, _ in flash)
    for step in steps:
        ops = step[MID]
        assert set(step) == set(GROUPS)
        assert ops["MatmulDeviceOperation"]["calls"] == 5 and ops["LayerNormDeviceOperation"]["calls"] == 2
    skipped, closed = (ns_of(by_name[f"gate part={part}"].rows[0]) for part in ("skipped", "close"))
    assert skipped < closed
