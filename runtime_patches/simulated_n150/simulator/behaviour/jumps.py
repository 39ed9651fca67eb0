# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""JALR whose base is its link register.

RISC-V manual, volume I, 2.5.1: the target is the base register's value plus the offset; the link is the address of the
following instruction. `jalr ra, ra` therefore jumps to where ra pointed. The simulator wrote the link first and jumped
to it; far calls (`auipc ra; jalr ra, ra`) went astray.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def _apply() -> None:
    from framework.pe.rv.isa.i_isa import RV_I_ISA

    installed = RV_I_ISA.handle_i_jalr.__func__

    def handle_i_jalr(cls, instr, register_file, memory_space, snoop):
        link, base = instr >> 7 & 31, instr >> 15 & 31
        if link == 0 or link != base:
            return installed(cls, instr, register_file, memory_space, snoop)
        offset = (instr >> 20) - (0x1000 if instr >> 31 else 0)
        target = register_file[base].read_uint() + offset & 0xFFFFFFFE
        following = register_file["pc"].read_uint() + 4 & 0xFFFFFFFF
        register_file[link].write(following.to_bytes(4, "little"))
        register_file["nextpc"].write(target.to_bytes(4, "little"))
        return True

    RV_I_ISA.handle_i_jalr = classmethod(handle_i_jalr)


PATCH = Patch(
    name="jump through the link register",
    rule="JALR reads its base register before it writes the link",
    source="RISC-V Instruction Set Manual, volume I, 2.5.1",
    targets={"framework.pe.rv.isa.i_isa.RV_I_ISA": "bb06ce85a185738c"},
    apply=_apply,
)
