# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled units, precompiled headers and what is known of sources, shared by all runtime roots of a toolchain."""
