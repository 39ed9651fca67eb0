# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A RISC-V core whose instructions compiled code executes (interpreter.py), and what it may reach of its tile."""

from __future__ import annotations

import numpy as np
from framework.memory.memory import AddressableMemory
from framework.misc.tile_ctrl import TensixTileControl
from framework.network.tt_noc import NUI, NoCOverlay
from framework.pe.rv.spin import SPIN_PARKED

from runtime_patches.simulated_n150.simulator.behaviour.sent_writes import SENT_COUNTERS
from runtime_patches.simulated_n150.simulator.behaviour.stream_registers import (
    StreamRegisters,
    WatchedWords,
    as_array,
)
from runtime_patches.simulated_n150.simulator.ethernet.queues import TransmitQueue
from runtime_patches.simulated_n150.simulator.speed.burst import interpreter
from runtime_patches.simulated_n150.simulator.speed.core import numbered_registers

NEVER = 1 << 62
_LONGEST_LOOP = 96
_POINTERS = (
    interpreter.REGISTERS_AT,
    interpreter.SPANS_AT,
    interpreter.SPANS,
    interpreter.SCRATCH_AT,
    interpreter.COSTS_AT,
)
_ATTEMPT_EVERY, _ATTEMPT_AT_MOST = 50, 3200  # cycles between two looks whether a core waits


class CompiledCore:
    """A core as the interpreter sees it."""

    def __init__(self, core):
        self.core = core
        self.registers = np.asarray(numbered_registers(core) if core.words is None else core.words)
        self.spans = np.array(spans_of(core.visible_memory, core.rv_cost is not None), dtype=np.int64)
        self.interval = _ATTEMPT_EVERY
        self._scratch = np.zeros((1, 4), np.int64)
        self._trajectory = np.empty((_LONGEST_LOOP, interpreter.WORDS), np.int64)
        self._loads = np.empty((_LONGEST_LOOP, 2), np.int64)
        self._pointers = (
            self.registers.ctypes.data,
            self.spans.ctypes.data,
            len(self.spans),
            self._scratch.ctypes.data,
            0 if core.rv_cost is None else core.rv_cost.address,
        )
        row = core.row
        for place, value in zip(_POINTERS, self._pointers, strict=True):
            row[place] = value
        self.attempt = 0

    @property
    def attempt(self) -> int:
        """The cycle of the next look whether the core waits."""
        return self.core.row[interpreter.ATTEMPT]

    @attempt.setter
    def attempt(self, cycle: int) -> None:
        self.core.row[interpreter.ATTEMPT] = cycle

    def read(self, row: np.ndarray) -> None:
        row[:] = self.registers[: interpreter.WORDS]

    def write(self, row: np.ndarray) -> None:
        self.registers[1 : interpreter.WORDS] = row[1:]
        # The next program counter is as a finished instruction leaves it.
        self.registers[interpreter.NEXT] = row[interpreter.PC]

    def run_ahead(self, cycle: int) -> int:
        """Execute the instruction of this cycle and the following ones that nobody else can see or have seen; return
        how many cycles they take, 0 where the first is not for compiled code."""
        return interpreter.run_ahead(*self._pointers, cycle, interpreter.AT_ONCE)

    def park(self, cycle: int) -> None:
        """Put the core to sleep if it is in a loop that waits for memory; it has executed `cycle`."""
        steps, noted = interpreter.waiting_loop(
            self.registers[: interpreter.WORDS].reshape(1, -1).copy(),
            self.spans,
            0,
            len(self.spans),
            self._trajectory,
            self._loads,
        )
        core, spin = self.core, self.core._spin
        if steps:
            spin.traj = []
            for state in self._trajectory[:steps].tolist():
                counter = state[interpreter.PC]
                spin.traj.append((counter.to_bytes(4, "little"), (*state[1:], counter)))
            spin.loads = [(int(address), int(size)) for address, size in {tuple(load) for load in self._loads[:noted]}]
            spin.loop_len = int(steps)
            if spin._build_watch(core):
                spin._park(core, cycle)
        if spin.state == SPIN_PARKED:
            self.interval = _ATTEMPT_EVERY
        else:
            self.interval = min(2 * self.interval, _ATTEMPT_AT_MOST)
        spin.next_attempt = NEVER
        self.attempt = cycle + self.interval


