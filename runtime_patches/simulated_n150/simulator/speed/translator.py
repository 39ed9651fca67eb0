# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Turn RISC-V instruction words into Python functions over a core's registers (core.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from framework.memory.memory import AddressableMemory, MemoryStall, resolve_plain_ram_span
from framework.misc.ttsync import TTSync
from framework.pe.rv.rv32 import RV32I
from framework.pe.tensix.frontend import CORE_PUSH_INFLIGHT_BOUND, TensixFrontend
from framework.pe.tensix.util import TensixInstructionDecoder

from runtime_patches.simulated_n150.simulator.behaviour.integer_division import divide

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
PUSH_BUFFER = 0xFFE40000
LOAD = 0x03  # opcode
_from = int.from_bytes


class _Stalled:
    """Returned by an instruction that has to be tried again."""


STALLED = _Stalled()


def is_full(thread: TensixFrontend) -> bool:
    """Return whether a thread takes no further instruction of a core."""
    return thread.inflight_count() >= CORE_PUSH_INFLIGHT_BOUND


def _until_done(sync: TTSync, offset: int) -> Callable[[], bool]:
    """Return a test whether a read of a thread's PC buffer, which waits for the Tensix unit, would
    have to wait again."""
    check = (
        sync.tensix_coprocessor.CoprocessorDoneCheck
        if offset == TTSync.TENSIX_SYNC
        else sync.tensix_coprocessor.MOPExpanderDoneCheck
    )
    control, thread = sync.tile_ctrl, sync.thread_id
    override = control.RISCV_DEBUG_REG_TRISC_PC_BUF_OVERRIDE
    return lambda: control.RISCV_DEBUG_REG_TRISC_PC_BUF_OVERRIDE is override and check(thread)


def _signed(value: int) -> int:
    return value - 0x100000000 if value & _SIGN else value


def _field(word: int, first: int, bits: int) -> int:
    return word >> first & ((1 << bits) - 1)


