# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A cache of compiled units and linked kernels that all runtime roots of one toolchain share.

The runtime's own kernel cache is keyed by the runtime root, and a root by every file of it, so that a chip of
another grid or one more patched stub compiles everything again. Here a unit is known by what went into it:

    its command line, without places (root, output) and without the macros of VARYING,
    the text of the headers the runtime generated for it,
    every file it included (the dependency file names them): none of them changed,
    the macros of VARYING that occur in any of these texts: each has the value it had,
    and no file of the root, new or gone, has the name of an included one (it could be found before it).

A link, and the header of the standard library that the runtime precompiles for each root, is known by its
command line and the content of every file it names. An entry is a file that is written
whole and carries its digest: of concurrent writers the last wins, and a damaged one is compiled again.
"""

import os

from . import store
from .texts import UNREPEATABLE, VARYING, telling_lines

ENTRIES = 8  # of one command line: as many sets of files are remembered, the newest first


class Unit:
    """One call of the compiler or the linker, and where its result stands in the cache.

    arguments: of the call. root: the runtime root, None where nothing is compiled. folder: of the cache.
    base: what the result depends on besides, such as the compiler itself.
    """

    def __init__(self, arguments, root, folder, base):
        self.root, self.folder = root, folder
        self.output = arguments[arguments.index("-o") + 1]
        self.compiles = "-c" in arguments
        # Other cores' units are bytecode of the link-time optimiser.
        self.machine_code = "-mcpu=tt-wh-tensix" in arguments
        self.depends = arguments[arguments.index("-MF") + 1] if "-MF" in arguments else None
        self.varying = {name: None for name in VARYING}
        self.included = None
        key, skip = [*base, "unit" if self.compiles else "link"], ""
        for argument in arguments:
            if skip:
                if skip == "-include" and os.path.isabs(argument):
                    self.included = argument
                    argument = store.digest([store.read(argument)])
                key += [argument] if skip == "-include" else []
                skip = ""
            elif argument in ("-o", "-MF", "-include"):
                skip = argument
            elif argument.startswith("-D") and argument[2:].split("=", 1)[0] in self.varying:
                self.varying[argument[2:].split("=", 1)[0]] = argument
            elif self.compiles:
                key.append(root.portable(argument))
            else:
                key.append(self._linked(argument))
        if self.compiles:
            self.generated = generated_sources()
            for name, text in self.generated.items():
                key += [name, root.portable(text.decode("utf-8", "surrogateescape"))]
        self.key = store.digest(key)
        self._words = key

    @staticmethod
    def _linked(argument):
        """An argument of a link; one that names a file becomes the file's content."""
        for option in ("-Wl,--just-symbols=", "-T", ""):
            path = argument[len(option) :]
            if argument.startswith(option) and os.path.isabs(path) and os.path.isfile(path):
                return f"{option}{os.path.basename(path).split('.')[0]}:{store.digest([store.read(path)])}"
        return argument

    def _entries(self):
        return f"{self.folder}/{self.key[:2]}/{self.key}"

    def _usable(self, entry) -> bool:
        if any(self.varying[name] != value for name, value in entry["macros"].items()):
            return False
        if not entry["files"]:
            return True  # all that went into it is in the key
        return self.root.reads_the_same(entry["files"], entry["sources"])

    def fetch(self) -> bool:
        """Write the output, and the dependency file of a unit, from the cache; False where it has none."""
        for entry in store.read_sealed(self._entries()) or ():
            if not self._usable(entry):
                continue
            result = store.read_sealed(f"{self.folder}/{entry['result'][:2]}/{entry['result']}")
            if result is None:
                return False
            store.write_whole(self.output, result["output"])
            if self.compiles:
                text = result["depends"].replace("%ROOT%", self.root.path)
                text = text.replace("%INCLUDED%", self.included or "").replace("%OUTPUT%", self.output)
                store.write_whole(self.depends, text.encode("utf-8", "surrogateescape"))
            else:
                os.chmod(self.output, 0o755)
            return True
        return False

    def keep(self, texts) -> bool:
        """Put what was just compiled or linked into the cache; False where it must not be kept.

        texts: a texts.Texts; None after a link.
        """
        entry: dict = {"macros": {}, "files": [], "sources": {}}
        result = {"output": store.read(self.output)}
        if self.compiles:
            text = self.root.portable(store.read(self.depends).decode("utf-8", "surrogateescape"))
            paths = dependencies(text)
            text = text.replace(self.output, "%OUTPUT%")
            result["depends"] = text.replace(self.included, "%INCLUDED%") if self.included else text
            telling = [telling_lines(word.encode("utf-8", "surrogateescape")) for word in self._words]
            for path in paths:
                # The header the runtime precompiles and those it generates are in the key, with their content.
                if path != self.included and os.path.normpath(path) not in self.generated:
                    entry["files"].append((path, texts.identity(path)))
                telling.append(texts.facts(path)[0])
            texts.save()
            whole = b"\n".join(telling)
            if any(word in whole for word in UNREPEATABLE):
                return False
            matter = mattering(self.varying, whole, result["output"] if self.machine_code else None)
            entry["macros"] = {name: self.varying[name] for name in matter}
            entry["sources"] = self.root.sources()
        name = store.digest([self.key, repr(entry)])
        entry["result"] = name
        store.write_sealed(f"{self.folder}/{name[:2]}/{name}", result)
        others = [e for e in store.read_sealed(self._entries()) or () if e["result"] != name]
        store.write_sealed(self._entries(), [entry, *others][:ENTRIES])
        return True


def generated_sources():
    """{path: content} of the sources in a unit's two folders, where the runtime writes what it generates for it."""
    found = {}
    for folder in (".", ".."):
        for name in sorted(os.listdir(folder)):
            if name.endswith(store.SOURCE_SUFFIXES):
                path = os.path.normpath(f"{folder}/{name}")
                found[path] = store.read(path)
    return found


def mattering(names, text, machine_code):
    """Those of the macros `names` that a unit may depend on: they occur in `text`, the lines of all that went into it
    which name one.

    Not those that say nothing but how long arrays are which the unit's machine code does not name: every compute unit
    includes the declarations of the tables of banks, by the number of banks, and none reads them. What takes such an
    array's size takes its address too (tt-metal, hw/inc/internal/firmware_common.h). Nor those in comments and in what
    is for Quasar. machine_code: of the unit, with the names of what it refers to; None where it is bytecode.
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
    """Name of the array that a line (bytes) declares, as in `extern type name[size][size];`; None where it is more."""
    words = line.strip().split(b" ")
    if len(words) != 3 or words[0] != b"extern" or not words[2].endswith(b"];"):
        return None
    name, *sizes = words[2].removesuffix(b"];").replace(b"][", b"[").split(b"[")
    is_word = [word.replace(b"_", b"a").isalnum() for word in (words[1], name, *sizes)]
    return name if sizes and all(is_word) else None


def dependencies(text):
    """The files that a dependency file names after the colon of its first rule."""
    rule = text.replace("\\\n", " ").split("\n", 1)[0]
    return rule.partition(": ")[2].split()


def with_dependencies(text, more):
    """A dependency file whose first rule names the files `more` as well; it keeps no other rule."""
    target = text.partition(": ")[0]
    named = dependencies(text)
    return " \\\n ".join([f"{target}:", *named, *(path for path in more if path not in named)]) + "\n"
