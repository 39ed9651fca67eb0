# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Device perf sweeps over ops and decode steps: on boards, on simulated chips, by the decode model. `python -m
perf.sweep`; perf/README.md."""
