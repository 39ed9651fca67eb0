# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Translate GCC's assembly to Tensix vector instructions: registers, literals and flags of the vector unit."""
