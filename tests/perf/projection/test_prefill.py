# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The time to the first token: 64 cores with the executed blocks take the executed cycles, and sums of parts."""

import pytest

from models.llama31_8b.tt.precision import bytes_of
from models.llama31_8b.tt.prefill import all_cores_read
from perf.lib.chip import BYTES_PER_CYCLE
from perf.lib.data_file import FOLDER, read
from perf.projection.prefill import attention_cycles, banked_line, product_cycles, rows_of


def executed(name: str) -> list[dict]:
    return read(FOLDER / "ops" / name)[1]


def test_a_product_with_the_executed_blocks_on_each_core_takes_the_executed_cycles():
    """By the op that the model takes for so many rows. All cores together read no faster than the DRAM."""
    for row in executed("prefill_product.json"):
        taken = "banked_product" if all_cores_read(row["chip_rows"], row["dtype"]) else "minimal_matmul"
        if row["program"] == taken and row["cores"] == "4x4":
            shape = row["chip_rows"], row["inputs"], row["chip_outputs"], row["dtype"], row["x"]
            found, read_at_best = product_cycles(*shape), bytes_of(shape[1] * shape[2], row["dtype"]) / BYTES_PER_CYCLE
            place = row["chip_rows"], row["chip_outputs"] / 2048, row["dtype"]
            start = banked_line(*place)[0] if taken == "banked_product" else 0
            assert found == pytest.approx(max(row["cycles"], start + read_at_best), rel=0.02), row


def test_attention_with_the_executed_pieces_on_each_core_takes_the_executed_cycles():
    """Of 256 query heads, a chip's cores have a piece each."""
    for row in executed("prefill_attention.json"):
        if (row["op"], row["tokens"]) == ("own", 64) and row["start"] > 0:
            assert attention_cycles(256, 64, row["start"]) == pytest.approx(row["cycles"], rel=0.01), row
    # Two pieces on each core, one after the other.
    (row,) = (row for row in executed("prefill_attention.json") if row["tokens"] == 128)
    assert attention_cycles(256, 128, row["start"]) == pytest.approx(row["cycles"], rel=0.02)


def test_rows_have_what_is_published_and_stay_below_the_peak():
    rows = rows_of((128, 1024, 65536), (1, 2, 8))
    assert [row["published"] for row in rows if row["chips"] == 1] == [104, 697.4, 64400]
    assert [row["published"] for row in rows if row["tokens"] == 1024] == [697.4, None, None]
    assert all(0 < row["of_peak"] < 1 for row in rows)
    long = [row["ms"] for row in rows if row["tokens"] == 65536]
    assert long == sorted(long, reverse=True), "more chips, less time"
