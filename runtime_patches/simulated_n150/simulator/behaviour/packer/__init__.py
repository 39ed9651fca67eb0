# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The packers: every output format, ZeroWrite, ReLU, accumulation in L1."""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def _apply() -> None:
    import framework.pe.tensix.backend as backend

    from runtime_patches.simulated_n150.simulator.behaviour.packer.unit import Packer

    backend.PackerUnit = Packer


PATCH = Patch(
    name="packers",
    rule="block floats with one exponent for 16 datums, 8- and 16-bit integers, ReLU, accumulation, zero writes",
    source="tt-isa-documentation, Packers/FormatConversion.md and OutputAddressGenerator.md",
    targets={"framework.pe.tensix.backends.packer": "01ebede5243f0954"},
    apply=_apply,
)
