# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Returned reports become one table."""

from __future__ import annotations

import json

from models.llama31_8b.check.findings import FAIL, PASS, Check, Finding
from models.llama31_8b.check.report import make
from perf import reports


def test_reports_are_beside_each_other(tmp_path, capsys):
    runs = {"r1": ("n150", PASS, "8x8"), "r2": ("sim", FAIL, "2x1")}
    files = []
    for run, (kind, status, cores) in runs.items():
        finding = Finding("open", status, checks=(Check("cores", cores, "8x8", cores == "8x8"),))
        files.append(tmp_path / run)
        files[-1].write_text(json.dumps(make([finding], kind, "quick", "") | {"run": run}))
    assert reports.main([str(path) for path in files]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| stage | check | expected | r1, n150 | r2, sim |",
        "|---|---|---|---|---|",
        "| open |  |  | pass | fail |",
        "| open | cores | 8x8 | 8x8 | 2x1 |",
    ]


def test_a_file_that_is_no_report_is_named(tmp_path, capsys):
    (tmp_path / "a").write_text('{"schema": 0}')
    assert reports.main([str(tmp_path / "a")]) == 2 == reports.main([str(tmp_path / "b")])
    assert "a: no report of schema 2" in capsys.readouterr().err
