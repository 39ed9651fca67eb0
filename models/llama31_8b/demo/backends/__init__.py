# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Where a run of the demo happens. Each module declares what it supports in one table, SUPPORT."""
