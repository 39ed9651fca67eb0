# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of a tile that have nothing to do are not ticked while other parts of it are busy.

Speed only. The simulator lets a whole tile sleep when nothing on it can change; a tile with one running core
ticks everything else on it, 4 cores that wait and 19 units of the Tensix coprocessor without an instruction. A
dispatch core is such a tile all the time, a data movement program makes one of every worker.

A waiting core: the simulator has proved that its loop changes nothing as long as the memory the loop reads stays
as it is, and can bring the core to the state it would have after any number of cycles (pe/rv/spin.py). So at the
core's turn in each cycle that memory is compared with what the loop was proved with. While equal, the core is left
alone; when it differs, the core is first brought to this very cycle and goes on. Registers, memory and cycles are
those of a core that was ticked all along.

The coprocessor: ticking a unit that calls itself idle changes nothing, and only instructions from the cores or
commands of the TDMA-RISC end that. When all units are idle the coprocessor is left alone until one of these
queues holds something.

TT_SIM_FIRMWARE_IDLE=0 switches both off, as it does the recogniser of waiting loops.
"""

from __future__ import annotations

from framework.device.clock import Clockable
from framework.memory.memory import AddressableMemory
from framework.misc.tile_ctrl import TensixTileControl
from framework.pe.rv.spin import SPIN_IDLE, SPIN_PARKED, firmware_idle_enabled_from_env

from runtime_patches.simulated_n150.simulator.patch import Patch

_SOFT_RESET = 0x1B0


def watch_views(watch) -> list[tuple[memoryview, bytes]] | None:
    """(view, contents it must have) of each part of memory a loop reads; None where one is not plain RAM."""
    views = []
    for component, offset, size, snapshot in watch:
        if not isinstance(component, AddressableMemory):
            return None
        views.append((memoryview(component.memory)[offset : offset + size], bytes(snapshot)))
    return views


def _unchanged(views) -> bool:
    for view, contents in views:  # noqa: SIM110 (called for each waiting core in each cycle)
        if view.tobytes() != contents:
            return False
    return True


class Coprocessor(Clockable):
    """All clocked units of a tile's Tensix coprocessor as one, in their order."""

    def __init__(self, coprocessor) -> None:
        self.units = coprocessor.getClocks()
        self._threads = [coprocessor.getThread(i) for i in range(3)]
        self._mover = coprocessor.getBackend().mover_unit
        self._resting, self._may_rest = False, firmware_idle_enabled_from_env()

    def _work_waits(self) -> bool:
        first, second, third = self._threads
        return bool(
            first.mop_instruction_fifo
            or second.mop_instruction_fifo
            or third.mop_instruction_fifo
            or self._mover.tdma_commands
        )

    def clock_tick(self, cycle_num: int) -> None:
        if self._resting:
            if not self._work_waits():
                return
            self._resting = False
        for unit in self.units:
            unit.clock_tick(cycle_num)
        if self._may_rest and not self._work_waits():
            self._resting = all(unit.next_wake_cycle(cycle_num) is None for unit in self.units)

    def next_wake_cycle(self, cycle_num: int) -> int | None:
        if self._resting and not self._work_waits():
            return None
        soonest = None
        for unit in self.units:
            when = unit.next_wake_cycle(cycle_num)
            if when is not None and (soonest is None or when < soonest):
                soonest = when
        return soonest


def _apply() -> None:
    from framework.device.tiles import TensixTile
    from framework.pe.rv.babyriscv import BabyRISCV
    from framework.pe.rv.spin import FirmwareSpin

    installed, park = BabyRISCV.clock_tick, FirmwareSpin._park

    def _park(self, core, cycle):
        park(self, core, cycle)
        core._resting_views = watch_views(self.watch) if core.spin_parked else None

    def clock_tick(self, cycle_num):
        source = self._soft_reset_src
        if source is None or source[1] != _SOFT_RESET or type(source[0]) is not TensixTileControl:
            installed(self, cycle_num)
            return
        word = source[0].RISCV_DEBUG_REG_SOFT_RESET_0
        if word is not self._reset_word:
            self._held = int.from_bytes(word, "little") & self.soft_reset_mask != 0
            self._reset_word = word
        spin = self._spin
        if self._held or not self.soft_active or spin is None:
            installed(self, cycle_num)
        elif spin.state == SPIN_IDLE:
            self._base_tick(cycle_num)
            if cycle_num >= spin.next_attempt:
                spin.checkpoint(self, cycle_num)
        elif spin.state == SPIN_PARKED:
            views = self._resting_views
            if views is None or self.bus.enabled or self.snoop:
                spin.tick(self, cycle_num)
            elif not _unchanged(views):
                spin.tick(self, cycle_num)
                if self.spin_parked:
                    spin._unpark(self, cycle_num, "watched value changed")
        else:
            spin.tick(self, cycle_num)

    def get_clocks(self):
        if self.__dict__.get("_coprocessor_clock") is None:  # one for the clock and for those who ask it
            self._coprocessor_clock = Coprocessor(self.tensix_coprocessor)
        cores = [self.brisc, self.ncrisc, self.trisc0, self.trisc1, self.trisc2]
        return [self._coprocessor_clock, self.tdma, *cores, self.noc0_router, self.noc1_router]

    BabyRISCV._reset_word = BabyRISCV._resting_views = None
    BabyRISCV._held = False
    BabyRISCV.clock_tick = clock_tick
    FirmwareSpin._park = _park
    TensixTile.get_clocks = get_clocks


PATCH = Patch(
    name="resting parts",
    rule="speed only: waiting cores and an idle coprocessor are not ticked while the rest of their tile is busy",
    source="the installed simulator",
    targets={
        "framework.pe.rv.babyriscv.BabyRISCV": "a366b38c083eba28",
        "framework.pe.rv.spin.FirmwareSpin": "645b50158aed7f35",
        "framework.device.tiles.TensixTile": "0ef25b6251001b83",
        "framework.pe.tensix.frontend": "ceb004603f01729d",
        "framework.pe.tensix.backends.mover": "e02aac68af4db15b",
        "framework.misc.tile_ctrl.TensixTileControl": "83031d0291aa02f4",
    },
    apply=_apply,
)
