# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Time on a simulated chip, with the cores' instructions compiled wherever only cores have anything to do.

After each cycle that the simulator has executed as usual, the tiles that are awake are looked at. If all their units
but the RISC-V cores are idle by the simulator's own tests (`next_wake_cycle`), and no other tile, packet or watch is
due, then the following cycles consist of the cores' instructions alone, and `interpreter.run` executes them up to the
first that is more than arithmetic, a jump, or an access to memory, stream registers, or a queue's busy flag.

A core that waits for a value in memory is put to sleep (`framework.pe.rv.spin`) as soon as one lap of its loop is
found to change nothing; the simulator itself needs hundreds of cycles to find that.

Not used where the simulator has more to do at each instruction: with the cost model, tracing, or snooping on.
"""

from __future__ import annotations

import math

import numpy as np
from framework.memory.memory import AddressableMemory, MemoryStall
from framework.misc.tile_ctrl import TensixTileControl
from framework.misc.ttsync import TTSync
from framework.network.tt_noc import NUI, NoCOverlay
from framework.pe.rv.spin import SPIN_IDLE, SPIN_PARKED
from framework.pe.tensix.frontend import CORE_PUSH_INFLIGHT_BOUND, TensixFrontend, WaitGate
from framework.pe.tensix.util import TensixInstructionDecoder

from runtime_patches.simulated_n150.simulator.burst import interpreter
from runtime_patches.simulated_n150.simulator.ethernet.queues import TransmitQueue
from runtime_patches.simulated_n150.simulator.patches.core import numbered_registers
from runtime_patches.simulated_n150.simulator.patches.stream_registers import StreamRegisters, as_array
from runtime_patches.simulated_n150.simulator.patches.waiting_loops import in_recorded_loop

_NEVER = 1 << 62
_PUSH_BUFFER, _LOAD = 0xFFE40000, 0x03
_LONGEST_LOOP = 96
_ATTEMPT_EVERY, _ATTEMPT_AT_MOST = 50, 3200  # cycles between two looks whether a core waits


class _Core:
    """A core as the interpreter sees it."""

    def __init__(self, core):
        self.core = core
        self.words: list[int] = numbered_registers(core) if core.words is None else core.words
        self.spans = np.array(_spans(core.visible_memory), dtype=np.int64)
        self.attempt, self.interval = 0, _ATTEMPT_EVERY

    def read(self, row: np.ndarray) -> None:
        row[:] = self.words[: interpreter.WORDS]

    def write(self, row: np.ndarray) -> None:
        words = row.tolist()
        # The next program counter is as a finished instruction leaves it.
        self.words[1:] = [*words[1:], words[interpreter.PC]]


def _spans(memory) -> list[tuple[int, int, int, int]]:
    """Rows for the interpreter of what of a core's memory it may reach; local memory and L1 first."""
    found = []
    for place, part in memory.memory_map.items():
        if isinstance(part, AddressableMemory):
            found.append(
                (place.low, place.low + part.getSize() - 1, part.memory.ctypes.data, interpreter.RAM)
            )
        elif isinstance(part, (StreamRegisters, NoCOverlay)):
            rows = as_array(part)
            found.append(
                (place.low, place.low + 0x1000 * len(rows) - 1, rows.ctypes.data, interpreter.STREAMS)
            )
        elif isinstance(part, NUI):
            if not isinstance(part.nui_counters, _Counters):
                share_registers(part)
            values = part.nui_counters.shared
            found.append((place.low, place.low + 0xFFFF, values.ctypes.data, interpreter.NOC))
        elif isinstance(part, TransmitQueue):
            found.append((place.low, place.low + 0xFFF, part.state.ctypes.data, interpreter.TRANSMIT))
        elif isinstance(part, TensixTileControl):
            found.append((place.low, place.low + 0xFFF, 0, interpreter.CLOCK))
    return sorted(found, key=lambda span: span[3])


def share_registers(interface) -> None:
    """Keep a NoC interface's counters and command registers where compiled code can reach them."""
    interface.nui_counters = _Counters(interface.nui_counters)
    for number, initiator in enumerate(interface.request_initiators):
        first = interpreter.NOC_COMMANDS + number * interpreter.NOC_COMMAND_WORDS
        words = memoryview(interface.nui_counters.shared)[first : first + interpreter.NOC_COMMAND_WORDS]
        for index, name in enumerate(_COMMAND_REGISTERS):
            words[index] = initiator.__dict__.pop(name)
        initiator._words = words
        initiator.__class__ = _Initiator


