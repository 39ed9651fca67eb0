# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""An N150 simulated from registry packages: stock ttnn, Debian's RISC-V compiler, wolfpine."""
