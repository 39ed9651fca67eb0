# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of a tile that have nothing to do are not ticked while other parts of it are busy.

The simulator lets a whole tile sleep when nothing on it can change; a tile with one running core ticks everything else
on it, 4 cores that wait and 19 units of the Tensix coprocessor without an instruction. A dispatch core is such a tile
all the time, and a data movement program makes one of every worker.

A waiting core: the simulator has proved that its loop changes nothing as long as the memory the loop reads stays as it
is (stream registers, where kernels wait for pages of a circular buffer, count as memory here), and can bring the core
to the state it would have after any number of cycles (pe/rv/spin.py). So at the core's turn in each cycle that memory
is compared with what the loop was proved with. While equal, the core is left alone; when it differs, the core is first
brought to this very cycle and goes on. Registers, memory and cycles are those of a core that was ticked all along.

The coprocessor: see coprocessor.py.

A running core: compiled code executes its instruction of this cycle (burst/interpreter.py), and with it the following
ones that work on registers alone, or on the memory that only this core can reach: nobody sees when they are executed.
The core then does nothing for as many cycles as these would have taken, and a tile of such cores sleeps until then; so
each instruction that others can see has its own cycle and its turn as before. A core that is reset in between has
executed some more of its own instructions, of which nothing is left after the reset but words in its own memory, which
a start fills. What compiled code does not know, such as an instruction for the Tensix unit, is executed in Python
(core.py). A core whose Tensix thread holds as many instructions as it may, or which waits until that thread is done, is
left alone until the coprocessor has done something about it.

