# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Patches that change results: what the simulator does otherwise than the hardware's documents say."""
