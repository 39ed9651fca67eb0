# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Means over windows and their standard errors."""

from __future__ import annotations

import pytest

from perf.lib.data_file import FOLDER as DATA
from perf.studies.quality import averages

FILE = """# python -m perf.studies.quality
model,text,context,start,chunk_size,tail_alignment,threshold,loss_change,hit_rate
m,t,1024,0,64,32+,0.1,0.001,0.2
m,t,1024,9,64,32+,0.1,0.003,0.4
m,t,1024,0,64,32+,inf,0.1,1
"""


def test_windows_are_averaged_and_equal_columns_left_out(tmp_path, capsys) -> None:
    path = tmp_path / "perplexity.csv"
    path.write_text(FILE)
    assert averages.main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| threshold | windows | hit rate (%) | loss change (nats) |",
        "|---|---|---:|---:|",
        "| 0.1 | 2 | 30.0 ± 10.0 | 0.0020 ± 0.0010 |",
        "| inf | 1 | 100.0 | 0.1000 |",
    ]


@pytest.mark.parametrize("name", ["perplexity", "perplexity_bfloat16", "baselines"])
def test_the_committed_windows(name: str) -> None:
    found = averages.averages(averages.rows_of(DATA / "quality" / f"{name}.csv"))
    whole = [row for row in found if row["tail_alignment"] == "32+"]
    assert {row["windows"] for row in whole} == {16}


def test_other_files_are_refused(tmp_path, capsys) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    assert averages.main([str(path)]) == 2
    assert "has no windows with hit rates" in capsys.readouterr().err
