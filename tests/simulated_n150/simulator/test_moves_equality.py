# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""MOVA2D as one block writes what the installed row-by-row, column-by-column copy writes."""


def test_random_copies(fresh_interpreter):
    """Eight rows and one, every format class, denormals flushed or not, 16- and 32-bit words."""
    fresh_interpreter(
        """
import numpy as np
from runtime_patches.simulated_n150.simulator.patches import data_format, moves
from framework.pe.tensix.backends.matrix import MatrixUnit
data_format.PATCH.apply()
installed = MatrixUnit.handle_mova2d
moves.PATCH.apply()
patched = MatrixUnit.handle_mova2d
assert patched is not installed
from tests.simulated_n150.simulator import tensix_programs as t
from framework.pe.tensix.util import TensixInstructionDecoder as Decoder
from tests.simulated_n150.simulator.vector_programs import word

rng = np.random.default_rng(4)
compared = 0
for case in range(120):
    source = rng.integers(0, 1 << 19, (64, 16)).astype(np.uint32)
    source[rng.random((64, 16)) < 0.2] &= 0x7FF00
    before = rng.integers(0, 1 << 16, (1024, 16)).astype(np.uint32)
    info = Decoder.getInstructionInfo(
        word("MOVA2D", dst=int(rng.integers(0, 64)), instr_mod=int(rng.choice([0, 2])), addr_mode=0,
             src=int(rng.integers(0, 48)), dest_32b_lo=int(rng.random() < 0.2))
    )
    fields = dict(
        ALU_FORMAT_SPEC_REG0_SrcA=int(rng.choice([0, 1, 2, 4, 5, 6, 7, 8, 9, 14, 15])),
        ALU_ACC_CTRL_Zero_Flag_disabled_src=int(rng.integers(0, 2)),
        DEST_REGW_BASE_Base=int(rng.integers(0, 512)),
    )
    blocked, results = rng.random() < 0.1, []
    for handler in (installed, patched):
        backend = t.make_backend()
        t.configure(backend, **fields)
        backend.srcA[0].data[:] = source
        backend.dst.dstBits[:] = before
        if blocked:
            backend.vector_unit.laneConfig = [1 << 9] * 32
        handler(backend.matrix_unit, info, 1, info["instr_args"])
        results.append(backend.dst.dstBits.copy())
    assert np.array_equal(*results), fields
    compared += not np.array_equal(results[0], before)
assert compared > 100
"""
    )
