# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Appendix F against a timeline of two groups and by hand, and what it must refuse."""

from dataclasses import replace

import pytest

from models.llama31_8b.latency import EXECUTED, layouts, split_layers, step_ns, token_latency, token_ns

CONTEXTS = (1024, 5000, 32768, 65536, 98304, 131072)


@pytest.mark.parametrize("chips", [2, 4, 8])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("hit_rate", [0, 0.3, 0.5, 0.875, 0.99, 1])
def test_sp_tp_as_a_timeline_of_two_groups(hit_rate, context, chips):
    """A hit's layer ends when both the sender's attention and the receiver's layer have; a miss is serial."""
    half, at = EXECUTED.row_costs[chips // 2], (context, chips // 2)
    clock, per_layer = half.fixed_ns, half.per_layer_ns + EXECUTED.pair_ns
    for layer in range(32):
        if layer + 1 <= 32 * hit_rate:
            clock = max(clock + EXECUTED.sender_ns(*at), clock + EXECUTED.receiver_ns(*at) + per_layer)
        else:
            clock = clock + EXECUTED.sender_ns(*at) + per_layer
    assert token_ns(context, hit_rate, chips) == pytest.approx(clock, rel=1e-12)


@pytest.mark.parametrize(
    ("layers", "rate", "expected"),
    [(32, 0.875, (28, 4)), (32, 0.65, (20, 12)), (30, 0.7, (21, 9)), (32, 0, (0, 32)), (1, 0.99, (0, 1))],
)
def test_hits_are_rounded_down(layers, rate, expected):
    assert split_layers(layers, rate) == expected


def test_hits_by_hand():
    """fixed 100, layer 50, sender 80, receiver 10 or 40: a hit takes the sender, or the receiver and the layer."""
    assert token_latency(100, 50, sfd_s=80, sfd_r=10, layers=4, hit_rate=0.75) == 100 + 3 * 80 + 130
    assert token_latency(100, 50, sfd_s=80, sfd_r=40, layers=4, hit_rate=0.75) == 100 + 3 * 90 + 130
    assert token_latency(100, 50, fd=70, layers=4) == 100 + 4 * 120


def test_a_mean_hit_rate_is_on_the_line_between_whole_layers():
    for hits in (0, 8, 31, 32):
        assert step_ns(hits / 32, 65536, 8) == pytest.approx(token_ns(65536, hits / 32, 8))


def test_layouts_are_the_estimates_of_every_mesh_in_order_of_speed():
    found = layouts(5, 65536, 0.5, "ends")
    assert {str(one) for one in found} == {"1x1", "1x2", "1x4", "2x1", "2x2"}
    assert [one.tokens_per_s for one in found] == sorted((one.tokens_per_s for one in found), reverse=True)
    for one in found:
        rate = 0.5 if one.rows == 2 else None
        assert one.tokens_per_s == pytest.approx(1e9 / token_ns(65536, rate, one.rows * one.columns))
    cases = [(2, 4096), (8, 65536), (8, 131072), (16, 65536), (16, 1024)]
    assert [str(layouts(*of)[0]) for of in cases] == ["1x2", "1x8", "1x8", "2x8", "1x8"]
    assert layouts(8, 1) == layouts(8, 1024)


def test_a_cache_split_over_two_rows_and_what_a_pair_adds_by_hand():
    times, half = replace(EXECUTED, pair_ns=70.0, merge_ns=900.0), EXECUTED.row_costs[8]
    attention = times.flash_decode_ns(65536, 8) + 900
    wanted = half.fixed_ns + 32 * (half.per_layer_ns + attention)
    assert token_ns(131072, None, 16, times, split_cache=True) == pytest.approx(wanted)
    shortest, same = (token_ns(context, None, 2, times, split_cache=True) for context in (1024, 2048))
    assert shortest == same
    pair = [token_ns(65536, 0.0, 16, one) for one in (replace(times, pair_ns=0.0), times)]
    assert pair[1] == pytest.approx(pair[0] + 32 * 70)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"chips": 3}, "3"),
        ({"chips": 1}, "got 1"),
        ({"chips": 16, "hit_rate": None}, "got 16"),
        ({"split_cache": True}, "not both; hit_rate 0.5"),
        ({"context": 1023}, "1023"),
        ({"context": 131073}, "131073"),
        ({"context": 2048.5}, "2048.5"),
        ({"hit_rate": -0.01}, "-0.01"),
        ({"hit_rate": 87.5}, "87.5"),
        ({"hit_rate": float("nan")}, "nan"),
    ],
)
def test_bad_input_names_the_value(change, named):
    with pytest.raises(ValueError, match=named):
        token_ns(**{"context": 65536, "hit_rate": 0.5, "chips": 8, **change})
