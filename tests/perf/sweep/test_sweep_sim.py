# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A sweep on a simulated chip, from the command to the CSV, against the golden one."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.sweep.__main__ import main
from perf.sweep.table import FIRMWARE_NS, GAP_NS, KERNEL_NS, NOT_RUN, PASS, Row, ns_of, read

GOLDEN = Path(__file__).with_name("golden_sweep.csv")
SUITE = """\
matmul k=64 n=64 dtype=bfloat16 layout=interleaved cores=1
flash_decode context=128 chunk_size=48 heads=4 kv_heads=1 head_dim=64 workers=1 dtype=bfloat16
"""
RUNS = (
    *(KERNEL_NS, FIRMWARE_NS, GAP_NS, "DEVICE FW START CYCLE", "DEVICE FW END CYCLE"),
    *("GLOBAL CALL COUNT", "HOST START TS"),
)
# Cycles of a program under fast dispatch differ by 100 to 200 between runs.
APART = 300


def untimed(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in RUNS}


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_a_simulated_sweep_against_the_golden_one(tmp_path, capsys):
    """One configuration that runs, and one that the op refuses on the chip."""
    suite, csv = tmp_path / "suite", tmp_path / "a.csv"
    suite.write_text(SUITE)
    arguments = ["--suite-file", str(suite), "--source", "sim", "--csv", str(csv), "--timeout", "1200"]
    assert main(arguments) == 0
    ran, refused = read(csv)
    (golden,) = [block for block in read(GOLDEN) if block.name == ran.name]
    assert ran.status == PASS and ran.source == golden.source, ran.reason
    assert list(map(untimed, ran.rows)) == list(map(untimed, golden.rows)) and len(ran.rows) == 1
    assert ns_of(ran.rows[0]) == pytest.approx(ns_of(golden.rows[0]), abs=APART)
    assert refused.status == NOT_RUN and not refused.rows
    assert refused.reason.startswith("UnsupportedError: ") and "48" in refused.reason
    assert "1 of 2 configurations passed" in capsys.readouterr().out
    before = csv.read_bytes()
    assert main(arguments) == 0 and csv.read_bytes() == before, "what is there is not run again"
