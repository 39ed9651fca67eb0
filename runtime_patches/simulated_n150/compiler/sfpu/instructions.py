# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The vector instructions: what a line `sfpu <name> <operands>` reads and writes, and its encoding.

Operand names. A vector value is named by an int: 0-15 are the LREGs themselves (8-15 constant), larger ones
are values that still need a register. Encodings are those of the wheel's ckernel_ops.h; which registers an
instruction touches, and which take a second cycle, is from Tenstorrent's public ISA documentation
(WormholeB0/TensixTile).
"""

from typing import NamedTuple

COLOURS = 8  # LREG0-7
FIRST_VALUE = 16  # 8-15: constant LREGs

FLOAT_REGISTERS = {
    **{f"ft{n}": n for n in range(8)},
    "fs0": 8, "fs1": 9,
    **{f"fa{n}": 10 + n for n in range(8)},
    **{f"fs{n}": 16 + n for n in range(2, 12)},
    **{f"ft{n}": 20 + n for n in range(8, 12)},
}  # fmt: skip

# result = op(source): opcode
UNARY = {
    "mov": 0x7C, "iaddi": 0x79, "not": 0x80, "abs": 0x7D, "exexp": 0x77, "exman": 0x78, "setexpi": 0x82,
    "setmani": 0x83, "setsgni": 0x89, "divp2": 0x76, "lz": 0x81, "cast": 0x90, "stochrnd": 0x8E,
    "shft2": 0x94,
}  # fmt: skip
# target = op(target, source): opcode
IN_PLACE = {
    "iadd": 0x79, "and": 0x7E, "or": 0x7F, "xor": 0x8D, "shfti": 0x7A, "shft": 0x7A, "setexp": 0x82,
    "setman": 0x83, "setsgn": 0x89,
}  # fmt: skip
# A constant that a register holds anyway.
CONSTANT_BITS = {0x00000000: 9, 0x3F800000: 10, 0xBF800000: 11}
SFPNOP = 0x8F << 24


class Instruction:
    """One vector instruction. `writes` are the values it defines, `reads` those it needs, `tied` pairs (write, read)
    that must share a register because the instruction works in place."""

    __slots__ = ("fields", "line", "name", "reads", "runtime", "state", "tied", "writes")

    def __init__(self, name, writes=(), reads=(), tied=(), fields=(), runtime=None, line=-1):
        self.name = name
        self.writes = list(writes)
        self.reads = list(reads)
        self.tied = list(tied)  # indices: (position in writes, position in reads)
        self.fields = fields
        self.runtime = runtime  # (scratch, field, buffer): integer registers of a word completed at run time
        self.line = line
        self.state = 0  # lane-flag state it runs under

    @property
    def is_copy(self):
        return self.name == "copy"

    @property
    def is_pure(self):
        """Return whether dropping it is right when nobody reads what it writes."""
        return self.name not in EFFECTS

    def __repr__(self):
        return f"{self.name} {self.writes} <- {self.reads} {self.fields}"


EFFECTS = {"store", "setcc", "pushc", "popc", "compc", "config", "raw"}
SETS_FLAGS = {"setcc", "pushc", "popc", "compc"}
# A constant whose lower half is zero as an operand: opcode of the in-place form.
IMMEDIATE_FORM = {"mul": ("muli", 0x74), "add": ("addi", 0x75)}
TWO_CYCLES = {"mad", "mul", "add", "muli", "addi", "lut", "lutfp32", "swap", "shft2"}


def parse(tokens, line, register):
    """Return the instructions for one `sfpu` line; `register` maps an f register's name to a value."""
    name, args = tokens[0], tokens[1:]

    def number(text):
        return int(text, 0)

    def one(*a, **k):
        return [Instruction(*a, line=line, **k)]

    if name == "loadi":
        return one("loadi", [register(args[0])], fields=(number(args[1]) & 0xFFFFFFFF,))
    if name == "undefined":
        return one(name, [register(args[0])])
    if name == "loadi_rt":
        return one("loadi_rt", [register(args[0])], fields=(number(args[1]),), runtime=args[2:5])
    if name == "loadi_rt_part":
        d = register(args[0])
        return one("loadi_rt", [d], [d], [(0, 0)], fields=(number(args[1]),), runtime=args[2:5])
    if name == "const":
        return one("copy", [register(args[0])], [number(args[1])])
    if name == "assign":
        d = register(args[0])
        return one("assign", [d], [d, register(args[1])], [(0, 0)])
    if name in ("mad", "mul", "add"):
        return one(name, [register(args[0])], [register(a) for a in args[1:]])
    if name == "load":
        return one("load", [register(args[0])], fields=(number(args[1]), number(args[2])))
    if name == "load_rt":
        return one("load", [register(args[0])], fields=(number(args[1]), 0), runtime=args[2:5])
    if name == "store":
        return one("store", reads=[register(args[0])], fields=(number(args[1]), number(args[2])))
    if name == "store_rt":
        return one("store", reads=[register(args[0])], fields=(number(args[1]), 0), runtime=args[2:5])
    if name in UNARY or name in IN_PLACE:
        if args[2] == "rt":
            fields, runtime = (0, number(args[3])), args[4:7]
        else:
            fields, runtime = (number(args[2]), number(args[3])), None
        d, s = register(args[0]), register(args[1])
        if name in UNARY:
            return one(name, [d], [s], fields=fields, runtime=runtime)
        if name == "shfti":
            return one(name, [d], [d], [(0, 0)], fields=fields, runtime=runtime)
        return one(name, [d], [d, s], [(0, 0)], fields=fields, runtime=runtime)
    if name == "swap":
        a, b = register(args[0]), register(args[1])
        return one(name, [a, b], [a, b], [(0, 0), (1, 1)], fields=(number(args[2]),))
    if name == "setcc":
        return one(name, reads=[register(args[0])], fields=(number(args[1]),))
    if name in ("pushc", "popc", "compc"):
        return one(name)
    if name == "config":
        return one("copy", [0], [register(args[0])]) + one("config", reads=[0], fields=(number(args[1]),))
    if name == "pin_read":
        return one("copy", [register(args[0])], [number(args[1])])
    if name == "pin_write":
        return one("copy", [number(args[1])], [register(args[0])], fields=("pin",))
    if name == "pin_used":
        return []
    if name == "lut":
        places = (3, 0, 1, 2)
        copies = [Instruction("copy", [p], [register(a)], line=line) for p, a in zip(places, args[1:5])]
        return copies + one("lut", [register(args[0])], list(places), fields=(number(args[5]),))
    if name == "lutfp32":
        places = (3, 0, 1, 2, 4, 5, 6)
        copies = [Instruction("copy", [p], [register(a)], line=line) for p, a in zip(places, args[1:8])]
        return copies + one("lutfp32", [register(args[0])], list(places), fields=(number(args[8]),))
    raise ValueError(f"unknown vector instruction: sfpu {' '.join(tokens)}")


