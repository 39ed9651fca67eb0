# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Changes to the installed TT-Metalium runtime, made beside it: site-packages is never modified."""
