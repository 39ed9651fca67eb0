# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled execution of the baby RISC-V cores of a chip while nothing else on it has anything to do.

Speed only: the same instructions at the same cycles as one by one in Python.
"""
