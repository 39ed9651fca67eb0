# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
# A kernel that returns at once, for every core: what stands for a stock kernel that nothing executes (see stock.sh).
.section .start, "ax", @progbits
.globl kernel_launch
.weak _start # NCRISC's own is in wh-iram-start.o, and goes on to kernel_launch
_start:
kernel_launch:
    ret
