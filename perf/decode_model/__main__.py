# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m perf.decode_model`."""

from perf.decode_model.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
