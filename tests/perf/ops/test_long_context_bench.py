# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""bench_long_context: its errors, its layouts, what it refuses, that it goes on; and that its figures stand."""

from __future__ import annotations

import pytest
import torch

from perf import docs
from perf.lib.tables import Table
from perf.ops import bench_long_context
from perf.ops.bench_long_context import CSV, KEYS, LAYOUTS, OPS, VALUES, errors_of, main, measure_all
from tt_kernels.common.circular_buffers import l1_bytes
from tt_kernels.speculative_flash_decode.checks import Problem
from tt_kernels.speculative_flash_decode.work_split import choose_work_split

FREE_L1 = 1_201_824  # of a simulated chip's core, see test_speculative_flash_decode_host.py


def test_errors_are_of_the_norm_of_the_worst_row_and_along_the_reference():
    expected = torch.tensor([[3.0, 4.0], [0.0, 5.0]])
    found = torch.tensor([[3.3, 4.4], [0.0, 5.0]])
    errors = errors_of(found, expected)
    assert errors.worst_head == pytest.approx(0.1) and errors.largest == pytest.approx(0.4)
    assert errors.error == pytest.approx(0.5 / 50**0.5)
    assert errors.bias == pytest.approx(2.5 / 50)
    assert errors_of(1.02 * expected, expected).norm_error == pytest.approx(0.02)


@pytest.mark.parametrize("cores", LAYOUTS)
def test_both_ranks_of_a_pair_have_room_on_the_chip(cores):
    layout = LAYOUTS[cores]
    problem = Problem(1, 4 * layout.kv_heads, layout.kv_heads, 128, 131072, "BFLOAT8_B", 128)
    columns, rows = map(int, layout.chip.split("x"))
    assert layout.sender[1] + layout.receiver[1] <= rows and layout.sender[0] == layout.receiver[0] == columns
    for grid in (layout.sender, layout.receiver):
        on = tuple((x, y) for y in range(grid[1]) for x in range(grid[0]))
        split = choose_work_split(
            problem, on, FREE_L1, speculate=True, peer=True, exchange=on[-1], workers_per_head=layout.workers
        )
        assert max(l1_bytes(split.buffers).values()) <= FREE_L1
        assert len(split.assignment.groups) == (layout.kv_heads if grid == layout.sender else 1)


@pytest.mark.parametrize("context", ["0", "256", "1000", "262144", "-128", "many"])
def test_contexts_that_no_cache_holds_are_refused_in_a_line(context, capsys):
    with pytest.raises(SystemExit):
        main(["--contexts", context])
    assert f"a multiple of 128 above 256 and up to 131072, got '{context}'" in capsys.readouterr().err


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch):
    asked = []

    def measured(module, key, environment, timeout_s):
        asked.append(key["op"])
        row = dict.fromkeys(set(VALUES) - {"of_exact"}, 0.001)
        return row | {"cycles": 204 if key["op"] == "pair" else 200}

    monkeypatch.setattr(bench_long_context, "measure_apart", measured)
    path = tmp_path / "rows.csv"
    measure_all(Table(path, KEYS, VALUES), [8], [16384], ["exact"])
    measure_all(Table(path, KEYS, VALUES), [8], [16384], list(OPS))
    assert asked == list(OPS)
    ratios = {row["op"]: row["of_exact"] for row in Table(path, KEYS, VALUES).rows()}
    assert ratios == {"exact": "", "pair": "1.02", "guess": "", "tree": ""}


def test_recorded_errors_are_within_half_a_per_cent():
    _, rows = docs.read(CSV)
    assert len({(row["cores"], row["context"], row["op"]) for row in rows}) == len(rows) > 0
    for row in rows:
        assert 0 < row["error"] <= 0.005 and abs(row["bias"]) <= 0.002, row


@pytest.mark.slow
@pytest.mark.sim
def test_the_shortest_recorded_context_runs_again_as_recorded(tmp_path):
    """Cycles within 0.5 %, errors as they are."""
    recorded = next(
        row for row in docs.read(CSV)[1] if (row["cores"], row["context"], row["op"]) == (8, 16384, "exact")
    )
    table = Table(tmp_path / "again.csv", KEYS, VALUES)
    measure_all(table, [8], [16384], ["exact"])
    again = table.rows()[0]
    assert int(again["cycles"]) == pytest.approx(recorded["cycles"], rel=0.005)
    assert float(again["error"]) == pytest.approx(recorded["error"], rel=0.01)
