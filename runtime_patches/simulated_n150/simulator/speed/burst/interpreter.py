# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""RV32IM over raw memory, compiled by numba: several cores, one instruction per cycle each, in turn.

A core's state is a row of `registers`: x0 to x31, then the program counter. What it sees of memory is rows of `spans`:
first address, last address, pointer, kind. An instruction that is not one of RV32IM's plain ones, or that reaches for
memory no span holds, is *slow*: no core takes a step in that cycle, and the caller executes it in Python.

With the cost model (framework/pe/rv/cost.py), what it knows of a core is a row of numbers too (issue_costs.py).

All of it is one file, as numba takes a function from its cache as long as that function's own file is as it was: after
a change to what is imported here, remove __pycache__.
"""

from __future__ import annotations

import numba
import numpy as np
from framework.pe.rv import cost as costs
from numba.core import cgutils, types
from numba.extending import intrinsic

from runtime_patches.simulated_n150.simulator.ethernet.queues import COMMAND as TRANSMIT_COMMAND
from runtime_patches.simulated_n150.simulator.ethernet.queues import KEPT as _KEPT

RAM, STREAMS, TRANSMIT, CLOCK, NOC, BY_THE_CLOCK = 0, 1, 2, 3, 4, 5
# A NoC interface's array: its 62 counters, then its four command buffers' registers, 16 words each; number
# 10 starts a transaction.
NOC_COMMANDS, NOC_COMMAND_WORDS, NOC_START = 64, 16, 10
# An Ethernet transmit queue's array: the first cycle at which CMD reads 0, then its registers.
TRANSMIT_BUSY, TRANSMIT_REGISTERS = 0, 1
PC, NEXT = 32, 33
WORDS = 33
# A core's row in the table of its tile: who executes it, the first cycle in which it has something to execute, the
# cycle of the next look whether it waits; then, each by its address, its registers, spans, scratch, watched words and
# costs, 0 for none.
MODE, AHEAD, ATTEMPT, REGISTERS_AT, SPANS_AT, SPANS, SCRATCH_AT, WATCHED_AT, WATCHED, COSTS_AT = range(10)
ROW = 10
# A core's row of the cost model. State: the cycle from which each register can be read, until when the core stalls and
# why, from when on it may store to L1, when its load slots are free. Counts: cycles stalled, in all and by reason,
# loads by region, stores to L1, cycles stalled that a trace has not taken. What an operation takes, 0 where nothing is
# charged: a load by its region, a load's slot by region, a store, a product, a division and its two quick cases.
READY, STALL_UNTIL, STALL_REASON, STORE_READY, LOAD_SLOTS, LOAD_SLOT_COUNT = 0, 32, 33, 34, 35, 4
STALL_CYCLES = LOAD_SLOTS + LOAD_SLOT_COUNT
STALL_BY_REASON = STALL_CYCLES + 1
LOADS_BY_REGION = STALL_BY_REASON + costs.STALL_REASON_COUNT
L1_STORES, PENDING_STALL = (LOADS_BY_REGION + costs.RV_REGION_COUNT + i for i in range(2))
LOAD_LATENCY = PENDING_STALL + 1
SLOT_CYCLES = LOAD_LATENCY + costs.RV_REGION_COUNT
STORE_PERIOD, MULTIPLY, DIVIDE, DIVIDE_TRIVIAL, DIVIDE_LOWEST = (
    SLOT_CYCLES + costs.RV_REGION_COUNT + i for i in range(5)
)
COSTS = DIVIDE_LOWEST + 1
BY_PYTHON, RUNNING, PARKED, REFUSED, IN_RESET = range(5)
# What is known of the cycle after one of all of a tile's cores: all rest in it, one executes, or Python has to look.
ALL_REST, ONE_RUNS, UNKNOWN = 0, 1, 2
AT_ONCE = 64  # instructions that a core executes at most before others have had their turn
OWN = 0xFFB00000  # where a core sees the memory that only it can reach
_MASK = 0xFFFFFFFF
_REGISTER_READS = np.array(costs._OPCODE_FLAGS, np.int64)
_FIRST, _SECOND, _WRITTEN, _L1_END = costs._F_RS1, costs._F_RS2, costs._F_RD, costs._MMIO_BASE
_LOAD_USE, _STORE_RATE, _INTEGER_UNIT, _LOAD_RATE = (
    costs.STALL_LOAD_USE,
    costs.STALL_STORE_RATE,
    costs.STALL_INTEGER_UNIT,
    costs.STALL_LOAD_RATE,
)
_STREAM_WORDS = 1024
_STREAM_WIDTH = (1 << 17) - 1


@intrinsic
def _pointer(_context, address):
    def codegen(_ctx, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), codegen


@numba.njit(cache=True)
def _load(base, offset, size):
    memory = numba.carray(_pointer(base + offset), (size,), np.uint8)
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(memory[i]) << (8 * i)
    return value


@numba.njit(cache=True)
def _store(base, offset, size, value):
    memory = numba.carray(_pointer(base + offset), (size,), np.uint8)
    for i in range(size):
        memory[i] = (value >> (8 * i)) & 0xFF


@numba.njit(cache=True)
def _span(spans, first, last, address, size):
    for i in range(first, last):
        if spans[i, 0] <= address and address + size - 1 <= spans[i, 1]:
            return i
    return -1


@numba.njit(cache=True)
def _signed(value):
    return value - 0x100000000 if value & 0x80000000 else value


@numba.njit(cache=True)
def _extend(value, bits):
    return value - (1 << bits) if (value >> (bits - 1)) & 1 else value


@numba.njit(cache=True)
def _divide(funct3, a, b):
    """Do as integer_division.divide."""
    if b == 0:
        return np.int64(_MASK) if funct3 < 6 else a
    if funct3 == 5:
        return a // b
    if funct3 == 7:
        return a % b
    negative_a, negative_b = (a & 0x80000000) != 0, (b & 0x80000000) != 0
    x = (-a) & _MASK if negative_a else a
    y = (-b) & _MASK if negative_b else b
    if funct3 == 4:
        q = x // y
        return (-q if negative_a != negative_b else q) & _MASK
    r = x % y
    return (-r if negative_a else r) & _MASK


@numba.njit(cache=True)
def _multiply_high(funct3, a, b):
    """Return the upper 32 bits: 1 signed by signed, 2 signed by unsigned, 3 unsigned by unsigned."""
    x = _signed(a) if funct3 != 3 else a
    y = _signed(b) if funct3 == 1 else b
    # |x|, |y| < 2^32: split so that no product leaves 64 bits.
    high, low = x >> 16, x & 0xFFFF
    return (high * y + ((low * y) >> 16)) >> 16 & _MASK


@numba.njit(cache=True)
def _noc_word(within):
    """Return where a NoC interface's array has the register at byte `within` of its address space."""
    if within >= 0x200 and within <= 0x2F4:
        return (within - 0x200) >> 2
    return NOC_COMMANDS + (within >> 10) * NOC_COMMAND_WORDS + ((within & 0x3FF) >> 2)


