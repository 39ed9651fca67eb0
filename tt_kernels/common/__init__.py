# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What several ops share: priorities, opting out of the compute gate, and small kernel headers in `kernels/`."""
