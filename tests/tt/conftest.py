# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints come from gguf_files.py, beside the tests of the reference."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "reference"))