@numba.njit(cache=True)
def _kept_by_transmit_queue(within):
    """Return whether a write to this register of a transmit queue does no more than keep the word."""
    for register in _KEPT:
        if register == within:
            return True
    return False


@numba.njit(cache=True)
def _fast(registers, spans, first, last, pending, core, cycle):
    """Return whether the core's next instruction can be taken here; leave its word, span and address in `pending`."""
    pc = registers[core, PC]
    fetch = pending[core, 3]
    if fetch < first or fetch >= last or pc < spans[fetch, 0] or pc + 3 > spans[fetch, 1]:
        fetch = _span(spans, first, last, pc, 4)
        if fetch < 0 or spans[fetch, 3] != RAM:
            return False
        pending[core, 3] = fetch
    word = _load(spans[fetch, 2], pc - spans[fetch, 0], 4)
    pending[core, 0] = word
    opcode, funct3 = word & 0x7F, (word >> 12) & 7
    if opcode == 0x03 or opcode == 0x23:
        if opcode == 0x03:
            if funct3 == 3 or funct3 > 5:
                return False
            offset, size = _extend(word >> 20, 12), 1 << (funct3 & 3)
        else:
            if funct3 > 2:
                return False
            offset, size = _extend((word >> 25) << 5 | (word >> 7) & 31, 12), 1 << funct3
        address = (registers[core, (word >> 15) & 31] + offset) & _MASK
        span = _span(spans, first, last, address, size)
        if span < 0:
            return False
        kind = spans[span, 3]
        if kind != RAM:
            if size != 4 or address & 3 or kind == BY_THE_CLOCK:
                return False
            within = address - spans[span, 0]
            if kind == TRANSMIT:
                if opcode == 0x03:
                    if within != TRANSMIT_COMMAND:
                        return False
                elif not _kept_by_transmit_queue(within):
                    return False
            if kind == NOC:
                register = (within & 0x3FF) >> 2
                if opcode == 0x23:
                    if within >= 0x1000 or register >= NOC_START:
                        return False
                elif (within >= 0x1000 or register > NOC_START) and (within < 0x200 or within > 0x2F4):
                    return False
            # Until the low word overflows, both of the high words are 0.
            if kind == CLOCK and (
                opcode == 0x23 or (within != 0x1F0 and within != 0x1F4 and within != 0x1F8) or cycle >= 0x100000000
            ):
                return False
        pending[core, 1], pending[core, 2] = span, address
        return True
    if opcode == 0x13:
        return not ((word >> 25) == 1 and (funct3 == 1 or funct3 == 5))
    if opcode == 0x33:
        funct7 = word >> 25
        return funct7 == 0 or funct7 == 1 or (funct7 == 0x20 and (funct3 == 0 or funct3 == 5))
    if opcode == 0x63:
        return funct3 != 2 and funct3 != 3
    return opcode == 0x37 or opcode == 0x17 or opcode == 0x6F or opcode == 0x67 or opcode == 0x0F


