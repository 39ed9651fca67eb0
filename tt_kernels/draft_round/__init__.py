# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Between the steps of a round of drafted chains: what one step decides becomes what the next one reads."""
