# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The time to the first token: 64 cores with the executed blocks take the executed cycles, and sums of parts."""

import pytest

from models.llama31_8b.tt.precision import bytes_of
from models.llama31_8b.tt.prefill import all_cores_read
from perf.lib.chip import BYTES_PER_CYCLE
from perf.lib.data_file import FOLDER, read
from perf.projection.prefill import (
    PARTS,
    attention_cycles,
    banked_start,
    collective_cycles,
    other_cycles,
    product_cycles,
    project,
    rows_of,
)
from perf.projection.published import ALL_GATHER, REDUCE_SCATTER, collective_ns


def executed(name: str) -> list[dict]:
    return read(FOLDER / "ops" / name)[1]


def test_a_product_with_the_executed_blocks_on_each_core_takes_the_executed_cycles():
    """By the op that the model takes for so many rows. All cores together read no faster than the DRAM."""
    for row in executed("prefill_product.json"):
        taken = "banked_product" if all_cores_read(row["chip_rows"], row["dtype"]) else "minimal_matmul"
        if row["program"] == taken and row["cores"] == "4x4":
            shape = row["chip_rows"], row["inputs"], row["chip_outputs"], row["dtype"]
            found, read_at_best = product_cycles(*shape), bytes_of(shape[1] * shape[2], row["dtype"]) / BYTES_PER_CYCLE
            floor = banked_start() + read_at_best if taken == "banked_product" else read_at_best
            assert row["cycles"] <= 1.01 * found, row
            if row["chip_outputs"] > 2048:
                assert found == pytest.approx(max(row["cycles"], floor), rel=0.02), row


def test_a_block_that_was_not_executed_takes_as_much_more_as_it_has_rows():
    """Of two tiles of rows for one with its format's weight, of one for one of another format."""
    rows = [row for row in executed("prefill_product.json") if row["program"] == "minimal_matmul"]
    (four_bit,) = (row for row in rows if row["dtype"] == "bfloat4_b")
    assert product_cycles(2048, 512, 14336, "bfloat4_b") == pytest.approx(2 * four_bit["cycles"])
    (low,) = (row for row in rows if row["chip_rows"] == 512)
    assert product_cycles(768, 512, 6144, "bfloat8_b") == pytest.approx(1.5 * low["cycles"])
    assert product_cycles(768, 512, 6144, "bfloat4_b") == pytest.approx(low["cycles"])


def test_no_product_is_faster_than_its_weight_is_read():
    for columns in (1024, 4096, 131072):
        floor = bytes_of(4096 * columns, "bfloat8_b") / BYTES_PER_CYCLE
        assert product_cycles(32, 4096, columns, "bfloat8_b") >= floor


def test_attention_with_the_executed_pieces_on_each_core_takes_the_executed_cycles():
    (row,) = (r for r in executed("prefill_attention.json") if (r["size"], r["start"]) == (256, 1024))
    assert attention_cycles(64, 256, 1024) == pytest.approx(row["cycles"])
    (row,) = (r for r in executed("prefill_attention.json") if (r["size"], r["start"]) == (256, 0))
    assert attention_cycles(64, 256, 0) == pytest.approx(row["cycles"])
    # Half of the cores have nothing: as long.
    assert attention_cycles(16, 128, 1024) == pytest.approx(attention_cycles(64, 128, 1024))


def test_other_ops_of_a_row_of_tiles_per_core():
    rows, twice = ([row for row in executed("prefill_parts.json") if row["rows"] == count] for count in (32, 64))
    for row, more in zip(rows, twice, strict=True):
        assert row["op"] == more["op"] and more["cycles"] == pytest.approx(2 * row["cycles"], rel=0.15), "by rows"
    assert other_cycles(2048, 1) == pytest.approx(sum(row["a_layer"] * row["cycles"] for row in rows))
    norm, gated = (next(row["cycles"] for row in rows if row["op"] == op) for op in ("norm", "gated product"))
    assert 2 * norm < other_cycles(128, 1) < other_cycles(2048, 8) < other_cycles(2048, 1) - gated / 2


def test_collectives_are_published_ones_and_their_line():
    assert collective_cycles(128, 1, 4096) == 0
    for chips in (2, 4, 8):
        small, double, more = (collective_cycles(rows, chips, 4096) for rows in (128, 256, 384))
        assert small == pytest.approx(2 * sum(collective_ns(of, chips, 2**20) for of in (ALL_GATHER, REDUCE_SCATTER)))
        assert more - double == pytest.approx(double - small) and 1.5 * small < double < 2 * small


def test_a_prompt_is_the_sum_of_its_chunks():
    one, two = project(2048, 1), project(4096, 1)
    assert set(one) == set(PARTS) and two["products"] == pytest.approx(2 * one["products"])
    assert two["attention"] > 2 * one["attention"] and two["head"] == one["head"]


def test_rows_have_what_is_published_and_stay_below_the_peak():
    rows = rows_of((128, 1024, 65536), (1, 2, 8))
    assert [row["published"] for row in rows if row["chips"] == 1] == [104, 697.4, 64400]
    assert [row["published"] for row in rows if row["tokens"] == 1024] == [697.4, None, None]
    assert all(0 < row["of_peak"] < 1 for row in rows)
    long = [row["ms"] for row in rows if row["tokens"] == 65536]
    assert long == sorted(long, reverse=True), "more chips, less time"