@numba.njit(cache=True)
def _read(spans, span, address, size, cycle):
    kind, within = spans[span, 3], address - spans[span, 0]
    if kind == RAM:
        return _load(spans[span, 2], within, size)
    if kind == STREAMS:
        return _load(spans[span, 2], within * 2, 4)  # registers are kept as 64-bit words
    if kind == TRANSMIT:
        free = numba.carray(_pointer(spans[span, 2]), (1,), np.int64)
        return np.int64(1) if cycle < free[TRANSMIT_BUSY] else np.int64(0)
    if kind == NOC:
        return _load(spans[span, 2], 8 * _noc_word(within), 4)
    return np.int64(cycle - 1 if cycle > 0 and within == 0x1F0 else 0)


@numba.njit(cache=True)
def _write(spans, span, address, size, value):
    kind, within = spans[span, 3], address - spans[span, 0]
    if kind == RAM:
        _store(spans[span, 2], within, size, value)
        return
    if kind == NOC:
        _store(spans[span, 2], 8 * _noc_word(within), 4, value)
        return
    if kind == TRANSMIT:
        _store(spans[span, 2], 8 * (TRANSMIT_REGISTERS + (within >> 2)), 4, value)
        return
    # Stream registers, as stream_registers.write_register has them.
    stream, index = within >> 12, (within & 0xFFF) >> 2
    words = numba.carray(_pointer(spans[span, 2] + stream * _STREAM_WORDS * 8), (_STREAM_WORDS,), np.int64)
    if index == 34:
        destination = value & 63
        if destination < 32:
            words[64 + destination] = (words[64 + destination] + (value >> 6)) & _STREAM_WIDTH
    elif index == 4:
        words[4] = value & _STREAM_WIDTH
        for i in range(32):
            words[64 + i] = value & _STREAM_WIDTH
    elif index == 3:
        words[3] = value & _STREAM_WIDTH
        words[5] = 0
    elif index == 5:
        words[5] = value & _STREAM_WIDTH
    elif index < 64 or index >= 96:
        words[index] = value


