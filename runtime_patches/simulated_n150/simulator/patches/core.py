# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The baby RISC-V interpreter with decoded instructions remembered.

Speed only: the installed core takes each instruction word apart on every execution. Here a word is turned
once into a function over the core's own register objects, and the pipeline around it (fetch, program counter,
stall, the poll-loop recogniser's view) is kept. Whatever is unusual goes the installed way: tracing,
snooping, the cycle-cost model, a core with CSRs, environment calls, unknown words. Addresses wrap at 32 bits,
as the RISC-V manual has it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from framework.memory.memory import AddressableMemory, MemoryStall, resolve_plain_ram_span
from framework.pe.rv.rv32 import RV32I

from runtime_patches.simulated_n150.simulator.patch import Patch
from runtime_patches.simulated_n150.simulator.patches.integer_division import divide

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_PUSH_BUFFER = 0xFFE40000
_from = int.from_bytes


class _Stalled:
    """Returned by an instruction that has to be tried again."""


STALLED = _Stalled()
_WORDS = [value.to_bytes(4, "little") for value in (0, 1)]


def _signed(value: int) -> int:
    return value - 0x100000000 if value & _SIGN else value


def _field(word: int, first: int, bits: int) -> int:
    return word >> first & ((1 << bits) - 1)


def _extend(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _immediate_b(word: int) -> int:
    raw = (
        _field(word, 31, 1) << 12
        | _field(word, 7, 1) << 11
        | _field(word, 25, 6) << 5
        | _field(word, 8, 4) << 1
    )
    return _extend(raw, 13)


def _immediate_j(word: int) -> int:
    raw = (
        _field(word, 31, 1) << 20
        | _field(word, 12, 8) << 12
        | _field(word, 20, 1) << 11
        | _field(word, 21, 10) << 1
    )
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
    """Turns instruction words into functions for one core. A function takes the program counter and returns
    the next
    one, or None for the following word, or STALLED."""

    def __init__(self, core: RV32I) -> None:
        self.core = core
        self.registers = core.register_file.registers
        self.functions: dict[int, Callable[[int], object]] = {}
        self._spans: list[tuple[int, int, object, int]] = []

    def function(self, word: int) -> Callable[[int], object] | None:
        """The function for a word, or None where the installed interpreter has to take it."""
        if word & 3 != 3:
            made = self._push(word)
        else:
            maker = self._MAKERS.get(word & 0x7F)
            made = None if maker is None else maker(self, word)
        self.functions[word] = made
        return made

    # -- registers and memory --------------------------------------------------------------------------------

    def _operands(self, word):
        return (
            self.registers[_field(word, 7, 5)],
            self.registers[_field(word, 15, 5)],
            self.registers[_field(word, 20, 5)],
            _field(word, 12, 3),
        )

    def _ram(self, address: int, size: int):
        """(leaf, offset) of plain memory the core sees at an address, or None. As the fetch does, not while
        traced.
        """
        core = self.core
        if core._exec_memory is not core.visible_memory or core.visible_memory.snoop_addresses:
            return None
        for low, high, leaf, base in self._spans:
            if low <= address and address + size - 1 <= high:
                return leaf, address - base
        span = resolve_plain_ram_span(core.visible_memory, address)
        if span is None or not isinstance(span[2], AddressableMemory) or address + size - 1 > span[1]:
            return None
        self._spans.append(span)
        return span[2], address - span[3]

    def _read(self, address: int, size: int):
        found = self._ram(address, size)
        if found is None:
            return self.core._exec_memory.read(address, size)
        leaf, offset = found
        return leaf.memory[offset : offset + size].tobytes()

    # -- makers ----------------------------------------------------------------------------------------------

    def _push(self, word):
        core, data = self.core, ((word >> 2 | word << 30) & _MASK).to_bytes(4, "little")

        def push(_pc):
            return STALLED if core._exec_memory.write(_PUSH_BUFFER, data) is MemoryStall else None

        return push

    def _lui(self, word):
        rd, data = self.registers[_field(word, 7, 5)], (word & 0xFFFFF000).to_bytes(4, "little")
        if _field(word, 7, 5) == 0:
            return lambda _pc: None

        def lui(_pc):
            rd.value = data

        return lui

    def _auipc(self, word):
        rd, upper, number = self.registers[_field(word, 7, 5)], word & 0xFFFFF000, _field(word, 7, 5)

        def auipc(pc):
            if number:
                rd.value = (pc + upper & _MASK).to_bytes(4, "little")

        return auipc

    def _jal(self, word):
        rd, number, offset = self.registers[_field(word, 7, 5)], _field(word, 7, 5), _immediate_j(word)

        def jal(pc):
            if number:
                rd.value = (pc + 4 & _MASK).to_bytes(4, "little")
            return pc + offset & _MASK

        return jal

    def _jalr(self, word):
        rd, rs1, _rs2, _funct3 = self._operands(word)
        number, offset = _field(word, 7, 5), _extend(word >> 20, 12)

        def jalr(pc):
            target = _from(rs1.value, "little") + offset & _MASK & ~1
            if number:
                rd.value = (pc + 4 & _MASK).to_bytes(4, "little")
            return target

        return jalr

    def _branch(self, word):
        _rd, rs1, rs2, funct3 = self._operands(word)
        taken, offset = _BRANCHES.get(funct3), _immediate_b(word)
        if taken is None:
            return None

        def branch(pc):
            if taken(_from(rs1.value, "little"), _from(rs2.value, "little")):
                return pc + offset & _MASK
            return None

        return branch

    def _load(self, word):
        rd, rs1, _rs2, funct3 = self._operands(word)
        offset, number = _extend(word >> 20, 12), _field(word, 7, 5)
        size = {0: 1, 4: 1, 1: 2, 5: 2, 2: 4}.get(funct3)
        if size is None:
            return None
        read, sign_bits = self._read, 8 * size if funct3 in (0, 1) else 0

        def load(_pc):
            data = read(_from(rs1.value, "little") + offset & _MASK, size)
            if data is MemoryStall:
                return STALLED
            if number:
                if size == 4 and len(data) == 4:
                    rd.value = data
                else:
                    value = _from(data[:size], "little")
                    rd.value = ((_extend(value, sign_bits) if sign_bits else value) & _MASK).to_bytes(
                        4, "little"
                    )
            return None

        return load

    def _store(self, word):
        _rd, rs1, rs2, funct3 = self._operands(word)
        offset, size = (
            _extend(_field(word, 25, 7) << 5 | _field(word, 7, 5), 12),
            {0: 1, 1: 2, 2: 4}.get(funct3),
        )
        if size is None:
            return None
        core = self.core

        def store(_pc):
            address = _from(rs1.value, "little") + offset & _MASK
            return STALLED if core._exec_memory.write(address, rs2.value[:size]) is MemoryStall else None

        return store

    def _immediate(self, word):
        rd, rs1, _rs2, funct3 = self._operands(word)
        if funct3 in (1, 5):
            operation, value = _REGISTER_OPS.get((_field(word, 25, 7), funct3)), _field(word, 20, 5)
        else:
            operation, value = _REGISTER_OPS[(0, funct3)], _extend(word >> 20, 12) & _MASK
        if operation is None or _field(word, 25, 7) == 1 and funct3 in (1, 5):
            return None
        if _field(word, 7, 5) == 0:
            return lambda _pc: None

        def arithmetic(_pc):
            rd.value = operation(_from(rs1.value, "little"), value).to_bytes(4, "little")

        return arithmetic

    def _register(self, word):
        rd, rs1, rs2, funct3 = self._operands(word)
        operation = _REGISTER_OPS.get((_field(word, 25, 7), funct3))
        if operation is None:
            return None
        if _field(word, 7, 5) == 0:
            return lambda _pc: None

        def arithmetic(_pc):
            rd.value = operation(_from(rs1.value, "little"), _from(rs2.value, "little")).to_bytes(4, "little")

        return arithmetic

    def _fence(self, _word):
        return lambda _pc: None

    _MAKERS = {
        0x37: _lui,
        0x17: _auipc,
        0x6F: _jal,
        0x67: _jalr,
        0x63: _branch,
        0x03: _load,
        0x23: _store,
        0x13: _immediate,
        0x33: _register,
        0x0F: _fence,
    }


def _apply() -> None:
    installed = RV32I.clock_tick

    def clock_tick(self, cycle_num):
        if (
            self.rv_cost is not None
            or self.bus.enabled
            or self.snoop
            or self.csrs is not None
            or not self.active
        ):
            installed(self, cycle_num)
            return
        if self.register_file.write_recording:
            self.register_file.set_write_recording(False)
        pc, memory = self.pc_register, self.visible_memory
        counter = _from(pc.value, "little")
        source = self._fetch_src
        if source is not None and source[0] <= counter <= source[1] and not memory.snoop_addresses:
            offset = counter - source[3]
            word = _from(source[2].memory[offset : offset + 4].tobytes(), "little")
        else:
            word = _from(memory.read(counter, 4), "little")
            self._cache_fetch_src(counter)
            if self._fetch_src is not None and not isinstance(self._fetch_src[2], AddressableMemory):
                self._fetch_src = None
        translator = self.__dict__.get("_translator")
        if translator is None:
            translator = self._translator = Translator(self)
        function = translator.functions[word] if word in translator.functions else translator.function(word)
        if function is None:
            installed(self, cycle_num)
            return
        memory.caller_context = (self.unit_id, self.core_label, counter)
        following = function(counter)
        if following is None:
            data = (counter + 4).to_bytes(4, "little")
            self.nextpc_register.value = data
            pc.value = data
        elif following is STALLED:
            self.nextpc_register.value = (counter + 4).to_bytes(4, "little")
        else:
            data = following.to_bytes(4, "little")
            self.nextpc_register.value = data
            pc.value = data

    RV32I.clock_tick = clock_tick


PATCH = Patch(
    name="remembered RISC-V instructions",
    rule="speed only: an instruction word is decoded once for each core; addresses wrap at 32 bits",
    source="RISC-V Instruction Set Manual, volume I, chapters RV32I and M",
    targets={
        "framework.pe.rv.rv32.RV32I": "f4937ce3a8dd399d",
        "framework.pe.rv.isa.i_isa.RV_I_ISA": "bb06ce85a185738c",
        "framework.pe.rv.isa.tt_isa.RV_TT_ISA": "db412e3986501e04",
        "framework.memory.memory": "1d246fff452cd652",
    },
    apply=_apply,
)
