# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The decode model against the paper's tables it is fitted to, those it is not, and published speeds."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from models.llama31_8b.tt.dram_budget import budget
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from perf.projections.decode_model import cli
from perf.projections.decode_model.costs import COLLECTIVE, MATMUL, STREAM, NotIdentified, Op
from perf.projections.decode_model.fit import (
    check_table,
    fit,
    table_ops,
    token_error,
    weighted_error,
)
from perf.projections.decode_model.plans import PLANS, Step, attention, collective, matmul
from perf.projections.decode_model.prediction import predict, published_rows
from perf.projections.estimator.tables import CHIP_COUNTS, chip_table, read_rows
from perf.projections.ethernet import collective_ns, exchange_ns


@pytest.mark.parametrize("chips", CHIP_COUNTS)
def test_the_fit_gives_its_own_table_back(chips):
    rows = [row for row in check_table(fit(chips), chips) if row.op.kind != COLLECTIVE]  # which are never fitted
    assert weighted_error(rows) < 0.05 and abs(token_error(rows)) < 0.02
    alone = [r for r in rows if r.op.kind != STREAM and [o.op.kind for o in rows].count(r.op.kind) == 1]
    assert alone and all(abs(row.error) < 0.005 for row in alone), "a kind with one row is met exactly"


def test_tables_that_the_fit_has_not_seen():
    """The figures of docs/results.md; four chips is the default."""
    errors = {chips: check_table(fit(), chips) for chips in (1, 2, 8)}
    assert abs(token_error(errors[1])) < 0.02 and abs(token_error(errors[2])) < 0.02
    assert weighted_error(errors[1]) < 0.05 and weighted_error(errors[2]) < 0.09
    matmuls = [row for rows in errors.values() for row in rows if row.op.kind == MATMUL]
    assert len(matmuls) == 9 + 7 + 5 and max(abs(row.error) for row in matmuls) < 0.10
    # And what it is bad at, so that a better model is noticed: the collectives of eight chips.
    worst = min(errors[8], key=lambda row: row.error)
    assert worst.op.kind == COLLECTIVE and -0.5 < worst.error < -0.3 and -0.15 < token_error(errors[8]) < -0.1


def test_errors_are_those_of_the_tables():
    """Measured times come from the CSV in its order, and a printed error is model over measured."""
    for chips in CHIP_COUNTS:
        table, rows = chip_table(chips), check_table(fit(), chips)
        assert [row.measured_ns for row in rows] == [op.ns for op in table.per_layer + table.fixed]
        for row in rows:
            assert row.modelled_ns == fit().ns(row.op) > 0
            assert row.error == pytest.approx((row.modelled_ns - row.measured_ns) / row.measured_ns)
        whole = 32 * (table.per_layer_ns + table.flash_decode_ns) + table.fixed_ns
        told = sum(row.modelled_ns * (32 if row.section == "per_layer" else 1) for row in rows)
        assert token_error(rows) == pytest.approx(told / whole - 1)


def test_what_a_table_does_not_hold_is_said():
    with pytest.raises(NotIdentified, match="sort is not in the table of 1 chips"):
        fit(1).ns(Op("Sort", "", "sort"))