@numba.njit(cache=True)
def _execute(registers, spans, pending, core, cycle):
    word, pc = pending[core, 0], registers[core, PC]
    opcode, funct3, rd = word & 0x7F, (word >> 12) & 7, (word >> 7) & 31
    a, b = registers[core, (word >> 15) & 31], registers[core, (word >> 20) & 31]
    following, result = pc + 4, np.int64(0)
    writes = True
    if opcode == 0x03:
        size = 1 << (funct3 & 3)
        result = _read(spans, pending[core, 1], pending[core, 2], size, cycle)
        if funct3 < 2:
            result = _extend(result, 8 * size) & _MASK
    elif opcode == 0x23:
        _write(spans, pending[core, 1], pending[core, 2], 1 << funct3, b)
        writes = False
    elif opcode == 0x13 or opcode == 0x33:
        funct7 = word >> 25
        if opcode == 0x13:
            b = _extend(word >> 20, 12) & _MASK
            if funct3 == 1 or funct3 == 5:
                b &= 31
            else:
                funct7 = np.int64(0)
        if funct7 == 1:
            if funct3 == 0:
                result = (a & 0xFFFF) * b + (((a >> 16) * (b & 0xFFFF)) << 16)
            elif funct3 < 4:
                result = _multiply_high(funct3, a, b)
            else:
                result = _divide(funct3, a, b)
        elif funct3 == 0:
            result = a - b if funct7 == 0x20 else a + b
        elif funct3 == 1:
            result = a << (b & 31)
        elif funct3 == 2:
            result = np.int64(1 if _signed(a) < _signed(b) else 0)
        elif funct3 == 3:
            result = np.int64(1 if a < b else 0)
        elif funct3 == 4:
            result = a ^ b
        elif funct3 == 5:
            result = _signed(a) >> (b & 31) if funct7 == 0x20 else a >> (b & 31)
        elif funct3 == 6:
            result = a | b
        else:
            result = a & b
    elif opcode == 0x63:
        writes = False
        if funct3 == 0:
            taken = a == b
        elif funct3 == 1:
            taken = a != b
        elif funct3 == 4:
            taken = _signed(a) < _signed(b)
        elif funct3 == 5:
            taken = _signed(a) >= _signed(b)
        elif funct3 == 6:
            taken = a < b
        else:
            taken = a >= b
        if taken:
            offset = (word >> 31) << 12 | ((word >> 7) & 1) << 11 | ((word >> 25) & 63) << 5 | ((word >> 8) & 15) << 1
            following = pc + _extend(offset, 13)
    elif opcode == 0x37:
        result = word & 0xFFFFF000
    elif opcode == 0x17:
        result = pc + (word & 0xFFFFF000)
    elif opcode == 0x6F:
        offset = (
            (word >> 31) << 20 | ((word >> 12) & 0xFF) << 12 | ((word >> 20) & 1) << 11 | ((word >> 21) & 0x3FF) << 1
        )
        result, following = pc + 4, pc + _extend(offset, 21)
    elif opcode == 0x67:
        result, following = pc + 4, (a + _extend(word >> 20, 12)) & ~1
    else:  # fence
        writes = False
    if writes and rd != 0:
        registers[core, rd] = result & _MASK
    registers[core, PC] = following & _MASK


@numba.njit(cache=True)
def run_from(registers, spans, first, pending, starts, cycle, end):
    """Step every core from `cycle` on, until `end` or the cycle in which one of them is slow; return that cycle.

    first: row of spans where each core's begin, and one more for the end. pending: scratch, 4 words per core. starts: a
    core does nothing before this cycle, having executed its instructions up to there already.
    """
    cores = registers.shape[0]
    while cycle < end:
        for core in range(cores):
            if starts[core] <= cycle and not _fast(
                registers, spans, first[core], first[core + 1], pending, core, cycle
            ):
                return cycle
        for core in range(cores):
            if starts[core] <= cycle:
                _execute(registers, spans, pending, core, cycle)
        cycle += 1
    return cycle


_region = numba.njit(cache=True)(costs.classify_address)


@numba.njit(cache=True)
def _stall(row, until, reason):
    row[STALL_UNTIL], row[STALL_REASON] = until, reason
    _count_stalled(row, 1)
    return False


@numba.njit(cache=True)
def _count_stalled(row, cycles):
    row[STALL_CYCLES] += cycles
    row[STALL_BY_REASON + row[STALL_REASON]] += cycles
    row[PENDING_STALL] += cycles


@numba.njit(cache=True)
def _integer_unit(row, word, a, b):
    """Return for how many cycles a product or division occupies the integer unit."""
    if word & 0x4000 == 0:
        return row[MULTIPLY]
    if b <= 1:
        return row[DIVIDE_TRIVIAL]
    return row[DIVIDE_LOWEST] if b == _MASK and a == 0x80000000 else row[DIVIDE]


