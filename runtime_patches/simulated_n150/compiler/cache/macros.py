# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which macros of its command line a unit depends on.

Every unit is given macros that differ from chip to chip and that few units look at: a unit that names none of them is
the same for all chips.
"""

# Macros of the command line that differ from chip to chip, or with the fabric that a chip is part of.
VARYING = (
    "FULL_KERNEL_NAME",
    "NUM_DRAM_BANKS",
    "NUM_L1_BANKS",
    "LOG_BASE_2_OF_NUM_DRAM_BANKS",
    "LOG_BASE_2_OF_NUM_L1_BANKS",
    "IS_NOT_POW2_NUM_DRAM_BANKS",
    "IS_NOT_POW2_NUM_L1_BANKS",
    "PCIE_NOC_X",
    "PCIE_NOC_Y",
    "DISPATCH_MESSAGE_ADDR",
    "ROUTING_MODE",
    "FABRIC_1D_PKT_HDR_EXTENSION_WORDS",
)
UNREPEATABLE = (b"__DATE__", b"__TIME__", b"__TIMESTAMP__")
_SOUGHT = (*(name.encode() for name in VARYING), *UNREPEATABLE)


def telling_lines(text):
    """Return the lines of `text` (bytes) with a word of VARYING or UNREPEATABLE, as one text."""
    lines = {}
    for word in _SOUGHT:
        at = text.find(word)
        while at >= 0:
            start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
            end = len(text) if end < 0 else end
            lines[start] = text[start:end]
            at = text.find(word, end)
    return b"\n".join(lines.values())


def mattering(names, text, machine_code):
    """Return those of the macros `names` that a unit may depend on: they occur in `text`, the telling lines of all that
    went into the unit.

    A macro that only sets the length of arrays which the unit's machine code does not name is left out: every compute
    unit includes the declarations of the tables of banks, by the number of banks, and none reads them. Code that takes
    the size of such an array takes its address too (tt-metal, hw/inc/internal/firmware_common.h). So are macros in
    comments and in what is for Quasar. machine_code: the unit's, with the names of what it refers to; None where it is
    bytecode.
    """
    found = [name for name in names if name.encode() in text]
    if machine_code is None or not found:
        return found
    matter = []
    for name in found:
        word, at = name.encode(), -1
        while (at := text.find(word, at + 1)) >= 0:
            end = text.find(b"\n", at)
            line = text[text.rfind(b"\n", 0, at) + 1 : len(text) if end < 0 else end]
            if line.lstrip().startswith((b"//", b"#if defined(ARCH_QUASAR) &&")):
                continue
            array = declared_array(line)
            if array is None or array in machine_code:
                matter.append(name)
                break
    return matter


def declared_array(line):
    """Return the name of the array that a line (bytes) declares, as in `extern type name[size][size];`; None where the
    line is more than that."""
    words = line.strip().split(b" ")
    if len(words) != 3 or words[0] != b"extern" or not words[2].endswith(b"];"):
        return None
    name, *sizes = words[2].removesuffix(b"];").replace(b"][", b"[").split(b"[")
    is_word = [word.replace(b"_", b"a").isalnum() for word in (words[1], name, *sizes)]
    return name if sizes and all(is_word) else None
