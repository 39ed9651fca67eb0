# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculative flash decode: a guess, the exact result and its verification in one kernel. See `op.py`."""
