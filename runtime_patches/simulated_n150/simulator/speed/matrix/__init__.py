# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The matrix unit (FPU): whole instructions at once, and address modes remembered."""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def _apply() -> None:
    import framework.pe.tensix.backend as backend

    from runtime_patches.simulated_n150.simulator.speed.matrix.counters import Counters
    from runtime_patches.simulated_n150.simulator.speed.matrix.unit import MatrixUnit

    backend.MatrixUnit = MatrixUnit
    backend.RWC = Counters


PATCH = Patch(
    name="matrix unit",
    rule="an instruction's rows are computed, copied and cleared together",
    source="the installed simulator",
    targets={
        "framework.pe.tensix.backends.matrix": "4a61d363f9ab63dd",
        "framework.pe.tensix.registers.DstRegister": "4ef43f73f4e1615b",
        "framework.pe.tensix.registers.SrcRegister": "ac20a23d77aa0c81",
        "framework.pe.tensix.util.DataFormatConversions": "18effb251302d346",
        "framework.pe.tensix.backend.TensixBackend": "2da3cdbe38450bc1",
        "framework.pe.tensix.backend.RWC": "53f1334edf22f8a8",
    },
    apply=_apply,
)
