# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What others measured, and the constants taken from it; layouts held to the executed parts and pairs."""

import re

import pytest

from models.llama31_8b.latency import EXECUTED, Times, token_latency, token_ns
from perf.lib.data_file import read, read_rows
from perf.ops.__main__ import FAMILIES, run
from perf.projection.layouts import exact_of_keys, executed_pairs, layout_rows, load
from perf.projection.prefill import collective_ns
from perf.step.layer import STEPS, TOKEN


def test_collectives_take_what_was_measured():
    for row in read_rows("ethernet_2026_09.csv"):
        told = collective_ns(row["collective"], row["chips"], row["bytes"])
        assert told == pytest.approx(1000 * row["us"])
    assert collective_ns("all_gather", 2, 98304) == pytest.approx((12200 + 17500) / 2)
    assert collective_ns("all_gather", 8, 1) == 17610
    assert collective_ns("all_to_all", 2, 2 * 8192) == Times().guess_ns, "an exchange of 8 KiB guesses"
    for arguments, says in (
        (("all_gather", 3, 8192), "no time of all_gather on 3 chips was measured, only on [2, 4, 8]"),
        (("all_gather", 2, 2**21), "all_gather was measured up to 1048576 bytes, got 2097152"),
        (("all_gather", 2, 0), "got 0"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            collective_ns(*arguments)


def test_the_product_counts_with_the_executed_parts():
    assert load()[0] == EXECUTED


def test_a_token_by_parts_is_that_of_the_layers_bench():
    times, _ = load()
    rows = [row for row in read(STEPS)[1] if (row["stage"], row["sharding"]) == (TOKEN, "sharded")]
    assert {row["tp"] for row in rows} == {1, 2, 4}
    for row in rows:
        token = token_ns(row["context"], None, row["tp"], times)
        older = row["tp"] == 1  # whose attention took 7,000 cycles more in a layer
        assert token == pytest.approx(row["cycles"], rel=0.01 if older else 1e-3)


def test_a_pairs_layer_is_within_three_percent_of_the_executed_ones():
    """Of steps without collectives."""
    times, _ = load()
    assert {row["hit_rate"] for row in executed_pairs()} == {0.0, 1.0}
    for row in executed_pairs():
        parts = {"sfd_s": row["part_exact"] + times.verify_ns, "sfd_r": exact_of_keys(row, times) + times.guess_ns}
        parts["per_layer"] = row["part_per_layer"] + times.pair_ns
        took = token_latency(0, **parts, layers=1, hit_rate=row["hit_rate"])
        assert took == pytest.approx(row["layer_pitch"], rel=0.03)


def test_attention_lies_on_the_line_of_executed_contexts():
    times = Times(attention={4: {1024: 10.0, 4096: 40.0, 8192: 60.0}})
    found = [times.flash_decode_ns(context, 4) for context in (1024, 2560, 6144, 8192, 16384)]
    assert found == [10.0, 25.0, 50.0, 60.0, 100.0]


def test_a_rows_cells_are_estimates_of_the_same_times():
    times, _ = load()
    (row,) = layout_rows((65536,), (16,))
    tp, split = (token_ns(65536, None, n, times, split_cache=n == 16) for n in (8, 16))
    assert row["split"] == pytest.approx(tp / split) and row["tp_tokens_per_s"] == pytest.approx(1e9 / tp)
    gains = [row[name] for name in ("at_100", "at_95", "at_90", "at_75")]
    assert gains == sorted(gains, reverse=True)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_all_reduce_of_two_chips_runs_again_as_recorded():
    (reduce,) = run("all_reduce", FAMILIES["all_reduce"].asked(["chips=2"]))
    assert reduce["cycles"] == pytest.approx(load()[0].merge_ns, rel=0.05)  # polls of the host carry the clock