class _Counters(NUI.NUICounters):
    """A NoC interface's counters where compiled code can read them. They count whole words; the simulator's own count
    fractions of words for reads of a few bytes.
    """

    def __init__(self, installed: NUI.NUICounters):
        self.shared = np.zeros(interpreter.NOC_COMMANDS + 4 * interpreter.NOC_COMMAND_WORDS, np.int64)
        self.shared[: len(installed.counters)] = installed.counters
        self.counters = memoryview(self.shared)

    def increment(self, index, value=1):
        counters, value = self.counters, int(value)
        for one in index if isinstance(index, list) else (index,):
            counters[one] += value

    def decrement(self, index, value=1):
        self.increment(index, -int(value))


# A command buffer's registers in the order of their addresses, four bytes each.
_COMMAND_REGISTERS = (
    "target_addr_low", "target_addr_mid", "target_addr_hi", "ret_addr_low", "ret_addr_mid", "ret_addr_hi",
    "packet_tag", "ctrl", "at_len_be", "at_data", "cmd_ctrl",
)  # fmt: skip


def _word(index: int) -> property:
    def read(self):
        return self._words[index]

    def write(self, value):
        self._words[index] = value

    return property(read, write)


class _Initiator(NUI.RequestInitiator):
    """A command buffer whose registers lie in an array."""


for _index, _name in enumerate(_COMMAND_REGISTERS):
    setattr(_Initiator, _name, _word(_index))


class _Tile:
    """A tile: its cores, and the tests whether anything else on it has work."""

    def __init__(self, tile):
        cores = tile.get_baby_cores()
        self.tile = tile
        self.cores = [_Core(core) for core in cores]
        self.others = [_probe(unit) for unit in tile.get_clocks() if unit not in cores]


def _probe(unit):
    """The unit's test for when it next has work; a wait gate that holds its thread back has none.

    Each cycle it looks whether what it waits for has happened, which only another unit or a store to a register can
    bring about, and neither is part of a burst.
    """
    installed = unit.next_wake_cycle
    return (
        (lambda cycle: None if _is_held(unit) else installed(cycle))
        if isinstance(unit, WaitGate)
        else installed
    )


def _is_held(gate) -> bool:
    """Whether a cycle of the gate changes nothing until another unit, or a store to a register, does."""
    if gate.mutex_stall or gate.backend_enforced_stall:
        return False
    if gate.perf_counters is not None and gate.perf_counters.instrn_running:
        return False  # a cycle counts
    instruction = gate.frontend.inspect_wait_gate_instruction()
    if gate.latchedWaitInstruction is not None:
        return (gate.latch_wait or instruction is None) and not gate.check_for_wait_condition_met()
    if gate.latch_wait or instruction is None:
        return False
    known = TensixInstructionDecoder.getInstructionInfo(instruction)
    return known["ex_resource"] == "MATH" and gate.whichSrcBankBlocksFPUInstruction(known["name"]) is not None


def _is_stalled(core) -> bool:
    """Whether the core's next instruction cannot be taken while no unit of the tile does anything: a Tensix
    instruction whose queue is full, or a read that waits for the Tensix unit.
    """
    memory = core.visible_memory
    word = int.from_bytes(memory.read(core.words[interpreter.PC], 4), "little")
    if word & 3 != 3:
        _, thread = memory.memory_map.locate(_PUSH_BUFFER)
        return isinstance(thread, TensixFrontend) and thread.inflight_count() >= CORE_PUSH_INFLIGHT_BOUND
    if word & 0x7F != _LOAD:
        return False
    address = core.words[word >> 15 & 31] + (word >> 20) - (0x1000 if word >> 31 else 0) & 0xFFFFFFFF
    place, part = memory.memory_map.locate(address)
    return isinstance(part, TTSync) and part.read(address - place.low, 4) is MemoryStall


