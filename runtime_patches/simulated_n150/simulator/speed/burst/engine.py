# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run time on a simulated chip, with the cores' instructions compiled wherever only cores have anything to do.

After each cycle that the simulator has executed as usual, the tiles that are awake are looked at. If all their units
but the RISC-V cores are idle by the simulator's own tests (`next_wake_cycle`), and no other tile, packet or watch is
due, then the following cycles consist of the cores' instructions alone, and `interpreter.run` executes them up to the
first that is more than arithmetic, a jump, or an access to memory, stream registers, or a queue's busy flag.

A core that waits for a value in memory is put to sleep (`framework.pe.rv.spin`) as soon as one lap of its loop is found
to change nothing; the simulator itself needs hundreds of cycles to find that.

Not used where the simulator has more to do at each instruction: with the cost model, tracing, or snooping on.
"""

from __future__ import annotations

import math

import numpy as np
from framework.memory.memory import MemoryStall
from framework.misc.ttsync import TTSync
from framework.pe.rv.spin import SPIN_IDLE, SPIN_PARKED
from framework.pe.tensix.frontend import TensixFrontend

from runtime_patches.simulated_n150.simulator.behaviour.waiting_loops import in_recorded_loop
from runtime_patches.simulated_n150.simulator.speed.burst import interpreter
from runtime_patches.simulated_n150.simulator.speed.burst.cores import NEVER, CompiledCore, compiled_core
from runtime_patches.simulated_n150.simulator.speed.strides import tick, watched_clocks
from runtime_patches.simulated_n150.simulator.speed.translator import LOAD, PUSH_BUFFER, is_full


class _Tile:
    """A tile: its cores, and the tests whether anything else on it has work."""

    def __init__(self, tile):
        cores = tile.get_baby_cores()
        self.tile = tile
        self.cores = [compiled_core(core) for core in cores]
        self.others = [unit.next_wake_cycle for unit in tile.get_clocks() if unit not in cores]


def _is_stalled(core) -> bool:
    """Return whether the core's next instruction cannot be taken while no unit of the tile does anything: a Tensix
    instruction whose queue is full, or a read that waits for the Tensix unit."""
    memory = core.visible_memory
    word = int.from_bytes(memory.read(core.words[interpreter.PC], 4), "little")
    if word & 3 != 3:
        _, thread = memory.memory_map.locate(PUSH_BUFFER)
        return isinstance(thread, TensixFrontend) and is_full(thread)
    if word & 0x7F != LOAD:
        return False
    address = core.words[word >> 15 & 31] + (word >> 20) - (0x1000 if word >> 31 else 0) & 0xFFFFFFFF
    place, part = memory.memory_map.locate(address)
    return isinstance(part, TTSync) and part.read(address - place.low, 4) is MemoryStall


class Burst:
    """Run one simulated device (a framework TT_Device)."""

    def __init__(self, device):
        self.device, self.pump, self._installed = device, device.clocks[0], device.run
        self._tiles: dict[int, _Tile] = {}
        self._of_clock: dict[int, object] = {}
        self._batches: dict[tuple, tuple] = {}
        self.cycles = 0  # executed compiled, of all

    def run(self, cycles: int) -> None:
        """Do as device.run(cycles)."""
        pump = self.pump
        if pump._threading_enabled or not (pump._striding_enabled and pump._stride_safe):
            self._installed(cycles)
            return
        end = pump.clock_tick_num + cycles
        if pump.quiescent_until is not None and pump.quiescent_until >= end:
            pump._skip_quiescent_window(cycles)
        else:
            self._run(end)

    def _run(self, end: int) -> None:
        """Do as MultiTileClock._run_strided, with bursts between its cycles."""
        pump = self.pump
        on_tick_wake = pump.on_tick_wake
        cycle, horizon = pump.clock_tick_num, None
        watched = watched_clocks(pump)
        while cycle < end:
            pump.current_cycle = cycle
            tick(watched, pump, cycle)
            following, horizon = cycle + 1, None
            if following < end:
                awake, due = [], math.inf
                for clock in watched:
                    if clock.awake:
                        awake.append(clock)
                    elif clock.wake_at is not None and clock.wake_at < due:
                        due = clock.wake_at
                if on_tick_wake is not None and (watch := on_tick_wake(cycle)) is not None:
                    due = min(due, watch)
                if not awake:
                    if due >= end:
                        following, horizon = end, due
                    else:
                        following = max(following, due)
                elif due > following:
                    following = self._burst(awake, following, int(min(end, due)))
            cycle = following
        pump.woken = None
        pump.clock_tick_num = pump.current_cycle = end
        for clock in pump._tile_clocks:
            clock.clock_tick_num = end
        pump.quiescent_until = horizon

    def _burst(self, clocks, cycle: int, limit: int) -> int:
        """Execute the cycles from `cycle` on that consist of cores' instructions, before `limit`; return the first that
        does not."""
        tiles = []
        for clock in clocks:
            tile = self._tile(clock)
            for when in tile.others:
                at = when(cycle - 1)
                if at is not None:
                    if at <= cycle:
                        return cycle
                    limit = min(limit, at)
            tiles.append(tile)
        running = []
        for tile in tiles:
            for one in tile.cores:
                core = one.core
                if not core.soft_active:
                    if not core.is_clock_idle():
                        return cycle  # about to start
                    continue
                spin = core._spin
                if (
                    not core.active
                    or core.rv_cost is not None
                    or core.csrs is not None
                    or core.snoop
                    or core.bus.enabled
                    or spin is None
                    or core._read_soft_reset() & core.soft_reset_mask
                ):
                    return cycle
                if spin.state != SPIN_IDLE and spin.state != SPIN_PARKED:
                    spin._abort(core, cycle - 1)
                spin.next_attempt = NEVER  # attempts are made here
                running.append(one)
        if not running:
            return cycle
        registers, reached = self._execute(running, cycle, limit)
        if (
            reached == cycle
            and (going := [one for one in running if one.core.ahead > cycle or not _is_stalled(one.core)]) != running
        ):
            if not going:
                return cycle
            running = going
            registers, reached = self._execute(running, cycle, limit)
        if reached > cycle:
            self.cycles += reached - cycle
            for i, one in enumerate(running):
                one.write(registers[i])
                spin = one.core._spin
                if spin.state == SPIN_PARKED:
                    spin.phase = (spin.phase + reached - cycle) % spin.loop_len
                    spin.last_cycle = reached - 1
                    # What it waited for may have happened in here, and be undone again.
                    if not in_recorded_loop(spin, one.core, spin.phase):
                        spin._unpark(one.core, reached - 1, "left its loop")
                        spin.next_attempt = NEVER
        for i, one in enumerate(running):
            if one.core._spin.state == SPIN_IDLE and reached >= max(one.attempt, one.core.ahead):
                one.park(reached - 1)
        for clock in clocks:
            at = clock.wake_probe(reached - 1)
            if at is None or at > reached:
                clock.awake, clock.wake_at = False, at
        return reached

    def _execute(self, running: list[CompiledCore], cycle: int, limit: int) -> tuple[np.ndarray, int]:
        """Step these cores in compiled code; return their registers then, and the first cycle that it did not take."""
        registers, spans, first, pending, starts = self._batch(running)
        for i, one in enumerate(running):
            one.read(registers[i])
            starts[i] = one.core.ahead
        return registers, int(interpreter.run_from(registers, spans, first, pending, starts, cycle, limit))

    def _tile(self, clock) -> _Tile:
        tile = self._tiles.get(id(clock))
        if tile is None:
            for found in self.device.tile_directory.values():
                if id(found.clock) not in self._tiles:
                    self._tiles[id(found.clock)] = _Tile(found)
            tile = self._tiles[id(clock)]
        return tile

    def _batch(self, running: list[CompiledCore]) -> tuple:
        """Return arrays for a set of cores, kept for the next time."""
        key = tuple(map(id, running))
        batch = self._batches.get(key)
        if batch is None:
            first = np.cumsum([0, *(len(one.spans) for one in running)])
            spans = np.concatenate([one.spans for one in running])
            count = len(running)
            batch = self._batches[key] = (
                np.zeros((count, interpreter.WORDS), np.int64),
                spans,
                first,
                np.zeros((count, 4), np.int64),
                np.zeros(count, np.int64),
            )
        return batch
