# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Give the Ethernet tile its queues, stream and control registers, which the NoC reaches.

The simulator's tile has L1, a core and NoC interfaces only, and its NoC sees nothing but the L1. What is added, with
its rules, is in simulator/ethernet.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def _apply() -> None:
    from framework.device.tiles import EthTile

    from runtime_patches.simulated_n150.simulator.ethernet.tile import equip

    installed = EthTile.__init__

    def __init__(self, *arguments, **named):
        installed(self, *arguments, **named)
        equip(self)

    EthTile.__init__ = __init__


PATCH = Patch(
    name="Ethernet tile",
    rule="an Ethernet tile has transmit queues, stream registers, control and MAC registers, which the NoC reaches",
    source="tt-isa-documentation, WormholeB0/EthernetTile/BabyRISCV/README.md and EthernetTxRx.md",
    targets={"framework.device.tiles.EthTile": "72f35623797cfb7e"},
    apply=_apply,
)
