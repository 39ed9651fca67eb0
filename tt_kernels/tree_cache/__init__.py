# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Keys and values of token trees in the KV cache: written after the prefix, and committed once verified."""
