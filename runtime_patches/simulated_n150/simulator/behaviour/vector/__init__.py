# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The vector unit (SFPU): modes that were missing or wrong, and lanes handled together."""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def _apply() -> None:
    import framework.pe.tensix.backend as backend

    from runtime_patches.simulated_n150.simulator.behaviour.vector.macro import MacroInstructions

    backend.VectorUnit = MacroInstructions


PATCH = Patch(
    name="vector unit",
    rule="every SFPU instruction and mode of the functional models, on all 32 lanes together",
    source="tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor, VectorUnit.md and the SFP* pages",
    targets={
        "framework.pe.tensix.backends.vector": "dd0cac9e6e404f99",
        "framework.pe.tensix.registers.LReg": "14a44f105188c2c3",
    },
    apply=_apply,
)
