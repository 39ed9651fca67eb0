# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""In a worker: open the compute gate that an earlier run or a failed test may have left closed."""

import os
import sys

from runtime_patches import sgdc
from runtime_patches.board.environment import NOT_SILICON


def open_gate(device, failed: bool) -> None:
    """Open the gate on every core, where the runtime has one: ops of the next test would be skipped.

    Args:
        device: the worker's open device or mesh.
        failed: whether a test's body has failed; else the device has just been opened.

    L1 of a board outlives the process that closed its gate; a simulated chip starts with its own. A mock mesh runs no
    program, and only the op closes a gate.
    """
    on_board = not any(variable in os.environ for variable in NOT_SILICON)
    executes = "TT_METAL_SIMULATOR" in os.environ or "TT_METAL_MOCK_CLUSTER_DESC_PATH" not in os.environ
    if not (executes and "tt_kernels.compute_gate.op" in sys.modules if failed else on_board):
        return
    if sgdc.state(sgdc.runtime_in_use()) is sgdc.GateState.PATCHED:
        from tt_kernels.compute_gate.op import clear_compute_gate

        clear_compute_gate(device)
