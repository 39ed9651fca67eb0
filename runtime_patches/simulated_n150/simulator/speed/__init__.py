# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Patches that change the simulator's speed alone: results and cycles stay those of the installed code."""
