# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Returned reports become one table."""

from __future__ import annotations

import json
import re

import pytest

from models.llama31_8b.check.findings import FAIL, PASS, Check, Finding
from models.llama31_8b.check.report import make
from models.llama31_8b.config import preset
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import bytes_of
from models.llama31_8b.tt.sharding import ShardedDecodeConfig
from perf import reports


def test_reports_are_beside_each_other(tmp_path, capsys):
    runs = {"r1": ("n150", PASS, "8x8"), "r2": ("sim", FAIL, "2x1")}
    files = []
    for run, (kind, status, cores) in runs.items():
        finding = Finding("open", status, checks=(Check("cores", cores, "8x8", cores == "8x8"),))
        files.append(tmp_path / run)
        files[-1].write_text(json.dumps(make([finding], kind, "quick", "", run)))
    assert reports.main([str(path) for path in files]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| stage | check | expected | r1, n150 | r2, sim |",
        "|---|---|---|---|---|",
        "| open |  |  | pass | fail |",
        "| open | cores | 8x8 | 8x8 | 2x1 |",
    ]


def test_rates_are_beside_the_decode_models(tmp_path, capsys):
    """At 8B shapes; the model counts the bytes that the self-test counts."""
    product = ShardedDecodeConfig.of(preset("llama-3.1-8b"), MeshShape(), 1).ff2("bfloat8_b")
    facts = {"inputs": product.inputs, "outputs": product.outputs, "cores": product.source.cores}
    shapes = {
        "product": facts | {"dtype": product.dtype},
        "flash decode": {"kv_heads": 8, "context": 4096, "head_dim": 128, "dtype": "bfloat8_b"},
    }
    rate = {"GB/s": 230.5, "ns": 1000.0}
    checks = tuple(Check(name, rate | shape) for name, shape in shapes.items())
    (tmp_path / "r").write_text(json.dumps(make([Finding("rates", PASS, checks=checks)], "n150", "full", "", "r")))
    assert reports.main([str(tmp_path / "r")]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[3:]]
    assert [row[1] for row in rows] == list(shapes) and {row[3] for row in rows} == {"230.5 GB/s, 1000.0 ns |"}
    sizes = (product.laid_bytes, 2 * bytes_of(8 * 4096 * 128, "bfloat8_b"))
    for row, size, slowest in zip(rows, sizes, (160, 60), strict=True):
        found = re.fullmatch(r"by the decode model ([0-9.]+) GB/s, ([0-9.]+) ns", row[2])
        assert float(found[1]) * float(found[2]) == pytest.approx(size, rel=1e-3)
        assert slowest < float(found[1]) < 288, "the DRAM's own rate"


def test_a_file_that_is_no_report_is_named(tmp_path, capsys):
    (tmp_path / "a").write_text('{"schema": 0}')
    assert reports.main([str(tmp_path / "a")]) == 2 == reports.main([str(tmp_path / "b")])
    assert "a: no report of schema 1" in capsys.readouterr().err
