# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""SETADCZW sets the Z and the W address counters.

Rule: tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor/SETADCZW.md, functional model: the four enable bits
set channel 0's Z and W and channel 1's Z and W, each with its carriage-return copy. The simulator set Z again in place
of W, and W's copy in place of Z's, so a command meant to keep Z lost it (tilizing float32 wrote the lower half of a
tile over its upper half).
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def set_zw(counter, enables: int, values: tuple[int, int, int, int]) -> None:
    """Set those of the counters that `enables` names. values: Z and W of channel 0, Z and W of channel 1."""
    for bit, (channel, name) in enumerate(((0, "Z"), (0, "W"), (1, "Z"), (1, "W"))):
        if enables >> bit & 1:
            setattr(counter.Channel[channel], name, values[bit])
            setattr(counter.Channel[channel], f"{name}_Cr", values[bit])


def _apply() -> None:
    from framework.pe.tensix.backends.misc import MiscellaneousUnit

    def handle_setadczw(self, instruction_info, issue_thread, instr_args):
        other_thread = instr_args["Ch1_Y"] >> 3 & 3
        counters = self.backend.getADC(other_thread - 1 if other_thread else issue_thread)
        values = (instr_args["Ch0_X"], instr_args["Ch0_Y"], instr_args["Ch1_X"], instr_args["Ch1_Y"] & 7)
        for bit, counter in enumerate((counters.Unpacker[0], counters.Unpacker[1], counters.Packers)):
            if instr_args["CntSetMask"] >> bit & 1:
                set_zw(counter, instr_args["BitMask"], values)

    MiscellaneousUnit.handle_setadczw = handle_setadczw


PATCH = Patch(
    name="Z and W address counters",
    rule="SETADCZW sets Z and W of both channels with their carriage-return copies",
    source="tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor/SETADCZW.md",
    targets={"framework.pe.tensix.backends.misc.MiscellaneousUnit": "28e4fab48ebcaa95"},
    apply=_apply,
)
