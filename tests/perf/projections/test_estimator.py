# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The estimator's formulas against the ALSpec paper's tables and a version written independently here."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perf.projections.estimator.attention_latency import AttentionLatency, fitted_head_rate, published_checks
from perf.projections.estimator.latency import (
    MAX_CONTEXT,
    MIN_CONTEXT,
    estimate,
    split_layers,
    token_latency,
)
from perf.projections.estimator.tables import (
    CHIP_COUNTS,
    chip_table,
    measured_hit_rate,
    read_rows,
)

CONTEXTS = (1024, 5000, 32768, 65536, 98304, 131072)


@pytest.mark.parametrize("row", read_rows("tables4to7_totals.csv"), ids=lambda row: f"{row['chips']}chips")
def test_op_rows_sum_to_the_printed_totals(row):
    table = chip_table(int(row["chips"]))
    assert table.per_layer_ns == pytest.approx(int(row["per_layer_ns"]), rel=1e-6)
    # Table 5's fixed rows sum to 42 ns more than printed.
    assert table.fixed_ns == pytest.approx(int(row["fixed_ns"]), rel=3.5e-5)
    assert table.flash_decode_ns == int(row["flash_decode_1k_ns"])


def test_op_tables_hold_every_row_of_the_paper():
    assert [(len(chip_table(n).per_layer), len(chip_table(n).fixed)) for n in CHIP_COUNTS] == [
        (19, 19),
        (24, 15),
        (24, 12),
        (25, 12),
    ]


def test_hit_rates_are_those_the_paper_quotes():
    assert measured_hit_rate("IFEVAL", 0.10) == 0.898
    assert measured_hit_rate("hotpotqa", 0.05) == 0.185
    assert measured_hit_rate("HOTPOTQA", 0.10, "llama-3.1-70b") == 0.59
    assert len(read_rows("hit_rates.csv")) == 12 * 6 + 3 * 6
    by_task = {}
    for row in read_rows("hit_rates.csv"):
        by_task.setdefault((row["model"], row["task"]), []).append((float(row["threshold"]), float(row["hit_rate"])))
    for curve in by_task.values():
        rates = [rate for _, rate in sorted(curve)]
        assert rates[0] == 0 and rates == sorted(rates)


@pytest.mark.parametrize(
    "arguments, named",
    [(("nope", 0.1), "IFEVAL"), (("IFEVAL", 0.3), "0.25"), (("IFEVAL", 0.1, "llama-2"), "llama-3.1-70b")],
)
def test_unknown_hit_rate_lists_what_exists(arguments, named):
    with pytest.raises(ValueError, match=named):
        measured_hit_rate(*arguments)


