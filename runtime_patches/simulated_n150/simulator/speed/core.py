# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The baby RISC-V interpreter with decoded instructions remembered.

The installed core takes each instruction word apart on every execution. Here a word is turned once into a function over
the core's registers, and the pipeline around it (fetch, program counter, stall, the poll-loop recogniser's view) is
kept; the cost model, where it is on, says in which cycle an instruction issues. Whatever is unusual goes the installed
way: tracing, snooping, a core with CSRs, environment calls, unknown words. Where the installed core fails, on an
address beyond 32 bits, this one wraps, as the RISC-V manual has it.

Registers are numbers in an array (`core.words`, its memoryview: x0 to x31, the program counter, the next one), where
compiled code has them too; the simulator's own register objects become views of it at a core's first instruction.
Besides them each core has a row of numbers (`core.row`) that says how it is executed.
"""

from __future__ import annotations

import numpy as np
from framework.memory.memory import AddressableMemory, resolve_plain_ram_span
from framework.pe.register.register import Register
from framework.pe.rv.rv32 import RV32I

from runtime_patches.simulated_n150.simulator.patch import Patch
from runtime_patches.simulated_n150.simulator.speed.burst.interpreter import NEXT, PC, ROW
from runtime_patches.simulated_n150.simulator.speed.burst.issue_costs import IssueCosts
from runtime_patches.simulated_n150.simulator.speed.translator import LOAD, STALLED, Translator

_from = int.from_bytes


class _Word(Register):
    """A register whose contents are a number in its core's list; reads and writes bytes as the installed one."""

    @property
    def value(self) -> bytes:
        return self._words[self._index].to_bytes(4, "little")

    @value.setter
    def value(self, value: bytes | int) -> None:
        self._words[self._index] = value if isinstance(value, int) else _from(value, "little")

    def read_uint(self) -> int:
        return self._words[self._index]


def numbered_registers(core: RV32I) -> memoryview:
    """Keep the core's registers as numbers from now on; return them."""
    registers = core.register_file.registers
    words = memoryview(np.array([_from(register.value, "little") for register in registers], np.int64))
    for index, register in enumerate(registers):
        del register.value
        register.__class__ = _Word
        register._words, register._index = words, index
    core.words = words
    core._translator = Translator(core)
    if core.rv_cost is not None:
        core.rv_cost = IssueCosts(core.rv_cost)
    return words


def _apply() -> None:
    from framework.pe.rv.spin import FirmwareSpin

    make, installed, snapshot = RV32I.__init__, RV32I.clock_tick, FirmwareSpin._regs_snapshot

    def make_with_row(self, *arguments, **named):
        self.row = memoryview(np.zeros(ROW, np.int64))
        make(self, *arguments, **named)

    def clock_tick(self, cycle_num):
        if not is_plain(self):
            installed(self, cycle_num)
            return
        if self.register_file.write_recording:
            self.register_file.set_write_recording(False)
        if self.words is None:
            numbered_registers(self)
        cost = self.rv_cost
        if cost is not None and cycle_num < cost._stall_until:
            cost.issue(0, cycle_num, self.words)  # counts a stalled cycle, whatever the instruction
            self.words[NEXT] = self.words[PC] + 4
        elif not step(self, cycle_num):
            installed(self, cycle_num)

    def _regs_snapshot(self, core):
        words = getattr(core, "words", None)
        return snapshot(self, core) if words is None else tuple(words[1:])

    RV32I.words = RV32I.compiled = RV32I._code = None
    # Where the Tensix unit made a core try its instruction again: whether it would do so once more.
    RV32I.refused = None
    RV32I.__init__ = make_with_row
    RV32I.clock_tick = clock_tick
    FirmwareSpin._regs_snapshot = _regs_snapshot


def is_plain(core: RV32I) -> bool:
    """Return whether nothing about a core is unusual: it runs, and nobody looks at each instruction."""
    return (
        core.active
        and core.csrs is None
        and not core.snoop
        and not core.bus._enabled
        and not core.visible_memory.snoop_addresses
    )


def step(core: RV32I, cycle: int) -> bool:
    """Execute one instruction of a plain core, unless the cost model has it wait; return whether it is known here."""
    words, memory = core.words, core.visible_memory
    counter = words[PC]
    source = core._code
    if source is not None and source[0] <= counter <= source[1]:
        word = source[3][counter - source[2] >> 2]
    else:
        word = _from(memory.read(counter, 4), "little")
        core._code = code_at(core, counter)
    functions = core._translator.functions
    function = functions[word] if word in functions else core._translator.function(word)
    if function is None:
        return False
    cost = core.rv_cost
    if cost is not None and not cost.issue(word, cycle, words):
        words[NEXT] = counter + 4
        return True
    memory.caller_context = (core.unit_id, core.core_label, counter)
    following = function(counter)
    if following is None:
        words[NEXT] = words[PC] = counter + 4
    elif following is STALLED:
        words[NEXT] = counter + 4
        if cost is not None and word & 0x7F == LOAD:
            core.refused = None  # each time that it is asked again it is charged for
    else:
        words[NEXT] = words[PC] = following
    return True


def code_at(core: RV32I, counter: int):
    """Return (first, last program counter, address of the first word, words, bytes) of the plain memory that holds the
    instruction at `counter`, or None."""
    span = resolve_plain_ram_span(core.visible_memory, counter)
    if span is None or not isinstance(span[2], AddressableMemory) or counter & 3:
        return None
    low, high, leaf, base = span
    if (low | base | len(leaf.memory)) & 3:
        return None
    content = memoryview(leaf.memory)
    return low, high - 3, base, content.cast("I"), content


PATCH = Patch(
    name="remembered RISC-V instructions",
    rule="an instruction word is decoded once for each core",
    source="RISC-V Instruction Set Manual, volume I, chapters RV32I and M",
    targets={
        "framework.pe.rv.rv32.RV32I": "f4937ce3a8dd399d",
        "framework.pe.rv.isa.i_isa.RV_I_ISA": "bb06ce85a185738c",
        "framework.pe.rv.isa.tt_isa.RV_TT_ISA": "db412e3986501e04",
        "framework.memory.memory": "1d246fff452cd652",
        "framework.pe.register.register.Register": "004afe52f468d23b",
        "framework.pe.rv.spin.FirmwareSpin": "645b50158aed7f35",
        "framework.pe.tensix.frontend.TensixFrontend": "6e2285a02fb8a1ec",
        "framework.misc.ttsync.TTSync": "2ff01a3a983939fa",
    },
    apply=_apply,
)
