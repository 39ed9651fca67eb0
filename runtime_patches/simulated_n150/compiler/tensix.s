# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0

# Read by the assembler before every TRISC unit.

    .macro .ttinsn encoding
    .4byte (((\encoding) << 2) | (((\encoding) >> 30) & 3)) & 0xffffffff
    .endm
