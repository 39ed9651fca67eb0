# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the SFPI compiler: Debian's RISC-V GCC 12 under the name riscv-tt-elf-g++."""
