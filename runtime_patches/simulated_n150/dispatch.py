# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Choose how programs reach the cores of a simulated chip: launched by the host, or by command queues on the chip.

slow: the host writes each program into the cores and polls until it has ended. No traces, one program at a time.
fast: as on silicon. The host fills a queue; the stock prefetch and dispatch kernels, on Tensix cores of the last
    row, read it, multicast programs to the cores and count who is done. Traces are captured and replayed, events
    and two queues work, and the chips of a mesh run on their own.

The simulator answers the host's messages and sends none, so the queues are in the chip's own DRAM instead of host
memory: an option of the runtime, made for simulators. It costs 16 MiB of each DRAM bank.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.speed.burst import BURST_VARIABLE

DISPATCHES = ("slow", "fast")
# Bytes of DRAM that a device opened for fast dispatch keeps for traces: a traced decode step of the tests' models takes
# a tenth of it.
TRACE_REGION_BYTES = 4 << 20
# L1 of a core that only the semaphores of a mesh's collectives use: some 32 bytes each, a few per program.
SEMAPHORE_BYTES = 32 << 10
# What a core keeps for programs in flight. A dispatcher sends a program ahead where it finds room that none of the last
# seven takes. Attention's takes 60 KB: with the default of 69 KB, with 96 and in 8B's layers with 160, it waits for
# those before it. Tensors lose 187 KB of their 1.4 MB, and ttnn takes a smaller program for a product of a prefill on
# one or two chips.
KERNEL_BYTES = 256 * 1024

_SLOW = "TT_METAL_SLOW_DISPATCH_MODE"
_QUEUES_IN_DRAM = "TT_METAL_DRAM_BACKED_CQ"
# The telemetry kernel polls a register on a TRISC of the dispatch core, which then never rests.
_NO_TELEMETRY = "TT_METAL_DISPATCH_TELEMETRY_DISABLE"
VARIABLES = (_SLOW, _QUEUES_IN_DRAM, _NO_TELEMETRY, BURST_VARIABLE)


def check_dispatch(dispatch: str) -> str:
    """Return `dispatch` if it is one of :data:`DISPATCHES`; else raise ValueError."""
    if dispatch not in DISPATCHES:
        raise ValueError(f"dispatch must be slow or fast, got {dispatch!r}")
    return dispatch


def dispatch_variables(dispatch: str) -> dict[str, str]:
    """Return environment variables that put the runtime on a simulated chip into this mode of dispatch."""
    if check_dispatch(dispatch) == "slow":
        return {_SLOW: "1"}
    return {_QUEUES_IN_DRAM: "1", _NO_TELEMETRY: "1", BURST_VARIABLE: "1"}


def opening_options(dispatch: str) -> dict[str, int]:
    """Return the keyword arguments of ``ttnn.open_device`` or ``ttnn.open_mesh_device`` that this mode needs."""
    return {"trace_region_size": TRACE_REGION_BYTES} if check_dispatch(dispatch) == "fast" else {}


def program_room() -> dict[str, int]:
    """Return the keyword argument of ``ttnn.open_device`` or ``ttnn.open_mesh_device`` that leaves a core's
    KERNEL_BYTES to programs in flight, in a process whose ttnn may be imported."""
    import ttnn

    return {"worker_l1_size": ttnn.device.get_max_worker_l1_unreserved_size() - KERNEL_BYTES}


def mesh_options(dispatch: str) -> dict[str, int]:
    """Return `opening_options` of a mesh.

    At the first call of a collective the runtime writes its semaphores' first values into L1. That write does not wait
    for the ops before, which may still have tensors whose L1 the host has freed and the semaphores got: so they have a
    part of L1 of their own.
    """
    return opening_options(dispatch) | {"l1_small_size": SEMAPHORE_BYTES}
