# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Estimate tokens/s of Llama 3.1 8B with attention-level speculation by the ALSpec paper's appendix F."""

from perf.projections.estimator.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
