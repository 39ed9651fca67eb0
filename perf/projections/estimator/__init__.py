# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode latency of Llama 3.1 8B with attention-level speculation (ALSpec paper, appendix F)."""