With TT_SIM_FIRMWARE_IDLE=0, which switches the recogniser of waiting loops off, no core and no coprocessor rests.
"""

from __future__ import annotations

from framework.device.clock import TileClock
from framework.misc.tile_ctrl import TensixTileControl
from framework.pe.rv.spin import SPIN_IDLE, SPIN_PARKED

from runtime_patches.simulated_n150.simulator.behaviour.stream_registers import watched_words as watched_streams
from runtime_patches.simulated_n150.simulator.patch import Patch
from runtime_patches.simulated_n150.simulator.speed.burst import interpreter
from runtime_patches.simulated_n150.simulator.speed.burst.cores import (
    compiled_core,
    new_table,
    own_memory,
    watched_words,
)
from runtime_patches.simulated_n150.simulator.speed.coprocessor import Coprocessor
from runtime_patches.simulated_n150.simulator.speed.core import is_plain, step

_SOFT_RESET = 0x1B0


def _rests(core) -> bool:
    """Return whether a parked core would go on waiting, and nobody looks at what it executes."""
    row = core.row
    return (
        row[interpreter.MODE] == interpreter.PARKED
        and interpreter.unchanged(row[interpreter.WATCHED_AT], row[interpreter.WATCHED])
        and not core.bus._enabled
        and not core.snoop
    )


def _is_refused(core) -> bool:
    """Return whether a core's instruction, which the Tensix unit has refused, would be refused again, and nobody looks
    at what the core executes."""
    if core.refused():
        return not core.bus._enabled and not core.snoop
    core.refused = None
    return False


class TensixClock(TileClock):
    """A Tensix tile's clock that calls only the parts that have something to do, in their order."""

    awake: bool
    wake_at: int | None
    parts: tuple  # coprocessor, TDMA-RISC, cores, NoC interfaces

    def bind(self, coprocessor, tdma, cores, interfaces) -> None:
        """Take these parts of a tile."""
        self.parts = coprocessor, tdma, cores, interfaces
        self._table = new_table(cores)
        self._rows, self._count = self._table.ctypes.data, len(cores)
        self._bus = cores[0].bus
        # The tile's control, once all cores have seen its word of resets; that word and the other one they look at.
        self._control = self._reset_word = self._override = None
        self._refused: list = []  # cores whose instruction the Tensix unit has refused
        self.others = [part.next_wake_cycle for part in (coprocessor, tdma, *interfaces)]
        coprocessor.may_be_held = True

    def wake(self) -> None:
        self.parts[0].held = False
        super().wake()

    def clock_tick(self, cycle: int) -> None:
        if not self.awake:
            wake_at = self.wake_at
            if wake_at is None or cycle < wake_at:
                self.dormant_cycles += 1
                return
            self.awake = True
        coprocessor, tdma, cores, interfaces = self.parts
        if not coprocessor.held and (not coprocessor._resting or coprocessor._work_waits()):
            coprocessor.clock_tick(cycle)
            if self._refused:
                self._ask_again()
        if tdma.command_queue:
            coprocessor.held = False
            tdma.clock_tick(cycle)
        known = self._tick_cores(cores, cycle)
        for interface in interfaces:
            if (
                interface.noc_requests_to_handle
                or interface.noc_new_requests_to_handle
                or interface.next_arrival is not None
            ):
                coprocessor.held = False
                interface.clock_tick(cycle)
        if known == interpreter.ONE_RUNS:
            return
        if known == interpreter.UNKNOWN and any(_executes(core, cycle + 1) for core in cores):
            return
        if not (coprocessor._resting or coprocessor.held or coprocessor._costed):
            return  # if none of its units has anything to do, it rests after the next cycle
        wake_at = self.wake_probe(cycle)
        if wake_at is None or wake_at > cycle + 1:
            self.awake, self.wake_at = False, wake_at

    def knows_cores(self) -> bool:
        """Return whether the cores' rows say all there is to know of them."""
        control = self._control
        return (
            control is not None and control.RISCV_DEBUG_REG_SOFT_RESET_0 is self._reset_word and not self._bus._enabled
        )

    def next_wake_of_cores(self, cycle: int) -> int:
        """Do as interpreter.next_wake."""
        return interpreter.next_wake(self._rows, self._count, cycle)

    def _tick_cores(self, cores, cycle: int) -> int:
        """Tick the cores for one cycle; return what is known of them in the next one."""
        control, number, count = self._control, 0, self._count
        if control is not None and not self._bus._enabled:
            while (
                control.RISCV_DEBUG_REG_SOFT_RESET_0 is self._reset_word
                and control.RISCV_DEBUG_REG_TRISC_PC_BUF_OVERRIDE is self._override
            ):
                number = interpreter.tick_cores(self._rows, count, number, cycle)
                if number >= count:
                    return number - count
                core = cores[number]
                self.parts[0].held = False
                row, core.refused = core.row, None
                if row[interpreter.MODE] != interpreter.RUNNING or cycle >= row[interpreter.ATTEMPT]:
                    core.clock_tick(cycle)
                elif not step(core, cycle):
                    core._base_tick(cycle)
                if core.refused is not None and row[interpreter.MODE] == interpreter.RUNNING:
                    row[interpreter.MODE] = interpreter.REFUSED
                    self._refused.append(core)
                number += 1
        # A core may have been reset, or somebody looks at what they execute.
        self.parts[0].held = False
        for core in cores[number:]:
            if (
                cycle < core.ahead
                or (core.refused is not None and _is_refused(core))
                or (core.spin_parked and _rests(core))
            ) and core._soft_reset_src[0].RISCV_DEBUG_REG_SOFT_RESET_0 is core._reset_word:
                continue
            core.clock_tick(cycle)
        self._control = _reset_control(cores)
        if self._control is not None:
            self._reset_word = self._control.RISCV_DEBUG_REG_SOFT_RESET_0
            self._override = self._control.RISCV_DEBUG_REG_TRISC_PC_BUF_OVERRIDE
        return interpreter.UNKNOWN

    def _ask_again(self) -> None:
        """Let those cores go on whose instruction the Tensix unit, which has done something, refuses no more."""
        still = []
        for core in self._refused:
            if core.row[interpreter.MODE] != interpreter.REFUSED:
                continue  # reset meanwhile
            if core.refused is not None and core.refused():
                still.append(core)
            else:
                core.refused = None
                core.row[interpreter.MODE] = interpreter.RUNNING
        self._refused = still


def _executes(core, cycle: int) -> bool:
    """Return whether a core may have something to execute in the next cycle; one that the Tensix unit has refused has
    nothing before that unit does."""
    return (
        core.soft_active
        and core.ahead <= cycle
        and not core.spin_parked
        and core.row[interpreter.MODE] != interpreter.REFUSED
    )