@numba.njit(cache=True)
def _may_issue(row, word, cycle, a, b):
    """Do as RiscvCostState.can_issue, of a core whose registers rs1 and rs2 are `a` and `b`."""
    if cycle < row[STALL_UNTIL]:
        _count_stalled(row, 1)
        return False
    if word & 3 != 3:
        return True
    opcode = word & 0x7F
    uses = _REGISTER_READS[opcode]
    for read, register in ((_FIRST, (word >> 15) & 31), (_SECOND, (word >> 20) & 31)):
        if uses & read and row[READY + register] > cycle:
            return _stall(row, row[READY + register], _LOAD_USE)
    rd = (word >> 7) & 31
    if opcode == 0x03:
        region = _region((a + _extend(word >> 20, 12)) & _MASK)
        window, latency = row[SLOT_CYCLES + region], row[LOAD_LATENCY + region]
        if window:
            if row[LOAD_SLOTS] > cycle:
                return _stall(row, row[LOAD_SLOTS], _LOAD_RATE)
            # The slots are kept in the order in which they become free.
            slot, free = LOAD_SLOTS, cycle + window
            while slot + 1 < LOAD_SLOTS + LOAD_SLOT_COUNT and row[slot + 1] < free:
                row[slot] = row[slot + 1]
                slot += 1
            row[slot] = free
        row[LOADS_BY_REGION + region] += 1
        if rd:
            row[READY + rd] = cycle + latency if latency else 0
        return True
    if opcode == 0x23:
        address = (a + _extend((word >> 25) << 5 | rd, 12)) & _MASK
        if row[STORE_PERIOD] and address < _L1_END:
            if cycle < row[STORE_READY]:
                return _stall(row, row[STORE_READY], _STORE_RATE)
            row[STORE_READY] = cycle + row[STORE_PERIOD]
            row[L1_STORES] += 1
        return True
    if uses & _WRITTEN and rd:
        row[READY + rd] = 0
    if opcode == 0x33 and word >> 25 == 1:
        occupied = _integer_unit(row, word, a, b)
        if occupied > 1:
            row[STALL_UNTIL], row[STALL_REASON] = cycle + occupied, _INTEGER_UNIT
    return True


@numba.njit(cache=True)
def may_issue(costs_at, word, cycle, a, b):
    """Return whether the cost model lets a core execute an instruction in this cycle.

    costs_at: pointer to its row of the cost model. a, b: its registers rs1 and rs2.
    """
    return _may_issue(numba.carray(_pointer(costs_at), (COSTS,), np.int64), word, cycle, a, b)


@numba.njit(cache=True)
def run_ahead(words, rows, count, scratch, costs_at, cycle, most):
    """Execute one core's instruction of this cycle and, ahead of time, the following ones that work on registers and
    the core's own memory alone; return the number of cycles that they take, or 0 where the first one is slow.

    words: pointer to its 34 registers, with the next program counter. rows, count: pointer to its spans and how many.
    scratch: pointer to 4 words. costs_at: pointer to its row of the cost model, or 0. most: instructions.
    """
    registers = numba.carray(_pointer(words), (1, NEXT + 1), np.int64)
    spans = numba.carray(_pointer(rows), (count, 4), np.int64)
    pending = numba.carray(_pointer(scratch), (1, 4), np.int64)
    row = numba.carray(_pointer(costs_at), (COSTS,), np.int64)
    now, done, stalled = cycle, 0, False
    while done < most:
        if costs_at and now < row[STALL_UNTIL]:
            _count_stalled(row, row[STALL_UNTIL] - now)
            now, stalled = row[STALL_UNTIL], True
        if not _fast(registers, spans, 0, count, pending, 0, now):
            break
        word = pending[0, 0]
        if (
            now != cycle
            and (word & 0x7F == 0x03 or word & 0x7F == 0x23)
            and (spans[pending[0, 1], 0] != OWN or spans[pending[0, 1], 3] != RAM)
        ):
            break
        if costs_at and not _may_issue(row, word, now, registers[0, word >> 15 & 31], registers[0, word >> 20 & 31]):
            now, stalled = now + 1, True
            continue
        _execute(registers, spans, pending, 0, now)
        now, done, stalled = now + 1, done + 1, False
    if now != cycle:
        registers[0, NEXT] = (registers[0, PC] + 4) & _MASK if stalled else registers[0, PC]
    return now - cycle