def _extend(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _immediate_b(word: int) -> int:
    raw = _field(word, 31, 1) << 12 | _field(word, 7, 1) << 11 | _field(word, 25, 6) << 5 | _field(word, 8, 4) << 1
    return _extend(raw, 13)


def _immediate_j(word: int) -> int:
    raw = _field(word, 31, 1) << 20 | _field(word, 12, 8) << 12 | _field(word, 20, 1) << 11 | _field(word, 21, 10) << 1
    return _extend(raw, 21)


def _shift_right_arithmetic(a: int, amount: int) -> int:
    return _signed(a) >> amount & _MASK


# (funct7, funct3) of register-register instructions, and funct3 of those with an immediate.
_REGISTER_OPS: dict[tuple[int, int], Callable[[int, int], int]] = {
    (0x00, 0): lambda a, b: a + b & _MASK,
    (0x20, 0): lambda a, b: a - b & _MASK,
    (0x00, 1): lambda a, b: a << (b & 31) & _MASK,
    (0x00, 2): lambda a, b: int(_signed(a) < _signed(b)),
    (0x00, 3): lambda a, b: int(a < b),
    (0x00, 4): lambda a, b: a ^ b,
    (0x00, 5): lambda a, b: a >> (b & 31),
    (0x20, 5): lambda a, b: _shift_right_arithmetic(a, b & 31),
    (0x00, 6): lambda a, b: a | b,
    (0x00, 7): lambda a, b: a & b,
    (0x01, 0): lambda a, b: a * b & _MASK,
    (0x01, 1): lambda a, b: _signed(a) * _signed(b) >> 32 & _MASK,
    (0x01, 2): lambda a, b: _signed(a) * b >> 32 & _MASK,
    (0x01, 3): lambda a, b: a * b >> 32,
    **{(0x01, funct3): partial(divide, funct3) for funct3 in (4, 5, 6, 7)},
}
_BRANCHES: dict[int, Callable[[int, int], bool]] = {
    0: lambda a, b: a == b,
    1: lambda a, b: a != b,
    4: lambda a, b: _signed(a) < _signed(b),
    5: lambda a, b: _signed(a) >= _signed(b),
    6: lambda a, b: a < b,
    7: lambda a, b: a >= b,
}


class Translator:
    """Turn instruction words into functions for one core. A function takes the program counter and returns the next
    one, or None for the following word, or STALLED."""

    def __init__(self, core: RV32I) -> None:
        self.core = core
        self.words: memoryview = core.words
        self.functions: dict[int, Callable[[int], object] | None] = {}
        # (first address, last one of a word, address of the first word, words, bytes) of plain memory
        self._spans: list[tuple[int, int, int, memoryview, memoryview]] = []
        # Address of a register: what holds it, and its place there.
        self._parts: dict[int, tuple[Any, int]] = {}

    def function(self, word: int) -> Callable[[int], object] | None:
        """Return the function for a word, or None where the installed interpreter has to take it."""
        if word & 3 != 3:
            made = self._push(word)
        else:
            maker = self._MAKERS.get(word & 0x7F)
            made = None if maker is None else maker(self, word)
        self.functions[word] = made
        return made

    # -- registers and memory --------------------------------------------------------------------------------

    @staticmethod
    def _operands(word):
        return _field(word, 7, 5), _field(word, 15, 5), _field(word, 20, 5), _field(word, 12, 3)

    def _find(self, address: int):
        """Note what is at an address, plain memory with what it is a part of, or a register; return whether it is
        plain."""
        memory = self.core.visible_memory
        span = resolve_plain_ram_span(memory, address)
        if span is not None and isinstance(span[2], AddressableMemory) and address + 3 <= span[1]:
            low, high, leaf, base = span
            if leaf.alignment is None and not (low | base | len(leaf.memory)) & 3:
                content = memoryview(leaf.memory)
                self._spans.append((low, high - 3, base, content.cast("I"), content))
                return True
        place, part = memory.memory_map.locate(address)
        if part is not None and span is None:
            self._parts[address] = part, address - place.low
        return False

    def _read(self, address: int, size: int):
        """Return what is at an address, as a number, or STALLED."""
        core = self.core
        if core._exec_memory is core.visible_memory:
            for low, high, base, memory, content in self._spans:
                if low <= address <= high:
                    place = address - base
                    if size == 4 and not place & 3:
                        return memory[place >> 2]
                    return _from(content[place : place + size], "little")
            found = self._parts.get(address)
            if found is None:
                if self._find(address):
                    return self._read(address, size)
                data = core._exec_memory.read(address, size)
            else:
                data = found[0].read(found[1], size)
                if data is MemoryStall and type(found[0]) is TTSync:
                    core.refused = _until_done(*found)
        else:
            data = core._exec_memory.read(address, size)
        return STALLED if data is MemoryStall else _from(data[:size], "little")

    def _write(self, address: int, size: int, value: int):
        """Store the lower bytes of a number; return None or STALLED."""
        core = self.core
        if core._exec_memory is core.visible_memory:
            for low, high, base, memory, content in self._spans:
                if low <= address <= high:
                    place = address - base
                    if size == 4 and not place & 3:
                        memory[place >> 2] = value
                    else:
                        content[place : place + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
                    return None
            found = self._parts.get(address)
            if found is None:
                if self._find(address):
                    return self._write(address, size, value)
            else:
                data = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
                if found[0].write(found[1], data, None) is not MemoryStall:
                    return None
                if type(found[0]) is TensixFrontend:
                    core.refused = partial(is_full, found[0])
                return STALLED
        data = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        return STALLED if core._exec_memory.write(address, data) is MemoryStall else None

    # -- makers ----------------------------------------------------------------------------------------------

    def _push(self, word):
        core, instruction = self.core, (word >> 2 | word << 30) & _MASK
        data = instruction.to_bytes(4, "little")
        thread = core.visible_memory.memory_map.locate(PUSH_BUFFER)[1]

        def push(_pc):
            return STALLED if core._exec_memory.write(PUSH_BUFFER, data) is MemoryStall else None

        if type(thread) is not TensixFrontend or not TensixInstructionDecoder.isInstructionRecognised(instruction):
            return push
        queue = thread.mop_instruction_fifo

        def push_to_thread(pc):
            if core._exec_memory is not core.visible_memory:
                return push(pc)
            if is_full(thread):
                core.refused = partial(is_full, thread)
                return STALLED
            queue.append(instruction)
            return None

        return push_to_thread

    def _lui(self, word):
        words, rd, data = self.words, _field(word, 7, 5), word & 0xFFFFF000
        if rd == 0:
            return lambda _pc: None

        def lui(_pc):
            words[rd] = data

        return lui

    def _auipc(self, word):
        words, rd, upper = self.words, _field(word, 7, 5), word & 0xFFFFF000

        def auipc(pc):
            if rd:
                words[rd] = pc + upper & _MASK

        return auipc

    def _jal(self, word):
        words, rd, offset = self.words, _field(word, 7, 5), _immediate_j(word)

        def jal(pc):
            if rd:
                words[rd] = pc + 4 & _MASK
            return pc + offset & _MASK

        return jal

    def _jalr(self, word):
        words, (rd, rs1, _rs2, _funct3) = self.words, self._operands(word)
        offset = _extend(word >> 20, 12)

        def jalr(pc):
            target = words[rs1] + offset & _MASK & ~1
            if rd:
                words[rd] = pc + 4 & _MASK
            return target

        return jalr

    def _branch(self, word):
        words, (_rd, rs1, rs2, funct3) = self.words, self._operands(word)
        taken, offset = _BRANCHES.get(funct3), _immediate_b(word)
        if taken is None:
            return None

        def branch(pc):
            if taken(words[rs1], words[rs2]):
                return pc + offset & _MASK
            return None

        return branch

    def _load(self, word):
        words, (rd, rs1, _rs2, funct3) = self.words, self._operands(word)
        offset = _extend(word >> 20, 12)
        size = {0: 1, 4: 1, 1: 2, 5: 2, 2: 4}.get(funct3)
        if size is None:
            return None
        read, sign_bits = self._read, 8 * size if funct3 in (0, 1) else 0

        def load(_pc):
            value = read(words[rs1] + offset & _MASK, size)
            if value is STALLED:
                return STALLED
            if rd:
                words[rd] = _extend(value, sign_bits) & _MASK if sign_bits else value
            return None

        return load

    def _store(self, word):
        words, (_rd, rs1, rs2, funct3) = self.words, self._operands(word)
        offset, size = (
            _extend(_field(word, 25, 7) << 5 | _field(word, 7, 5), 12),
            {0: 1, 1: 2, 2: 4}.get(funct3),
        )
        if size is None:
            return None
        write = self._write

        def store(_pc):
            return write(words[rs1] + offset & _MASK, size, words[rs2])

        return store

    def _immediate(self, word):
        words, (rd, rs1, _rs2, funct3) = self.words, self._operands(word)
        if funct3 in (1, 5):
            operation, value = _REGISTER_OPS.get((_field(word, 25, 7), funct3)), _field(word, 20, 5)
        else:
            operation, value = _REGISTER_OPS[(0, funct3)], _extend(word >> 20, 12) & _MASK
        if operation is None or (_field(word, 25, 7) == 1 and funct3 in (1, 5)):
            return None
        if rd == 0:
            return lambda _pc: None

        def arithmetic(_pc):
            words[rd] = operation(words[rs1], value)

        return arithmetic

    def _register(self, word):
        words, (rd, rs1, rs2, funct3) = self.words, self._operands(word)
        operation = _REGISTER_OPS.get((_field(word, 25, 7), funct3))
        if operation is None:
            return None
        if rd == 0:
            return lambda _pc: None

        def arithmetic(_pc):
            words[rd] = operation(words[rs1], words[rs2])

        return arithmetic

    def _fence(self, _word):
        return lambda _pc: None

    _MAKERS = {
        0x37: _lui,
        0x17: _auipc,
        0x6F: _jal,
        0x67: _jalr,
        0x63: _branch,
        LOAD: _load,
        0x23: _store,
        0x13: _immediate,
        0x33: _register,
        0x0F: _fence,
    }