class Burst:
    """Runs one simulated device (a framework TT_Device)."""

    def __init__(self, device):
        self.device, self.pump, self._installed = device, device.clocks[0], device.run
        self._tiles: dict[int, _Tile] = {}
        self._of_clock: dict[int, object] = {}
        self._batches: dict[tuple, tuple] = {}
        self.cycles = 0  # executed compiled, of all

    def run(self, cycles: int) -> None:
        """As device.run(cycles)."""
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
        """MultiTileClock._run_strided, with bursts between its cycles."""
        pump = self.pump
        clocks, on_tick, on_tick_wake = pump._tile_clocks, pump.on_tick, pump.on_tick_wake
        cycle, horizon = pump.clock_tick_num, None
        while cycle < end:
            pump.current_cycle = cycle
            for clock in clocks:
                if clock.awake or (clock.wake_at is not None and clock.wake_at <= cycle):
                    clock.clock_tick(cycle)
            if on_tick is not None:
                on_tick(cycle)
            following, horizon = cycle + 1, None
            if following < end:
                awake, due = [], math.inf
                for clock in clocks:
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
        pump.clock_tick_num = pump.current_cycle = end
        for clock in clocks:
            clock.clock_tick_num = end
        pump.quiescent_until = horizon

    def _burst(self, clocks, cycle: int, limit: int) -> int:
        """Execute the cycles from `cycle` on that are all cores', before `limit`; the first that is not."""
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
                spin.next_attempt = _NEVER  # attempts are made here
                running.append(one)
        if not running:
            return cycle
        registers, reached = self._execute(running, cycle, limit)
        if (
            reached == cycle
            and (going := [one for one in running if one.core.ahead > cycle or not _is_stalled(one.core)])
            != running
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
                        spin.next_attempt = _NEVER
        for i, one in enumerate(running):
            if one.core._spin.state == SPIN_IDLE and reached >= max(one.attempt, one.core.ahead):
                self._park(one, registers[i], reached - 1)
        for clock in clocks:
            at = clock.wake_probe(reached - 1)
            if at is None or at > reached:
                clock.awake, clock.wake_at = False, at
        return reached

    def _execute(self, running: list[_Core], cycle: int, limit: int) -> tuple[np.ndarray, int]:
        """Step these cores in compiled code; their registers then, and the first cycle that it did not take."""
        registers, spans, first, pending, starts = self._batch(running)
        for i, one in enumerate(running):
            one.read(registers[i])
            starts[i] = one.core.ahead
        return registers, int(interpreter.run_from(registers, spans, first, pending, starts, cycle, limit))

    def _park(self, one: _Core, row: np.ndarray, cycle: int) -> None:
        """Put a core to sleep if it is in a loop that waits for memory; it has executed `cycle`."""
        trajectory = np.empty((_LONGEST_LOOP, interpreter.WORDS), np.int64)
        loads = np.empty((_LONGEST_LOOP, 2), np.int64)
        steps, noted = interpreter.waiting_loop(
            row.reshape(1, -1).copy(), one.spans, 0, len(one.spans), trajectory, loads
        )
        core, spin = one.core, one.core._spin
        if steps:
            spin.traj = []
            for state in trajectory[:steps].tolist():
                counter = state[interpreter.PC]
                spin.traj.append((counter.to_bytes(4, "little"), (*state[1:], counter)))
            spin.loads = [
                (int(address), int(size)) for address, size in {tuple(load) for load in loads[:noted]}
            ]
            spin.loop_len = int(steps)
            if spin._build_watch(core):
                spin._park(core, cycle)
        if spin.state == SPIN_PARKED:
            one.interval = _ATTEMPT_EVERY
        else:
            one.interval = min(2 * one.interval, _ATTEMPT_AT_MOST)
        spin.next_attempt = _NEVER
        one.attempt = cycle + one.interval

    def _tile(self, clock) -> _Tile:
        tile = self._tiles.get(id(clock))
        if tile is None:
            for found in self.device.tile_directory.values():
                if id(found.clock) not in self._tiles:
                    self._tiles[id(found.clock)] = _Tile(found)
            tile = self._tiles[id(clock)]
        return tile

    def _batch(self, running: list[_Core]) -> tuple:
        """Arrays for a set of cores, kept for the next time."""
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