def test_collectives_take_what_was_measured_of_their_bytes():
    gather = collective("AllGather", "gather", 1, 4096, 2)
    assert gather.link_bytes == 32 * 4096 * 2 and fit().ns(gather) == fit(1).ns(gather) == 27300
    assert [fit().ns(collective("ReduceScatter", "", 1, 4096, n)) for n in (4, 8)] == [38150, 49750]
    rows = read_rows("ethernet_2026_09.csv")
    for row in rows:
        told = collective_ns(row["collective"], int(row["chips"]), int(row["bytes"]))
        assert told == pytest.approx(1000 * float(row["us"]))
    assert collective_ns("all_gather", 2, 98304) == pytest.approx((12200 + 17500) / 2)
    assert collective_ns("all_gather", 8, 1) == 17610 and exchange_ns(8192) == 5270
    for arguments, says in (
        (("all_gather", 3, 8192), "no time of all_gather on 3 chips was measured, only on [2, 4, 8]"),
        (("all_gather", 2, 2**21), "all_gather was measured up to 1048576 bytes, got 2097152"),
        (("all_gather", 2, 0), "got 0"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            collective_ns(*arguments)


def test_the_bytes_of_the_plan_are_those_of_the_roofline():
    """Weights and cache of a step, but for norms and embedding rows; the fast plan's with the columns that pad a bank,
    in which the model cuts the LM head into other blocks."""
    for tp in (1, 2, 4, 8):
        for plan, most in (("interleaved", 1.0), ("sharded", 1.001)):
            step = Step(MeshShape(1, tp), plan=plan)
            ops = [op for layer in step.layers() for op in layer] + step.fixed()
            read = sum(op.dram_bytes for op in ops if op.kind in (MATMUL, "attention"))
            known = budget(step.config, step.mesh, step.formats, step.context, decode_sharding=plan)
            assert 1.0 <= read / (known.weights + known.kv_cache) <= most + 1e-9


def test_time_grows_with_what_is_done():
    p = fit()
    for small, large in (
        (matmul("wo", 4096, 4096, "bfloat8_b", cores=32), matmul("wo", 4096, 6144, "bfloat8_b", cores=32)),
        (matmul("wo", 4096, 4096, "bfloat4_b", cores=32), matmul("wo", 4096, 4096, "bfloat8_b", cores=32)),
        (attention(8, 128, 1024, 1, "bfloat8_b"), attention(8, 128, 4096, 1, "bfloat8_b")),
        (attention(8, 128, 1024, 1, "bfloat8_b"), attention(8, 128, 1024, 2, "bfloat8_b")),
        (collective("AllGather", "gather", 1, 4096, 4), collective("AllGather", "gather", 1, 4096, 8)),
        (Op("Binary", "", "gated product", 1), Op("Binary", "", "gated product", 7)),
    ):
        assert p.ns(small) < p.ns(large)
    sharded = matmul("lm_head", 4096, 32064, "bfloat8_b", cores=32)
    plain = matmul("lm_head", 4096, 32064, "bfloat8_b", cores=32, dram_sharded=False)
    assert p.ns(sharded) < p.ns(plain), "interleaved weights read at a lower rate"
    speeds = [predict(Step(MeshShape(1, tp))).tokens_per_s for tp in (1, 2, 4, 8)]
    assert speeds == sorted(speeds)
    by_plan = [predict(Step(plan=plan)).token_ns for plan in ("sharded", "paper", "interleaved")]
    assert by_plan == sorted(by_plan) and set(PLANS) == {"sharded", "paper", "interleaved"}


def test_twelve_readers_multiply_slower_than_they_read_at_the_highest_fidelity():
    """The reason of HiFi2 for bfloat8_b weights (a comment in tt_transformers' mlp.py)."""
    p, at = fit(), matmul("ff2", 14336, 4096, "bfloat8_b", cores=64)
    bounds = {fidelity: p.bounds(replace(at, fidelity=fidelity)) for fidelity in ("HiFi2", "HiFi4")}
    assert max(bounds["HiFi2"], key=bounds["HiFi2"].get) == "DRAM"
    assert max(bounds["HiFi4"], key=bounds["HiFi4"].get) == "math"


def test_one_chip_against_its_targets():
    told = predict(Step())
    assert told.roofline_share > 0.70, "the target of one chip, kernels alone"
    gap = (told.floor_ns / 0.7 - told.token_ns) / told.launches
    assert predict(Step(), gap_ns=gap).roofline_share == pytest.approx(0.7)


def test_published_speeds_beside_the_model():
    rows = published_rows(fit())
    assert [(row.chips, row.published) for row in rows] == [
        (int(row["chips"]), float(row["tokens_per_s"])) for row in read_rows("published_decode.csv")
    ]
    for row in rows:
        told = predict(Step(MeshShape(1, row.chips), row.context, precision=row.precision), gap_ns=row.gap_ns)
        assert told.tokens_per_s == pytest.approx(row.published)
    short = {row.chips: row.error for row in rows if row.precision == "performance" and not row.fitted}
    # Kernels alone are faster than whole steps.
    assert 0.15 < short[1] < 0.2 and 0.05 < short[2] < 0.1 and 0.1 < short[8] < 0.15


def test_two_rows_speculate():
    exact = predict(Step(MeshShape(1, 1), 32768))
    hit, miss = (predict(Step(MeshShape(2, 1), 32768), hit_rate=rate) for rate in (1.0, 0.0))
    assert hit.token_ns < exact.token_ns < miss.token_ns
    for mesh, rate in ((MeshShape(1, 1), 0.5), (MeshShape(2, 1), None)):
        with pytest.raises(ValueError, match="a hit rate is for meshes of two rows"):
            predict(Step(mesh), hit_rate=rate)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: fit(3), "no table for 3 chips"),
        (lambda: Step(plan="slow"), "plan must be one of paper, sharded, interleaved, got 'slow'"),
        (lambda: Step(context=0), "context must be 1 to 131072, got 0"),
        (lambda: Step(users=33), "users must be 1 to 32, got 33"),
        (lambda: predict(Step(), gap_ns=-1.0), "gap_ns must be at least 0 and finite, got -1.0"),
        (lambda: matmul("wo", 100, 32, "bfloat8_b", cores=1), "k in tiles of 32, got m 1, k 100"),
        (lambda: attention(0, 128, 32, 1, "bfloat8_b"), "sizes of at least 1, got heads 0"),
        (lambda: collective("AllGather", "gather", 1, 32, 1), "at least 2 chips, got 1"),
        (lambda: Step(MeshShape(1, 3)), "no mesh 1x3"),
    ],
)
def test_refusals(make, says):
    with pytest.raises((ValueError, MeshError), match=re.escape(says)):
        make()


def test_the_command_prints_what_was_computed(capsys):
    assert cli.main(["--mesh", "1x1", "2x4"]) == 0
    text = capsys.readouterr().out
    rows = {row.op.name: row for row in check_table(fit(), 8)}
    fused = rows["AllGatherMatmul"]
    assert f"{fused.measured_ns / 1000:.1f} {fused.modelled_ns / 1000:.1f} {fused.error:+.1%}" in text
    assert f"{token_error(check_table(fit(), 8)):+.1%}" in text
    assert f"{predict(Step()).roofline_share:.1%} of the roofline" in text
    assert "published 28.3, model 33." in text and "which exceeds the target of 70%" in text
    assert all(len(line) <= 160 for line in text.splitlines())

    assert cli.main(["--mesh", "1x1", "--json", "--fit", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    (mesh,) = found["meshes"]
    told = predict(Step(), fit(2))
    assert mesh["token_ns"] == pytest.approx(told.token_ns) and len(mesh["layer"]) == 15
    assert len(found["tables"]["8"]) == len(table_ops(8)) and found["parameters"]["chips"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mesh", "3x3"], "no mesh 3x3"),
        (["--hit-rate", "2"], "--hit-rate must be 0 to 1, got 2"),
        (["--context", "0"], "context must be 1 to"),
        (["--gap-ns", "nan"], "gap_ns must be at least 0"),
    ],
)
def test_the_command_refuses(capsys, arguments, says):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2 and says in capsys.readouterr().err
