# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The table and the refusals of the bench of drafting on chips; no device."""

from __future__ import annotations

import pytest

from perf.steps import bench_device_speculation as bench


def test_cycles_are_shown_by_row_and_compared():
    parts = {
        bench_part: {"cycles": cycles, "programs": 9}
        for bench_part, cycles in (
            ("draft step, sequential", 3000),
            ("draft step, layer-parallel", 2000),
            ("calibration", 3500),
        )
    }
    shape = {"layers": 2, "heads": 2, "drafted": 3, "context": 64}
    assert bench.speedup(parts) == 1.5
    text = bench.report({1: parts, 2: parts}, shape).splitlines()
    assert text[1].split()[-2:] == ["1x1", "1x2"] and text[-1].split()[-2:] == ["1.50x", "1.50x"]
    parts["draft step, sequential"]["cycles"] = 0
    with pytest.raises(ValueError, match="not measurable"):
        bench.speedup(parts)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--layers", "1"], "--layers must be 2 to 4"),
        (["--simulate", "3"], "invalid choice: 3"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_any_work(capsys, monkeypatch, arguments, words):
    monkeypatch.setattr(bench, "run", lambda *_: pytest.fail("nothing may be measured"))
    with pytest.raises(SystemExit) as ended:
        bench.main(arguments)
    assert ended.value.code == 2 and words in capsys.readouterr().err
