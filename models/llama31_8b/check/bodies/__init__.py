# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What stages do, each function in a process of its own: function(context) returns its checks."""
