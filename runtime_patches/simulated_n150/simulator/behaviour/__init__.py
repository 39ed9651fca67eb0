# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Patches that change results, so that the simulator does what the hardware's documents say."""
