# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of a token tree's nodes over their cached prefix and their ancestors. See README.md."""
