# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""One process that hosts all chips of a simulated mesh, in lock-step."""
