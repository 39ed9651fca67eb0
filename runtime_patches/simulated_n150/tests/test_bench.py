# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The simulator's speed: the table's arithmetic, refusals, and a run of the command."""

import re
import subprocess
import sys

import pytest

from runtime_patches.simulated_n150 import bench


def test_rates_are_cycles_over_seconds():
    assert bench.rates(60_000, 2.0, 1.5).split() == ["60,000", "2.00", "30,000", "40,000"]
    assert bench.rates(60_000, 2.0, 0.0).split()[-1] == "-"


def test_no_repeats_are_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--repeats", "0"])
    assert "--repeats must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.sim
def test_a_run_prints_all_programs():
    """Build test: the figures are this machine's."""
    command = [sys.executable, "-m", "runtime_patches.simulated_n150.bench", "--repeats", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    assert len(re.findall(r"^import .* open [\d.]+ s$", printed, re.M)) == 2, printed
    for program in ("ttnn.all_gather", "reading back", "ttnn.add"):
        cycles = int(re.search(rf"^{re.escape(program)} +([\d,]+)", printed, re.M)[1].replace(",", ""))
        assert cycles > 500, printed
