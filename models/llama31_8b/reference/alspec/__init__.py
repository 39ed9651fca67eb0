# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation: policies, the acceptance rule, counters (Cai et al., ICML 2025)."""
