# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The exchange that leaves both ranks of a pair with the tensors of the higher priority; see README.md."""
