# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the cache of objects and the precompiled headers ask of each source that a unit read.

That is some hundred sources for every unit, nearly all of them the same ones of the runtime root: reading and
searching them took as much as the rest of the driver. So what was found is remembered for those of a root, by their
identity there (store.Root.identity), on which the cache of objects relies as well.
"""

from . import store
from .kernel_headers import EMITTING

# Macros of the command line that differ from chip to chip, or by the fabric a chip is part of, and that few units look
# at.
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
# Every byte that is no part of an identifier -> a space.
_WORDS = bytes(c if chr(c).isalnum() and c < 128 or c == ord("_") else ord(" ") for c in range(256))
_SOUGHT = (*(name.encode() for name in VARYING), *UNREPEATABLE)
_EMITTING = tuple(dict.fromkeys(name for names in EMITTING.values() for name in names))


def telling_lines(text):
    """The lines of `text` (bytes) with a word of VARYING or UNREPEATABLE, as one text."""
    lines = {}
    for word in _SOUGHT:
        at = text.find(word)
        while at >= 0:
            start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
            end = len(text) if end < 0 else end
            lines[start] = text[start:end]
            at = text.find(word, end)
    return b"\n".join(lines.values())


def defined_macros(text):
    """(name, whether a parenthesis follows it at once) of what a source (bytes) defines or undefines, as bytes."""
    for directive in (b"define", b"undef"):
        at = -1
        while (at := text.find(directive, at + 1)) >= 0:
            before = text[text.rfind(b"\n", 0, at) + 1 : at]
            start, end = at + len(directive), text.find(b"\n", at)
            rest = text[start : len(text) if end < 0 else end]
            following = rest.lstrip(b" \t")
            name = following.translate(_WORDS).partition(b" ")[0]
            if before.strip(b" \t") == b"#" and following != rest and name:
                yield name, following.startswith(b"(", len(name))


def includes(text, name):
    """True where a source (bytes) includes a header called `name` (bytes) whatever is defined."""
    conditions = 0
    for line in text.split(b"\n") if name in text else ():
        directive = line.strip().removeprefix(b"#").lstrip()
        if line.lstrip().startswith(b"#"):
            conditions += directive.startswith(b"if") - directive.startswith(b"endif")
            named = directive.removeprefix(b"include").strip().strip(b'<">')
            if not conditions and directive.startswith(b"include") and named == name:
                return True
    return False


def facts_of(text):
    """(telling lines, macros defined, headers of EMITTING included whatever is defined) of a source (bytes)."""
    included = tuple(name for name in _EMITTING if includes(text, name.encode()))
    return telling_lines(text), tuple(defined_macros(text)), included


class Texts:
    """What is known of the sources that one unit read, once it is compiled.

    root: the runtime root. place: the file in which what was found is remembered for all units.
    """

    def __init__(self, root, place):
        self._root, self._place = root, place
        self._known = store.read_sealed(place) or {}
        self._identities, self._facts, self._more = {}, {}, False

    def identity(self, path):
        """As store.Root.identity has it; asked once of each file."""
        if path not in self._identities:
            self._identities[path] = self._root.identity(path)
        return self._identities[path]

    def facts(self, path):
        """What facts_of tells of the source at `path`: absolute, or below %ROOT%."""
        if path not in self._facts:
            self._facts[path] = self._remembered(path) if path.startswith("%ROOT%/") else self._read(path)
        return self._facts[path]

    def _read(self, path):
        return facts_of(store.read(path.replace("%ROOT%", self._root.path)))

    def _remembered(self, path):
        key = (path, self.identity(path))
        if key in self._known:
            return self._known[key]
        facts = self._read(path)
        if self._root.identity(path) == key[1]:  # else it was changed before it was read
            self._known[key] = facts
            self._more = True
        return facts

    def save(self) -> None:
        """Remember what was found. Of two writers at once the last wins: the other's finds are found again."""
        if self._more:
            store.write_sealed(self._place, self._known)
            self._more = False


def of(root, place):
    """The Texts of the unit this process compiles in `root`."""
    if root.texts is None:
        root.texts = Texts(root, place)
    return root.texts
