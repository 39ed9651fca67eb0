# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Predict a decode step op by op from one of the ALSpec paper's tables, and check it against the others."""

from perf.projections.decode_model.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