def compiled_core(core) -> CompiledCore:
    """Return the compiled view of a core."""
    if core.compiled is None:
        core.compiled = CompiledCore(core)
    return core.compiled


def new_table(cores) -> np.ndarray:
    """Return rows for cores, one below the other, in place of the row that each had; interpreter.py says what is in
    one."""
    table = np.zeros((len(cores), interpreter.ROW), np.int64)
    for row, core in zip(table, cores, strict=True):
        row[:] = core.row
        core.row = memoryview(row)
    return table


def watched_words(watch, own=None) -> np.ndarray | None:
    """Return what a waiting core's loop reads, by `(component, offset, size, contents)`, as rows of (address, bytes,
    contents) for interpreter.unchanged; None where a part is not known as memory.

    own: memory that nobody else reaches, which stays as it is while the core waits.
    """
    rows: list[tuple[int, int, int]] = []
    for component, offset, size, contents in watch:
        if component is own and own is not None:
            continue
        if isinstance(component, WatchedWords):
            words, first = component.words(offset, size)
            start = np.frombuffer(words, np.int64).ctypes.data + 8 * first
            contents = memoryview(contents).cast("I")
            rows += [(start + 8 * i, 8, word) for i, word in enumerate(contents)]
        elif isinstance(component, AddressableMemory):
            start = np.frombuffer(component.memory, np.uint8).ctypes.data + offset
            whole = size - size % 4
            rows += [(start + i, 4, int.from_bytes(contents[i : i + 4], "little")) for i in range(0, whole, 4)]
            rows += [(start + i, 1, contents[i]) for i in range(whole, size)]
        else:
            return None
    return np.array(rows, np.int64).reshape(-1, 3)


def own_memory(core) -> AddressableMemory | None:
    """Return the memory that only this core can reach, where it has one."""
    place, leaf = core.visible_memory.memory_map.locate(interpreter.OWN)
    return leaf if isinstance(leaf, AddressableMemory) and place.low == interpreter.OWN else None


def spans_of(memory, costed: bool = False) -> list[tuple[int, int, int, int]]:
    """Return rows for the interpreter of what a core may reach of its memory; local memory and L1 first.

    costed: with the cost model what a core reads of writes sent depends on the cycle (behaviour/sent_writes.py).
    """
    found, by_the_clock = [], []
    for place, part in memory.memory_map.items():
        if isinstance(part, AddressableMemory):
            found.append((place.low, place.low + part.getSize() - 1, part.memory.ctypes.data, interpreter.RAM))
        elif isinstance(part, (StreamRegisters, NoCOverlay)):
            rows = as_array(part)
            found.append((place.low, place.low + 0x1000 * len(rows) - 1, rows.ctypes.data, interpreter.STREAMS))
        elif isinstance(part, NUI):
            if not isinstance(part.nui_counters, _Counters):
                share_registers(part)
            values = part.nui_counters.shared
            found.append((place.low, place.low + 0xFFFF, values.ctypes.data, interpreter.NOC))
            for counter in SENT_COUNTERS if costed else ():
                at = place.low + counter
                by_the_clock.append((at, at + 3, 0, interpreter.BY_THE_CLOCK))
        elif isinstance(part, TransmitQueue):
            found.append((place.low, place.low + 0xFFF, part.state.ctypes.data, interpreter.TRANSMIT))
        elif isinstance(part, TensixTileControl):
            found.append((place.low, place.low + 0xFFF, 0, interpreter.CLOCK))
    return by_the_clock + sorted(found, key=lambda span: span[3])


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
    fractions of words for reads of a few bytes."""

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
    "target_addr_low",
    "target_addr_mid",
    "target_addr_hi",
    "ret_addr_low",
    "ret_addr_mid",
    "ret_addr_hi",
    "packet_tag",
    "ctrl",
    "at_len_be",
    "at_data",
    "cmd_ctrl",
)


def _word(index: int) -> property:
    def read(self):
        return self._words[index]

    def write(self, value):
        self._words[index] = value

    return property(read, write)


class _Initiator(NUI.RequestInitiator):
    """A command buffer whose registers are in an array."""


for _index, _name in enumerate(_COMMAND_REGISTERS):
    setattr(_Initiator, _name, _word(_index))
