# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m perf.projections.decode_model`."""

from perf.projections.decode_model.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