def parse_raw(word, line):
    """Return the instruction for a literal Tensix instruction word, or None if it is not the vector unit's.

    Only LREG0-7 count as read or written; `raw_flags` tells what it does to the lane flags.
    """
    opcode = word >> 24
    if not 0x70 <= opcode <= 0x95:
        return None
    b, c, d, mode = word >> 12 & 15, word >> 8 & 15, word >> 4 & 15, word & 15
    high = word >> 20 & 15
    if opcode == 0x70:
        reads, writes = [], [high]
        if word >> 16 & 15 in (14, 15):
            reads = [high]
    elif opcode == 0x71:
        reads, writes = ([high] if word >> 16 & 15 in (8, 10) else []), [high]
    elif opcode == 0x72:
        reads, writes = [high], []
    elif opcode == 0x73:
        reads, writes = [0, 1, 2, 3], [high]
    elif opcode in (0x74, 0x75, 0x7A, 0x7E, 0x7F, 0x8D):
        reads, writes = [c, d] if opcode not in (0x74, 0x75) else [d], [d]
    elif opcode in (0x79, 0x82, 0x83, 0x89):
        reads, writes = ([c] if mode & 1 else [c, d]), [d]
    elif opcode in (0x84, 0x85, 0x86):
        reads, writes = [word >> 16 & 15, b, c], [d]
        if mode & 12:
            reads, writes = list(range(8)), (list(range(8)) if mode & 8 else [d])
    elif opcode in (0x87, 0x88, 0x8A, 0x8B, 0x8F):
        reads, writes = [], []
    elif opcode == 0x7B:
        reads, writes = [c], []
    elif opcode == 0x8C:
        reads, writes = list(range(8)), list(range(8))
    elif opcode == 0x8E:
        reads, writes = ([c] if mode & 8 or mode & 7 not in (4, 5) else [b, c]), [d]
    elif opcode == 0x91:
        reads, writes = ([] if mode & 1 else [0]), []
    elif opcode == 0x92:
        reads, writes = [c, d], [c, d]
        if mode == 0 or c < 4 or d < 4:
            # With the index-tracking configuration a swap also swaps the registers four above.
            extra = [4 + (n & 3) for n in (c, d)]
            reads, writes = reads + extra, writes + extra
    elif opcode == 0x93:
        reads, writes = list(range(8)), list(range(8))
    elif opcode == 0x94:
        if mode in (0, 1, 2):
            reads, writes = [0, 1, 2, 3] + ([c] if mode == 2 else []), [0, 1, 2, 3]
        else:
            reads, writes = [b, c] if mode in (5, 6) else [c], [d]
    elif opcode == 0x95:
        reads, writes = list(range(7)), [d]
    else:
        reads, writes = [c], [d]
    return Instruction("raw", [w for w in writes if w < 8], [r for r in reads if r < 8], fields=(word,), line=line)


