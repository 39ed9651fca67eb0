# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Turn GCC's assembly of a TRISC unit into one for the vector unit: see sfpi/sfpi_layer/registers.h.

Lines `sfpu ...` become Tensix instruction words, GCC's moves between f registers become SFPMOV or vanish, and any other
float instruction is an error that names the function.
"""

import re

from .allocator import Block, OutOfRegisters, allocate
from .instructions import (
    FIRST_VALUE,
    FLOAT_REGISTERS,
    SFPNOP,
    TWO_CYCLES,
    Instruction,
    parse,
    words,
)
from .literals import Literals

BRANCHES = {
    "beq",
    "bne",
    "blt",
    "bge",
    "bltu",
    "bgeu",
    "bgt",
    "ble",
    "bgtu",
    "bleu",
    "beqz",
    "bnez",
    "blez",
    "bgez",
    "bltz",
    "bgtz",
}
JUMPS = {"j", "jr", "ret", "tail", "mret", "ebreak"}
# What the assembler would take for float code on this core.
_FLOAT = re.compile(r"^(f\w+\.[swdx]|fl[wd]|fs[wd]|fmv\.\w+\.\w+|fl[wd]sp|fs[wd]sp)\b")
_TYPE = re.compile(r"^\s*\.type\s+([^\s,]+),\s*@function")
_LABEL = re.compile(r"^([.\w$]+):")


class VectorError(Exception):
    """A function cannot be translated; the message names it and says why."""


def _value(name):
    return FIRST_VALUE + FLOAT_REGISTERS[name]


def _float_error(function, text):
    mnemonic = text.split()[0]
    if mnemonic in ("flw", "fsw", "fld", "fsd"):
        why = (
            "a vector value is live across a call, or is in an array with a runtime index: "
            "inline the call or unroll the loop"
        )
    elif mnemonic.startswith("fmv"):
        why = (
            "a vector value passes through a function that was not inlined (mark it always_inline), "
            "or a scalar float is computed at run time (pass its bits as an integer)"
        )
    else:
        why = "float arithmetic on a scalar, for which a TRISC has no unit"
    return VectorError(f"in function {function}: '{' '.join(text.split())}': {why}")


def _read_function(function, lines, first, last):
    """Return the blocks of lines[first:last], and the lines that carry a translated instruction."""
    blocks, labels, jumps, taken = [Block()], {}, [], set()
    open_end = True
    literals = Literals()
    for number in range(first, last):
        text = lines[number].strip()
        if not text or text[0] in "#":
            continue
        label = _LABEL.match(text)
        if label:
            literals.interrupt()
            if blocks[-1].instructions or (jumps and jumps[-1][0] == len(blocks) - 1) or labels:
                previous = len(blocks) - 1
                blocks.append(Block())
                if open_end:
                    blocks[previous].successors.append(previous + 1)
            labels[label.group(1)] = len(blocks) - 1
            open_end = True
            text = text[label.end() :].strip()
            if not text:
                continue
        if text[0] == ".":
            if text.startswith(".ttinsn"):
                word = int(text.split()[1], 0) & 0xFFFFFFFF
                blocks[-1].instructions += literals.executed(word, number)
            continue
        tokens = text.replace(",", " ").split()
        mnemonic = tokens[0]
        if mnemonic == "sfpu":
            literals.recording.clear()  # how many words it becomes is not known here: what follows counts as executed
            try:
                blocks[-1].instructions += parse(tokens[1:], number, _value)
            except KeyError as missing:
                raise VectorError(f"in function {function}: '{text}': {missing} is no vector register") from None
            taken.add(number)
        elif mnemonic == "fmv.s":
            copy = Instruction("copy", [_value(tokens[1])], [_value(tokens[2])], line=number)
            blocks[-1].instructions.append(copy)
            taken.add(number)
        elif mnemonic in ("fmv.w.x", "fmv.s.x") and tokens[2] in ("zero", "x0"):
            # GCC gives a variable without initializer a zero where it is first read.
            blocks[-1].instructions.append(Instruction("undefined", [_value(tokens[1])], line=number))
            taken.add(number)
        elif _FLOAT.match(mnemonic):
            raise _float_error(function, text)
        elif mnemonic in BRANCHES or mnemonic in JUMPS:
            literals.interrupt()
            here = len(blocks) - 1
            jumps.append((here, tokens[-1] if mnemonic in BRANCHES or mnemonic == "j" else None))
            open_end = mnemonic in BRANCHES
            blocks.append(Block())
            if open_end:
                blocks[here].successors.append(here + 1)
                open_end = True
            else:
                open_end = False
        elif mnemonic == "call":
            literals.interrupt()
        else:
            word = literals.stored(tokens)
            if word is not None:
                blocks[-1].instructions += literals.executed(word, number)
    for block, target in jumps:
        if target in labels:
            blocks[block].successors.append(labels[target])
    return blocks, taken


def _emit(ins, code):
    """Append the assembly of one allocated instruction to `code`."""
    encoded = words(ins)
    if ins.runtime is None:
        code += [f"\t.ttinsn\t{word:#x}" for word in encoded]
        return
    scratch, field, buffer = ins.runtime
    code += [
        f"\tli\t{scratch},{encoded[0]:#x}",
        f"\tadd\t{scratch},{scratch},{field}",
        f"\tsw\t{scratch},0({buffer})",
    ]


def _translate(function, lines, first, last, output):
    blocks, taken = _read_function(function, lines, first, last)
    if taken:
        try:
            allocate(blocks)
        except OutOfRegisters as failure:
            raise VectorError(
                f"in function {function}: {failure.needed} vector values are needed at once and the vector "
                "unit has 8 registers, with nowhere to spill to"
            ) from None
    code = {}
    for block in blocks:
        pending, pending_ours, place = set(), False, None
        for ins in block.instructions:
            ours = ins.name != "raw"
            emits = not ours or bool(words(ins))
            place = code.setdefault(ins.line, [])
            if emits:
                # A result of a two-cycle instruction cannot be read by the very next one.
                if pending & set(ins.reads) and (ours or pending_ours):
                    place.append(f"\t.ttinsn\t{SFPNOP:#x}")
                pending = set(ins.writes) if ours and ins.name in TWO_CYCLES else set()
                pending_ours = ours
            if ours:
                _emit(ins, place)
        if pending and pending_ours and place is not None:
            place.append(f"\t.ttinsn\t{SFPNOP:#x}")
    for number in range(first, last):
        output += code.get(number, ())
        if number not in taken:
            output.append(lines[number])


def translate(assembly):
    """Return `assembly` of one unit with every vector instruction encoded.

    Errors: VectorError when a function holds real float code, or needs more than eight vector registers.
    """
    lines = assembly.split("\n")
    output, number = [], 0
    functions = set()
    while number < len(lines):
        kind = _TYPE.match(lines[number])
        if kind:
            functions.add(kind.group(1))
        label = _LABEL.match(lines[number])
        if label and label.group(1) in functions:
            end = number + 1
            size = f".size\t{label.group(1)},"
            while end < len(lines) and not lines[end].lstrip().startswith(size):
                end += 1
            _translate(label.group(1), lines, number, end, output)
            number = end
            continue
        output.append(lines[number])
        number += 1
    return "\n".join(output)
