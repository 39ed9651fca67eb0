# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The table and the refusals of the bench of drafting on chips; no device."""

from __future__ import annotations

import pytest

from perf.step import drafting
from perf.step.__main__ import main


def test_draft_steps_are_compared():
    cycles = {"draft step, sequential": 3000, "draft step, layer-parallel": 2000, "calibration": 3500}
    parts = {part: {"cycles": count, "programs": 9} for part, count in cycles.items()}
    assert drafting.speedup(parts) == 1.5
    rows = drafting.table_rows({1: parts, 2: parts})
    assert rows[1] == {"part": "draft step, layer-parallel"} | {
        f"{key}_{chips}": value for chips in (1, 2) for key, value in (("cycles", 2000), ("programs", 9))
    }


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--layers", "1"], "--layers must be 2 to 4, got 1"),
        (["--simulate"], "--simulate"),
        (["--simulate", "3"], "invalid choice: 3"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_any_work(capsys, monkeypatch, arguments, words):
    monkeypatch.setattr(drafting, "run", lambda *_: pytest.fail("nothing may be measured"))
    with pytest.raises(SystemExit) as ended:
        main(["drafting", *arguments])
    assert ended.value.code == 2 and words in capsys.readouterr().err
