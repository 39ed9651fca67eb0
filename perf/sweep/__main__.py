# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Time ops and decode steps on boards, on simulated chips or by the decode model, into tt-perf-report's CSV."""

from perf.sweep.cli import main
from runtime_patches.board.command_line import run_command

if __name__ == "__main__":
    raise SystemExit(run_command("python -m perf.sweep", main))
