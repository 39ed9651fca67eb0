# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The mends, one a module; `registry.all_mends` lists them in the order they are applied."""
