# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How many fraction bits of a SrcB operand count in a product or a sum of the matrix unit.

Two public sources disagree where SrcA holds BF16 and SrcB holds TF32, which is where float32 intermediates are
multiplied by BF16 (attention's P x V, a norm's products):

"own": each operand has the bits of its own format, ALU_FORMAT_SPEC_REG0_SrcA and ALU_FORMAT_SPEC_REG1_SrcB. Source:
    Tenstorrent's ttsim 1.10, which claims to agree with the RTL bit for bit; its issue 14 reports RTL tests in which
    SrcB's format preserves the three lowest bits of SrcB.
"srca": SrcA's format decides for both. Source: tt-isa-documentation,
    WormholeB0/TensixTile/TensixCoprocessor/{MVMUL,ELWMUL}.md, functional models, which call themselves rough; the
    installed simulator does this.

The default is "own"; examples/flash_decode_on_the_simulated_chip.py says which of the two a board does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from runtime_patches.simulated_n150.simulator.patch import Patch

VARIABLE = "SIMULATED_N150_SRCB_BITS"
RULES = ("own", "srca")  # the default first
BF16_BITS = 0x7F8FF  # of a Src datum: sign, ten fraction bits, exponent; without the fraction's lowest three
TF32_BITS = 0x7FFFF


def own_formats() -> bool:
    """Return whether SrcB has the bits of its own format.

    Raises:
        ValueError: VARIABLE holds none of RULES.
    """
    rule = os.environ.get(VARIABLE, RULES[0])
    if rule not in RULES:
        raise ValueError(f"{VARIABLE} must be {' or '.join(RULES)}, got {rule!r}")
    return rule == "own"


@contextmanager
def _cut(register) -> Iterator[None]:
    """Let a Src register hold BF16 for the length of one instruction."""
    kept = register.data.copy()
    register.data &= np.array(BF16_BITS, dtype=register.data.dtype)
    try:
        yield
    finally:
        register.data[:] = kept


def _apply() -> None:
    from framework.pe.tensix.backends.matrix import DataFormat, MatrixUnit

    if not own_formats():
        return
    multiply, elementwise = MatrixUnit.perform_mvmul_exact, MatrixUnit.perform_elementwise_exact

    def run_by_formats(unit, state, style, run):
        """Call run(style) with both operands cut to their formats; `style` is SrcA's."""
        overridden = unit.getConfigValue(state, "ALU_FORMAT_SPEC_REG_SrcB_override")
        field = "ALU_FORMAT_SPEC_REG_SrcB_val" if overridden else "ALU_FORMAT_SPEC_REG1_SrcB"
        wide_a, wide_b = style == DataFormat.TF32, unit.getConfigValue(state, field) == DataFormat.TF32
        if wide_a == wide_b:
            run(style)
            return
        with _cut(unit.getSrcB() if wide_a else unit.getSrcA()):
            run(DataFormat.TF32)

    perform_mvmul = MatrixUnit.perform_mvmul

    def remember_thread(self, issue_thread, *arguments, **named):
        self._issuing = issue_thread  # perform_mvmul_exact is not told
        perform_mvmul(self, issue_thread, *arguments, **named)

    def perform_mvmul_exact(self, a_row, b_row, dst_row, rows, broadcast, style, *rest):
        state = self.getThreadConfigValue(self._issuing, "CFG_STATE_ID_StateID")
        before = self, a_row, b_row, dst_row, rows, broadcast
        run_by_formats(self, state, style, lambda kind: multiply(*before, kind, *rest))

    def perform_elementwise_exact(self, thread, state, rwc, by_column, by_row, dst_row, style, *rest):
        before = self, thread, state, rwc, by_column, by_row, dst_row
        run_by_formats(self, state, style, lambda kind: elementwise(*before, kind, *rest))

    MatrixUnit.perform_mvmul = remember_thread
    MatrixUnit.perform_mvmul_exact = perform_mvmul_exact
    MatrixUnit.perform_elementwise_exact = perform_elementwise_exact


PATCH = Patch(
    name="operand formats",
    rule="each operand of a product or a sum has the bits of its own format",
    source="Tenstorrent's ttsim 1.10 and its issue 14; against tt-isa-documentation, MVMUL.md and ELWMUL.md",
    targets={"framework.pe.tensix.backends.matrix": "4a61d363f9ab63dd"},
    apply=_apply,
)
