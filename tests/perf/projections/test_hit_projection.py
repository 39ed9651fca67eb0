# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""perf.projections.hit_projection: what measured hits are worth, against the estimator's own points."""

from __future__ import annotations

import json

import pytest

from perf.projections import hit_projection
from perf.projections.estimator.latency import estimate


def test_a_step_is_the_estimators_where_the_hits_are_whole_layers():
    for hits in (0, 8, 31, 32):
        wanted = estimate(65536, hits / 32, 8, "sp+tp", 128).token_latency_ns
        assert hit_projection.step_ns(hits / 32, 65536, 8, 128) == pytest.approx(wanted)


def test_windows_are_averaged_and_tokens_divide_the_step():
    base = {"context": 1024, "chunk_size": 128, "predictor": "ends", "threshold": 0.1}
    plain = [base | {"hit_rate": 0.25}, base | {"hit_rate": 0.75}]
    trees = [
        base | {"nodes": 4, "rule": "joint", "hit_rate": 0.5, "tokens_per_step": 3.0, "exact_tokens_per_step": 2.0}
    ]
    one, tree = hit_projection.table_rows([*plain, *trees], (65536,))
    assert one["hit_rate"] == 0.5 and one["tokens_per_step"] == 1 == one["nodes"] and one["rule"] is None
    assert one["tokens_per_s"] == pytest.approx(1e9 / hit_projection.step_ns(0.5, 65536, 8, 128))
    assert tree["tokens_per_s"] == pytest.approx(3 * one["tokens_per_s"])
    assert tree["over_tp"] == pytest.approx(1.5 * one["over_tp"])
    assert one["over_misses"] > 1
    (chain,) = hit_projection.table_rows([base | {"nodes": 16, "rule": "every node", "hit_rate": 0.5}], (65536,))
    assert chain["tokens_per_step"] == 16 and chain["over_tp"] == pytest.approx(one["over_tp"])


def test_the_command_writes_its_rows(tmp_path, capsys):
    measured, written = tmp_path / "p.csv", tmp_path / "w.json"
    measured.write_text(
        "context,chunk_size,predictor,threshold,hit_rate\n1024,128,ends,0.1,0.5\n1024,64,ends,0.1,0.2\n"
    )
    assert hit_projection.main([str(measured), "--write", str(written)]) == 0
    assert "50.0%" in capsys.readouterr().out
    assert [row["projected"] for row in json.loads(written.read_text())["rows"]] == [65536, 131072]


@pytest.mark.parametrize("options,why", [(("--threshold", "0.3"), "no row of"), (("--chunk-size", "512"), "no row of")])
def test_what_cannot_be_projected_is_refused(options, why, tmp_path, capsys):
    measured = tmp_path / "p.csv"
    measured.write_text("context,chunk_size,predictor,threshold,hit_rate\n1024,128,ends,0.1,0.5\n")
    with pytest.raises(SystemExit):
        hit_projection.main([str(measured), *options])
    assert why in capsys.readouterr().err
    with pytest.raises(ValueError, match="the estimator has guesses of S = 128, 256, 512"):
        hit_projection.table_rows([{"hit_rate": 0.5, "chunk_size": 64}])