class TracedStep(NamedTuple):
    """A REPLAY word: slots of the replay buffer, whether it records into them, and whether it runs what it records."""

    slots: range
    records: bool
    executes: bool


def parse_replay(word):
    """Return the meaning of a literal REPLAY word, None for any other."""
    if word >> 24 != 0x04:
        return None
    start, count = word >> 14 & 31, word >> 4 & 0x3FF
    return TracedStep(range(start, start + count), bool(word & 1), bool(word & 2))


def raw_flags(word):
    """Return 'narrow' for a word that changes lane flags, 'reset' for all lanes active, 'push', 'pop' or None."""
    opcode, mode, d = word >> 24, word & 15, word >> 4 & 15
    if opcode == 0x8A:
        return "reset"
    if opcode == 0x87:
        return "push"
    if opcode == 0x88:
        return "pop" if mode == 0 else "narrow"
    if opcode in (0x7B, 0x8B):
        return "narrow"
    if opcode == 0x79 and d < 8 and (not mode & 4 or mode & 8):
        return "narrow"
    if (opcode == 0x77 and mode & 10) or (opcode == 0x81 and mode & 10):
        return "narrow"
    return None


def _load_immediate_words(d, bits):
    low, high = bits & 0xFFFF, bits >> 16
    base = 0x71 << 24 | d << 20
    if low == 0:
        return [base | high]
    if high == 0:
        return [base | 2 << 16 | low]
    if bits >= 0xFFFF8000:
        return [base | 4 << 16 | low]
    return [base | 10 << 16 | low, base | 8 << 16 | high]


def words(ins):
    """Return the instruction words of `ins`, whose values are all registers now; the runtime field is left zero."""
    name, w, r, f = ins.name, ins.writes, ins.reads, ins.fields
    if name == "undefined":
        return []
    if name == "loadi":
        return _load_immediate_words(w[0], f[0])
    if name == "loadi_rt":
        return [0x71 << 24 | w[0] << 20 | f[0] << 16]
    if name == "copy":
        return [] if w[0] == r[0] else [0x7C << 24 | r[0] << 8 | w[0] << 4 | 2]
    if name == "assign":
        return [] if w[0] == r[1] else [0x7C << 24 | r[1] << 8 | w[0] << 4]
    if name == "mad":
        return [0x84 << 24 | r[0] << 16 | r[1] << 12 | r[2] << 8 | w[0] << 4]
    if name == "mul":
        return [0x86 << 24 | r[0] << 16 | r[1] << 12 | 9 << 8 | w[0] << 4]
    if name == "add":
        return [0x85 << 24 | 10 << 16 | r[0] << 12 | r[1] << 8 | w[0] << 4]
    if name in ("muli", "addi"):
        return [(0x74 if name == "muli" else 0x75) << 24 | f[0] << 8 | w[0] << 4]
    if name in ("load", "store"):
        opcode, reg = (0x70, w[0]) if name == "load" else (0x72, r[0])
        return [opcode << 24 | reg << 20 | f[0] << 16 | (f[1] & 0xFFFF)]
    if name == "stochrnd":
        return [0x8E << 24 | f[0] << 21 | r[0] << 8 | w[0] << 4 | f[1]]
    if name in UNARY:
        return [UNARY[name] << 24 | (f[0] & 0xFFF) << 12 | r[0] << 8 | w[0] << 4 | f[1]]
    if name == "shfti":
        return [0x7A << 24 | (f[0] & 0xFFF) << 12 | w[0] << 4 | f[1]]
    if name in IN_PLACE:
        return [IN_PLACE[name] << 24 | r[1] << 8 | w[0] << 4 | f[1]]
    if name == "swap":
        return [0x92 << 24 | w[1] << 8 | w[0] << 4 | f[0]]
    if name == "setcc":
        return [0x7B << 24 | r[0] << 8 | f[0]]
    if name == "pushc":
        return [0x87 << 24]
    if name == "popc":
        return [0x88 << 24]
    if name == "compc":
        return [0x8B << 24]
    if name == "config":
        return [0x91 << 24 | f[0] << 4]
    if name == "lut":
        return [0x73 << 24 | w[0] << 20 | f[0] << 16]
    if name == "lutfp32":
        return [0x95 << 24 | w[0] << 4 | f[0]]
    raise ValueError(f"no encoding for {ins}")