def _reset_control(cores):
    """Return the tile's control whose reset register these cores have seen as it is now, or None."""
    source = cores[0]._soft_reset_src
    if source is None or source[1] != _SOFT_RESET or type(source[0]) is not TensixTileControl:
        return None
    word = source[0].RISCV_DEBUG_REG_SOFT_RESET_0
    seen = all(core._soft_reset_src == source and core._reset_word is word for core in cores)
    return source[0] if seen else None


def _apply() -> None:
    from framework.device.tiles import TensixTile
    from framework.device.tt_device import TTDeviceTile
    from framework.pe.rv import spin as spins
    from framework.pe.rv.babyriscv import BabyRISCV
    from framework.pe.rv.spin import FirmwareSpin
    from framework.pe.tensix.backends.vector import VectorUnit

    installed = BabyRISCV.clock_tick
    park, unpark, reset = FirmwareSpin._park, FirmwareSpin._unpark, FirmwareSpin.on_reset
    wake_of_core, bind = BabyRISCV.next_wake_cycle, TensixTile._bind_clock

    def _park(self, core, cycle):
        park(self, core, cycle)
        watched = watched_words(self.watch, own_memory(core)) if core.spin_parked else None
        core._watched, row = watched, core.row
        if watched is None:
            row[interpreter.MODE] = interpreter.BY_PYTHON
        else:
            row[interpreter.WATCHED_AT], row[interpreter.WATCHED] = watched.ctypes.data, len(watched)
            row[interpreter.MODE] = interpreter.PARKED

    def _unpark(self, core, cycle, reason):
        core.row[interpreter.MODE] = interpreter.BY_PYTHON
        unpark(self, core, cycle, reason)

    def on_reset(self, core):
        core.row[interpreter.MODE] = interpreter.BY_PYTHON
        reset(self, core)

    def clock_tick(self, cycle_num):
        source = self._soft_reset_src
        if source is None or source[1] != _SOFT_RESET or type(source[0]) is not TensixTileControl:
            installed(self, cycle_num)
            return
        word = source[0].RISCV_DEBUG_REG_SOFT_RESET_0
        if word is not self._reset_word:
            self.refused = None
            self._held = int.from_bytes(word, "little") & self.soft_reset_mask != 0
            self._reset_word = word
        spin = self._spin
        if self._held or not self.soft_active or spin is None:
            self.ahead = 0
            installed(self, cycle_num)
            off = self._held and not self.soft_active
            self.row[interpreter.MODE] = interpreter.IN_RESET if off else interpreter.BY_PYTHON
        elif spin.state == SPIN_IDLE:
            if cycle_num < self.ahead:
                return  # executed already
            costed = self.rv_cost is not None
            if not is_plain(self) or self.words is None or (costed and cycle_num >= spin.next_attempt):
                self.row[interpreter.MODE] = interpreter.BY_PYTHON
                self._base_tick(cycle_num)
                if cycle_num >= spin.next_attempt:
                    spin.checkpoint(self, cycle_num)
                    if costed:
                        # It compares where the core is with where it was at the last look. A core that runs ahead is
                        # always at a load then: not at two of them in turn, for ever.
                        spin.next_attempt += (cycle_num * 40503 >> 4) % 64
                return
            compiled = compiled_core(self)
            if costed:
                compiled.attempt = spin.next_attempt  # its costs are a part of what has to repeat
            elif cycle_num >= compiled.attempt:
                compiled.park(cycle_num - 1)
                if self.spin_parked:
                    return  # this cycle is one of its loop
            self.row[interpreter.MODE] = interpreter.RUNNING
            if done := compiled.run_ahead(cycle_num):
                self.ahead = cycle_num + done
            elif not step(self, cycle_num):
                self._base_tick(cycle_num)
        elif spin.state == SPIN_PARKED:
            row = self.row
            if row[interpreter.MODE] != interpreter.PARKED or self.bus._enabled or self.snoop:
                spin.tick(self, cycle_num)
            elif not interpreter.unchanged(row[interpreter.WATCHED_AT], row[interpreter.WATCHED]):
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

    def next_wake_of_core(self, cycle_num):
        ahead = self.ahead
        if ahead > cycle_num + 1 and self.soft_active and not self.spin_parked:
            return ahead
        if self.row[interpreter.MODE] == interpreter.REFUSED:
            return None  # the Tensix unit's is its own
        # A core that rests executes nothing until it is woken, so it is where its loop was left: only its own tick
        # brings it to where it would be.
        if self.row[interpreter.MODE] == interpreter.PARKED:
            return None if _rests(self) else cycle_num + 1
        return wake_of_core(self, cycle_num)

    def next_wake_of_tile(self, cycle_num):
        following, clock = cycle_num + 1, self.clock
        if type(clock) is TensixClock and clock.knows_cores():
            soonest = clock.next_wake_of_cores(cycle_num)
            if soonest == following:
                return following
            if soonest >= 0:
                soonest = soonest or None
                for probe in clock.others:
                    when = probe(cycle_num)
                    if when is not None and (soonest is None or when < soonest):
                        soonest = when
                        if when <= following:
                            return following
                return soonest
        for core in self.get_baby_cores():
            if _executes(core, following):
                return following
        return TTDeviceTile.next_wake_cycle(self, cycle_num)

    def bind_clock(self, tile_clock):
        bind(self, tile_clock)
        if not tile_clock.always_items and tile_clock.on_tick is None and type(tile_clock) is TileClock:
            tile_clock.__class__ = TensixClock
            tile_clock.bind(
                self._coprocessor_clock,
                self.tdma,
                (self.brisc, self.ncrisc, self.trisc0, self.trisc1, self.trisc2),
                (self.noc0_router, self.noc1_router),
            )

    resolve_ram = spins._resolve_plain_ram

    def resolve(memory, address, size):
        return resolve_ram(memory, address, size) or watched_streams(memory, address, size)

    spins._resolve_plain_ram = resolve
    VectorUnit._waiting = ()  # of a unit without SFPLOADMACRO

    def ahead(self):
        return self.row[interpreter.AHEAD]

    def set_ahead(self, cycle):
        self.row[interpreter.AHEAD] = cycle

    BabyRISCV._reset_word = None
    BabyRISCV.ahead = property(ahead, set_ahead)  # the first cycle in which it has something to execute
    BabyRISCV._held = False
    BabyRISCV.clock_tick = clock_tick
    FirmwareSpin._park, FirmwareSpin._unpark, FirmwareSpin.on_reset = _park, _unpark, on_reset
    TensixTile.get_clocks = get_clocks
    TensixTile.next_wake_cycle = next_wake_of_tile
    TensixTile._bind_clock = bind_clock
    BabyRISCV.next_wake_cycle = next_wake_of_core


