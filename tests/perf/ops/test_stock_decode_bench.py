# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What bench_stock_decode says beside cycles: its oracle, its points, and how ratios stand to targets."""

from __future__ import annotations

import pytest
import torch

from perf.ops.bench_stock_decode import (
    FIDELITIES,
    LONG_POINTS,
    POINTS,
    STOCK,
    STOCK_EXACT,
    Measured,
    Point,
    _attention,
    report,
)


def test_its_oracle_is_torch_attention_with_shared_heads():
    q, k, v = torch.randn(1, 1, 8, 64), torch.randn(1, 2, 40, 64), torch.randn(1, 2, 40, 64)
    expected = torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, enable_gqa=True)
    torch.testing.assert_close(_attention(q, k, v), expected.transpose(1, 2))


def test_points_suit_both_ops():
    assert set(POINTS) <= set(LONG_POINTS)
    assert all(point.context % point.chunk == 0 and point.heads % point.kv_heads == 0 for point in LONG_POINTS)
    assert max(point.context for point in LONG_POINTS) == 8192


def test_the_report_compares_cycles_and_errors():
    cycles = dict(zip((*FIDELITIES, STOCK, STOCK_EXACT), (80, 85, 100, 110), strict=True))
    found = {name: Measured(count, 0.002, 0.01) for name, count in cycles.items()}
    text = report([(Point(512, 64), found)], "HiFi3")
    row = "| 512 | 4 on 1 | 64 | bfloat16 | 64 | HiFi3 (default) | 85 | 0.85 | 0.77 | 0.00200 | 1.00% |"
    assert row in text
    assert "at equal fidelity (HiFi3 against stock, HiFi3): at most 0.77 (target 0.9: met)" in text
    assert "by default (HiFi3 against stock, as it comes): at most 0.85 (target 1.0: met)" in text


@pytest.mark.parametrize("values", [(0, 0.1, 0.1), (10, 0.0, 0.1), (10, 0.1, 1.5), (10, float("nan"), 0.1)])
def test_what_cannot_have_been_measured_is_refused(values):
    with pytest.raises(ValueError, match="not measurable"):
        Measured(*values)
