# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Put a core that waits in a loop to sleep only where its next step is the loop's.

Rule: a load gives the value that was stored last. A core that reads a flag in a loop sees the flag's new value on its
next reading, whatever it was doing when the flag was written. Source: tt-isa-documentation,
WormholeB0/TensixTile/BabyRISCV/MemoryOrdering.md.

The simulator puts a core to sleep when two laps of its loop changed nothing, and remembers the memory the loop reads,
to wake the core when that differs. It remembers the memory at the second lap's start and did not look at the core's
registers at its end: a value stored after the first lap's load was taken for the one waited with. When the load is the
loop's last instruction, the second lap ends with the new value in a register, one step before the branch that leaves
the loop; the core slept for ever, the memory being what was remembered. The same happens to a sleeping core that was
awake for a moment, read a value that was there just then, and fell asleep again. So the registers must be those of the
recorded loop, when the core is first put to sleep and each time it is asked whether it may go on sleeping.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def in_recorded_loop(spin, core, phase: int) -> bool:
    """Return whether the core stands where the recorded loop stands at tick `phase`: program counter and registers."""
    counter, registers = spin.traj[phase]
    return core.pc_register.value == counter and spin._regs_snapshot(core) == registers


def _apply() -> None:
    from framework.pe.rv.spin import FirmwareSpin

    park, wake_check = FirmwareSpin._park, FirmwareSpin.wake_check

    def _park(self, core, cycle):
        if in_recorded_loop(self, core, 0):
            park(self, core, cycle)
        else:
            self._abort(core, cycle)

    def checked_wake(self, core, cycle):
        if not in_recorded_loop(self, core, self.phase):
            self._unpark(core, cycle, "not in the recorded loop")
            return cycle + 1
        return wake_check(self, core, cycle)

    FirmwareSpin._park = _park
    FirmwareSpin.wake_check = checked_wake


PATCH = Patch(
    name="waiting loops",
    rule="a waiting core sleeps only while its registers are the recorded loop's, so no stored value is missed",
    source="tt-isa-documentation, WormholeB0/TensixTile/BabyRISCV/MemoryOrdering.md",
    targets={"framework.pe.rv.spin.FirmwareSpin": "645b50158aed7f35"},
    apply=_apply,
)
