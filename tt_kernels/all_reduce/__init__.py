# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The sum of a TP group's partial results on each of its chips, with residual and RMS norm; see README.md."""