PATCH = Patch(
    name="resting parts",
    rule="waiting cores and idle units are not ticked while the rest of their tile is busy",
    source="the installed simulator",
    targets={
        "framework.pe.rv.babyriscv.BabyRISCV": "a366b38c083eba28",
        "framework.pe.rv.spin.FirmwareSpin": "645b50158aed7f35",
        "framework.device.clock.TileClock": "910a890a091811c7",
        "framework.device.tt_device.TTDeviceTile": "67cffe73397b7bae",
        "framework.misc.tile_ctrl": "d8ea066f7c1cdff0",
        "framework.network.tt_noc.NUI": "2d73163b12c89566",
        "framework.pe.tensix.tdma": "b3c563af9ca5d482",
        "framework.device.tiles.TensixTile": "0ef25b6251001b83",
        "framework.pe.tensix.frontend": "ceb004603f01729d",
        "framework.pe.tensix.backends.backend_base.TensixBackendUnit": "c9719e08830dc0c1",
        "framework.pe.tensix.backends.config": "d1113167323e06db",
        "framework.pe.tensix.backends.mover": "e02aac68af4db15b",
        "framework.pe.tensix.backends.sync": "6080bdde71ca4f78",
        "framework.pe.tensix.backends.thcon": "121a63eadcaf8f20",
        "framework.pe.tensix.backends.unpacker": "a53b680bcd4c9e4d",
        "framework.misc.tile_ctrl.TensixTileControl": "83031d0291aa02f4",
    },
    apply=_apply,
)
