# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What token-level speculation shares between the CPU's loop and the chips': trees, draft shapes, look-up, metrics."""
