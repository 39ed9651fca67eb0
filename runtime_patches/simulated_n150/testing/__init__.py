# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of pytest that run functions on simulated chips, in worker processes."""