@numba.njit(cache=True)
def unchanged(watched, count):
    """Return whether each of `count` watched words, rows of (address, bytes, contents), is as it was."""
    rows = numba.carray(_pointer(watched), (count, 3), np.int64)
    for i in range(count):
        if rows[i, 1] == 4:
            if numba.carray(_pointer(rows[i, 0]), (1,), np.uint32)[0] != rows[i, 2]:
                return False
        elif rows[i, 1] == 8:
            if numba.carray(_pointer(rows[i, 0]), (1,), np.int64)[0] != rows[i, 2]:
                return False
        elif _load(rows[i, 0], 0, rows[i, 1]) != rows[i, 2]:
            return False
    return True


@numba.njit(cache=True)
def tick_cores(table, count, first, cycle):
    """Tick a tile's cores from number `first` on for one cycle, in their order: a core that executes does so as in
    `run_ahead`, one that waits is left alone while its watched words are as they were, and so is one whose instruction
    the Tensix unit refuses or which is held in reset.

    table, count: address of the cores' rows and how many. Returns the number of the first core that Python has to
    execute; if there is none, `count` plus what is known of the next cycle (ALL_REST and so on).
    """
    rows = numba.carray(_pointer(table), (count, ROW), np.int64)
    for i in range(first, count):
        if cycle < rows[i, AHEAD] or rows[i, MODE] >= REFUSED:
            continue
        if rows[i, MODE] == PARKED:
            if unchanged(rows[i, WATCHED_AT], rows[i, WATCHED]):
                continue
            return i
        if rows[i, MODE] != RUNNING or cycle >= rows[i, ATTEMPT]:
            return i
        done = run_ahead(
            rows[i, REGISTERS_AT],
            rows[i, SPANS_AT],
            rows[i, SPANS],
            rows[i, SCRATCH_AT],
            rows[i, COSTS_AT],
            cycle,
            AT_ONCE,
        )
        if done == 0:
            return i
        rows[i, AHEAD] = cycle + done
    known = ALL_REST
    for i in range(count):
        if rows[i, MODE] < PARKED and rows[i, AHEAD] <= cycle + 1:
            if rows[i, MODE] == RUNNING:
                return count + ONE_RUNS
            known = UNKNOWN
    return count + known


@numba.njit(cache=True)
def next_wake(table, count, cycle):
    """Return the first cycle after this one in which one of a tile's cores executes by itself: 0 where none does, -1
    where Python has to look."""
    rows = numba.carray(_pointer(table), (count, ROW), np.int64)
    soonest = np.int64(0)
    for i in range(count):
        if rows[i, MODE] == RUNNING:
            at = max(rows[i, AHEAD], cycle + 1)
            if soonest == 0 or at < soonest:
                soonest = at
        elif rows[i, MODE] == BY_PYTHON or (
            rows[i, MODE] == PARKED and not unchanged(rows[i, WATCHED_AT], rows[i, WATCHED])
        ):
            return np.int64(-1)
    return soonest


def run(registers, spans, first, pending, cycle, end):
    """Do as `run_from` for cores that are at `cycle`."""
    return run_from(registers, spans, first, pending, np.zeros(len(registers), np.int64), cycle, end)


@numba.njit(cache=True)
def waiting_loop(registers, spans, first, last, trajectory, loads):
    """Return the length of the loop a core is in, if a lap of it stores nothing, reads memory and stream registers
    only, and changes no register.

    registers: a copy of one core's row, [1, 33], which is used up. trajectory: rows of 33, filled with the state before
    each step. loads: rows of (address, size). Returns (steps per lap or 0, loads noted).
    """
    pending = np.zeros((1, 4), np.int64)
    noted = 0
    for step in range(trajectory.shape[0]):
        if step and registers[0, PC] == trajectory[0, PC]:
            for i in range(33):
                if registers[0, i] != trajectory[0, i]:
                    return 0, noted
            return step, noted
        trajectory[step] = registers[0]
        if not _fast(registers, spans, first, last, pending, 0, 0):
            return 0, noted
        opcode = pending[0, 0] & 0x7F
        if opcode == 0x23:
            return 0, noted
        if opcode == 0x03:
            if spans[pending[0, 1], 3] != RAM and spans[pending[0, 1], 3] != STREAMS:
                return 0, noted
            loads[noted, 0], loads[noted, 1] = pending[0, 2], 1 << ((pending[0, 0] >> 12) & 3)
            noted += 1
        _execute(registers, spans, pending, 0, 0)
    return 0, noted