@pytest.mark.parametrize("chips", CHIP_COUNTS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_full_tp_layer_by_layer(context, chips):
    point = estimate(context, None, chips, "tp")
    clock = chip_table(chips).fixed_ns
    for _ in range(32):
        clock += chip_table(chips).per_layer_ns
        clock += point.flash_decode_ns
    assert point.token_latency_ns == pytest.approx(clock, rel=1e-12)
    assert point.tokens_per_s_per_user == pytest.approx(1e9 / clock, rel=1e-12)
    assert (point.hits, point.misses, point.hit_rate, point.tp_chips) == (None, None, None, chips)


@pytest.mark.parametrize("chips", [2, 4, 8])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("hit_rate", [0, 0.3, 0.5, 0.875, 0.99, 1])
def test_sp_tp_as_a_timeline_of_two_groups(hit_rate, context, chips):
    """A hit's layer ends when both the sender's attention and the receiver's layer have; a miss is serial."""
    point = estimate(context, hit_rate, chips, "sp+tp")
    half = chip_table(chips // 2)
    clock = half.fixed_ns
    for layer in range(32):
        if layer + 1 <= 32 * hit_rate:
            clock = max(clock + point.sender_ns, clock + point.receiver_ns + half.per_layer_ns)
        else:
            clock = clock + point.sender_ns + half.per_layer_ns
    assert point.token_latency_ns == pytest.approx(clock, rel=1e-12)
    assert point.hits + point.misses == 32
    assert point.attention_overhead_ns == pytest.approx(clock - half.fixed_ns - 32 * half.per_layer_ns)


@given(
    layers=st.integers(1, 200),
    hit_rate=st.floats(0, 1),
    fixed=st.floats(0, 1e7),
    per_layer=st.floats(0, 1e7),
    receiver=st.floats(0, 1e6),
    rest=st.floats(0, 1e7),
)
@settings(max_examples=100, deadline=None)
def test_token_latency_formula(layers, hit_rate, fixed, per_layer, receiver, rest):
    sender = receiver + rest
    hits = math.floor(round(layers * hit_rate, 9))
    expected = fixed + hits * max(sender, receiver + per_layer) + (layers - hits) * (per_layer + sender)
    got = token_latency(fixed, per_layer, None, sender, receiver, layers, hit_rate)
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-6)
    serial = token_latency(fixed, per_layer, fd=sender, layers=layers)
    assert got <= serial * (1 + 1e-12) + 1e-6


@pytest.mark.parametrize(
    "layers, rate, expected",
    [
        (32, 0.875, (28, 4)),
        (32, 0.65, (20, 12)),
        (30, 0.7, (21, 9)),
        (32, 0, (0, 32)),
        (32, 1, (32, 0)),
        (1, 0.99, (0, 1)),
    ],
)
def test_hits_are_rounded_down(layers, rate, expected):
    assert split_layers(layers, rate) == expected


def test_flash_decode_passes_through_the_measured_points():
    for chips in CHIP_COUNTS:
        assert estimate(1024, None, chips, "tp").flash_decode_ns == chip_table(chips).flash_decode_ns


def test_latency_falls_with_the_hit_rate_and_grows_with_the_context():
    for chips in (2, 4, 8):
        for context in CONTEXTS:
            series = [estimate(context, i / 32, chips, "sp+tp").token_latency_ns for i in range(33)]
            assert all(a >= b for a, b in zip(series, series[1:]))
            # At 1K the guess reads half of the cache and arrives with the exact result: nothing is gained.
            assert series[0] > series[-1] if context > 1024 else series[0] == series[-1]
    for chips, mode in [(n, "tp") for n in CHIP_COUNTS] + [(n, "sp+tp") for n in (2, 4, 8)]:
        series = [estimate(context, 0.75, chips, mode).token_latency_ns for context in CONTEXTS]
        assert all(a < b for a, b in zip(series, series[1:]))


def test_no_hits_costs_no_less_than_half_the_chips_alone():
    for chips in (2, 4, 8):
        alone = estimate(65536, None, chips // 2, "tp").token_latency_ns
        speculative = estimate(65536, 0.0, chips, "sp+tp").token_latency_ns
        assert alone <= speculative <= 1.01 * alone


def test_receiver_waits_longer_for_larger_chunks_and_never_beyond_the_sender():
    waits = [estimate(65536, 0.5, 8, "sp+tp", chunk_size=size).receiver_ns for size in (128, 256, 512)]
    assert waits == sorted(waits) and waits[0] < waits[-1]
    for context in CONTEXTS:
        for chips in (2, 4, 8):
            for size in (128, 256, 512):
                point = estimate(context, 0.5, chips, "sp+tp", chunk_size=size)
                assert 0 < point.receiver_ns <= point.sender_ns


def test_paper_best_case_favours_speculation_on_eight_chips():
    for context in (32768, 65536, 98304, 131072):
        tp = estimate(context, None, 8, "tp").token_latency_ns
        assert tp > estimate(context, 0.875, 8, "sp+tp").token_latency_ns
    # Section 5.2: from 4 to 8 chips full TP gains almost nothing at long contexts.
    for context in (32768, 65536, 98304):
        four, eight = (estimate(context, None, n, "tp").token_latency_ns for n in (4, 8))
        assert eight == pytest.approx(four, rel=0.10)


def test_attention_model_explains_every_published_64k_run():
    checks = published_checks(AttentionLatency())
    assert len(checks) == 7
    assert max(abs(check.relative_error) for check in checks) < 0.036
    n150 = next(check for check in checks if (check.model, check.board) == ("llama-3.1-8b", "N150"))
    assert n150.predicted_tokens_per_s == pytest.approx(16.9, rel=0.02)
    # tt-metal's flash decode report: up to 180 GB/s at a byte an element, 191 with bfloat8_b's exponents.
    assert 180e9 < AttentionLatency().achieved_bytes_per_s(1) < 191.25e9


def test_fitted_head_rate_is_the_least_squares_optimum():
    def squares(rate):
        model = AttentionLatency(head_bytes_per_s=rate)
        total = 0.0
        for check, row in zip(published_checks(model), read_rows("published_64k.csv"), strict=True):
            published = (1 / float(row["long_tokens_per_s"])) / int(row["layers"])
            total += (published - 1 / check.predicted_tokens_per_s / int(row["layers"])) ** 2
        return total

    best = fitted_head_rate()
    assert squares(best) < min(squares(0.99 * best), squares(1.01 * best))


@pytest.mark.parametrize(
    "change, named",
    [
        ({"mode": "dp"}, "dp"),
        ({"chips": 3}, "3"),
        ({"chips": 1}, "got 1"),
        ({"chips": 0}, "0"),
        ({"context": MIN_CONTEXT - 1}, "1023"),
        ({"context": MAX_CONTEXT + 1}, "131073"),
        ({"context": 2048.5}, "2048.5"),
        ({"hit_rate": -0.01}, "-0.01"),
        ({"hit_rate": 87.5}, "87.5"),
        ({"hit_rate": float("nan")}, "nan"),
        ({"hit_rate": None}, "None"),
        ({"chunk_size": 100}, "100"),
    ],
)
def test_bad_input_names_the_value(change, named):
    arguments = {"context": 65536, "hit_rate": 0.5, "chips": 8, "mode": "sp+tp", **change}
    with pytest.raises(ValueError, match=named):
        estimate(**arguments)


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"fd": None}, "fd"),
        ({"fd": -1.0}, "-1.0"),
        ({"fd": 1.0, "layers": 0}, "0"),
        ({"hit_rate": 0.5, "sfd_s": 5.0}, "sfd_r"),
        ({"hit_rate": 0.5, "sfd_r": 5.0}, "sfd_s"),
        ({"hit_rate": 0.5, "sfd_s": 5.0, "sfd_r": 6.0}, "6.0 > sfd_s 5.0"),
        ({"hit_rate": 1.5, "sfd_s": 5.0, "sfd_r": 4.0}, "1.5"),
        ({"fixed": float("nan"), "fd": 1.0}, "nan"),
    ],
)
def test_token_latency_refuses_nonsense(arguments, named):
    with pytest.raises(ValueError, match=named):
        token_latency(**{"fixed": 1.0, "per_layer": 1.0, **arguments})


@pytest.mark.parametrize("name", ["dram_bytes_per_s", "head_bytes_per_s", "verify_ns", "hop_ns"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_attention_model_refuses_nonsense(name, value):
    with pytest.raises(ValueError, match=name):
        AttentionLatency(**{name: value})
