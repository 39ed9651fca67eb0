# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Keep compiled units and linked kernels for all runtime roots of a toolchain."""
