# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The error of the op."""

from __future__ import annotations


class UnsupportedError(ValueError):
    """A combination of inputs the op does not support."""
