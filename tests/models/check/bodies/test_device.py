# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The HiFi4 probe sees what tt-metal issue 38306 shows: single sums that are wrong by powers of two."""

from __future__ import annotations

import pytest

from models.llama31_8b.check.bodies import device
from models.llama31_8b.check.context import Context


def probe(monkeypatch, broken: str, factor: float):
    """Return the probe's checks on a multiplier whose sums are right in float32, but for one in `broken`."""

    def product(context, left, right, fidelity):
        sums = (left.float() @ right.float()).double()
        if fidelity == broken:
            sums[17, 5] *= factor
        return sums

    monkeypatch.setattr(device, "_product", product)
    return device.hifi4_probe(Context("n150"))


def test_a_wrong_sum_in_hifi4_is_noted_only(monkeypatch):
    right, noted = probe(monkeypatch, "HiFi4", 32)
    assert right.ok and right.measured.startswith("0 of 4096 wrong")
    assert noted.ok is None and noted.measured.startswith("4 of 4096 wrong, worst ")


@pytest.mark.parametrize("factor", [2, 0.25, 32, float("nan")])
def test_a_wrong_sum_in_hifi3_fails(monkeypatch, factor):
    wrong, _ = probe(monkeypatch, "HiFi3", factor)
    assert wrong.ok is False and " of 4096 wrong, worst " in wrong.measured and wrong.expected == "none wrong"
