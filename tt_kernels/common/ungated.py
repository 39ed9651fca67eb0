# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Ops that must run whatever the compute gate says: the gate writer, the exchange, the speculative decode.

A kernel opts out by one define in its KernelDescriptor. Without it, a chip that skips could never start again, or its
peer would wait for it; so each of these ops checks its own program before the launch.
"""

from __future__ import annotations

from runtime_patches.sgdc import UNGATED_DEFINE


def require_ungated(program, op: str):
    """Return `program` (a ttnn.ProgramDescriptor) if each of its kernels carries the define.

    Errors: RuntimeError that names the op and the kernels without it.
    """
    gated = [kernel.kernel_source for kernel in program.kernels if UNGATED_DEFINE not in list(kernel.defines)]
    if gated:
        raise RuntimeError(f"{op}: kernels without {UNGATED_DEFINE[0]}, which the compute gate would skip: {gated}")
    return program
