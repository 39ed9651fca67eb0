# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Precision presets."""

import pytest

from models.llama31_8b.tt.precision import PrecisionError, bytes_of, precision_config


def test_performance_keeps_four_bits_out_of_the_last_layer():
    plan = precision_config("performance", 32)
    assert {plan.of_layer(i).gate_up for i in range(31)} == {"bfloat4_b"}
    assert plan.of_layer(31).gate_up == plan.of_layer(0).down == "bfloat8_b"
    assert plan.kv_cache == plan.lm_head == "bfloat8_b"
    assert plan.weight_formats(32) == {"bfloat4_b", "bfloat8_b"} and plan.weight_formats(0) == {"bfloat8_b"}


def test_accuracy_is_bfloat8_throughout():
    plan = precision_config("accuracy", 32)
    assert set(vars(plan.of_layer(7)).values()) == {"bfloat8_b"}


def test_an_unknown_precision_is_refused():
    with pytest.raises(PrecisionError, match="'fast'; precisions: performance, accuracy, bfloat16"):
        precision_config("fast", 32)


def test_bytes_are_those_of_whole_tiles():
    assert [bytes_of(1024, t) for t in ("bfloat16", "bfloat8_b", "bfloat4_b")] == [2048, 1088, 576]
    assert bytes_of(1025, "bfloat8_b") == 2 * 1088
