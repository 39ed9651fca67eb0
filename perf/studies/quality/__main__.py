# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure what attention-level speculation costs in quality, and how often it hits, on the CPU or a GPU."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
