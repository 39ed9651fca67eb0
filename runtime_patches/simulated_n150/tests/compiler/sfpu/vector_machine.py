# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A few lanes of a vector unit, to run a program before and after its registers are allocated.

Before: `sfpu` lines over 32 f registers, in which lanes that are not active keep what a register held. After:
words over eight LREGs. Only integer instructions, whose results are exact. Every store is recorded with its
active lanes.
"""

from __future__ import annotations

LANES = 8
MASK = 0xFFFFFFFF


class Lanes:
    """Registers, lane flags and the stores made."""

    def __init__(self, junk):
        self.registers = junk  # name -> list of words; unknown ones get what this gives
        self.flags = [True] * LANES
        self.stack = []
        self.stores = []

    def write(self, name, values, all_lanes=False):
        old = list(self.registers[name])
        self.registers[name] = [v & MASK if all_lanes or f else o for v, o, f in zip(values, old, self.flags)]

    def narrow(self, values):
        self.flags = [f and v for f, v in zip(self.flags, values)]

    def push(self):
        self.stack.append(list(self.flags))

    def pop(self):
        self.flags = self.stack.pop()

    def complement(self):
        top = self.stack[-1] if self.stack else [True] * LANES
        self.flags = [t and not f for t, f in zip(top, self.flags)]

    def store(self, values, address):
        self.stores.append((address, tuple(v if f else None for v, f in zip(values, self.flags))))

    def compare(self, values, mode):
        tests = {
            0: lambda v: v >> 31 == 1,
            2: lambda v: v != 0,
            4: lambda v: v >> 31 == 0,
            6: lambda v: v == 0,
        }
        self.narrow([tests[mode](v) for v in values])


def run_lines(lines, lanes):
    """The program as GCC leaves it."""
    for line in lines:
        name, *a = line.split()[1:]
        r = lanes.registers
        if name == "loadi":
            lanes.write(a[0], [int(a[1], 0)] * LANES)
        elif name == "undefined":
            pass
        elif name == "const":
            lanes.write(a[0], [{9: 0, 10: 0x3F800000, 11: 0xBF800000}[int(a[1])]] * LANES)
        elif name == "assign":
            lanes.write(a[0], r[a[1]])
        elif name == "not":
            lanes.write(a[0], [~v for v in r[a[1]]])
        elif name == "iaddi":
            lanes.write(a[0], [v + sign_extend(int(a[2]), 12) for v in r[a[1]]])
        elif name in ("iadd", "xor", "and", "or"):
            lanes.write(a[0], integer(name, r[a[0]], r[a[1]], int(a[3])))
        elif name == "swap":
            low, high = order(r[a[0]], r[a[1]])
            lanes.write(a[0], low)
            lanes.write(a[1], high)
        elif name == "load":
            lanes.write(a[0], [int(a[2]) * 1000003 + lane for lane in range(LANES)])
        elif name == "store":
            lanes.store(r[a[0]], int(a[2]))
        elif name == "setcc":
            lanes.compare(r[a[0]], int(a[1]))
        elif name == "pushc":
            lanes.push()
        elif name == "popc":
            lanes.pop()
        elif name == "compc":
            lanes.complement()
        elif name == "move":
            lanes.write(a[0], r[a[1]], all_lanes=True)
        else:
            raise ValueError(line)


def run_words(words, lanes):
    """The same program as instruction words."""
    r = lanes.registers
    for word in words:
        opcode, c, d, mode, immediate = (
            word >> 24,
            word >> 8 & 15,
            word >> 4 & 15,
            word & 15,
            word >> 12 & 0xFFF,
        )
        high = word >> 20 & 15
        if opcode == 0x71:
            kind, value = word >> 16 & 15, word & 0xFFFF
            loaded = {0: value << 16, 2: value, 4: sign_extend(value, 16)}.get(kind)
            if loaded is not None:
                lanes.write(high, [loaded] * LANES)
            elif kind == 10:
                lanes.write(high, [v & 0xFFFF0000 | value for v in r[high]])
            else:
                lanes.write(high, [v & 0xFFFF | value << 16 for v in r[high]])
        elif opcode == 0x7C:
            lanes.write(d, r[c], all_lanes=mode == 2)
        elif opcode == 0x80:
            lanes.write(d, [~v for v in r[c]])
        elif opcode == 0x79 and mode & 1:
            lanes.write(d, [v + sign_extend(immediate, 12) for v in r[c]])
        elif opcode in (0x79, 0x8D, 0x7E, 0x7F):
            name = {0x79: "iadd", 0x8D: "xor", 0x7E: "and", 0x7F: "or"}[opcode]
            lanes.write(d, integer(name, r[d], r[c], mode))
        elif opcode == 0x92:
            low, high_values = order(r[d], r[c])
            lanes.write(d, low)
            lanes.write(c, high_values)
        elif opcode == 0x70:
            lanes.write(high, [(word & 0x3FF) * 1000003 + lane for lane in range(LANES)])
        elif opcode == 0x72:
            lanes.store(r[high], word & 0x3FF)
        elif opcode == 0x7B:
            lanes.compare(r[c], mode)
        elif opcode == 0x87:
            lanes.push()
        elif opcode == 0x88:
            lanes.pop()
        elif opcode == 0x8B:
            lanes.complement()
        elif opcode != 0x8F:
            raise ValueError(f"{word:#010x}")


def integer(name, target, source, mode):
    if name == "iadd":
        return [s - t if mode & 2 else s + t for t, s in zip(target, source)]
    return [{"xor": t ^ s, "and": t & s, "or": t | s}[name] for t, s in zip(target, source)]


def order(a, b):
    def rank(v):
        return -(v & 0x7FFFFFFF) - 1 if v >> 31 else v

    pairs = [(x, y) if rank(x) <= rank(y) else (y, x) for x, y in zip(a, b)]
    return [p[0] for p in pairs], [p[1] for p in pairs]


def sign_extend(value, width):
    return value - (1 << width) if value >> (width - 1) & 1 else value
