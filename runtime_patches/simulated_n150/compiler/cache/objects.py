# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A cache of compiled units and linked kernels that all runtime roots of one toolchain share.

The runtime's own kernel cache is keyed by the runtime root, and a root by every file of it, so that a chip with
another grid or one more patched stub compiles everything again. Here a unit is known by what went into it:

    its command line, without places (root, output) and without the macros of VARYING,
    the text of the headers that the runtime generated for it,
    every file that it included (the dependency file names them): none of them has changed,
    the macros of VARYING that occur in any of these texts: each has the value it had,
    and no file of the root, new or gone, has the name of an included one (it could be found before it).

A link, and the header of the standard library that the runtime precompiles for each root, is known by its command line
and the content of every file it names. An entry is a file that is written whole and carries its digest: of concurrent
writers the last wins, and a damaged entry is compiled again.
"""

import os

from . import store
from .macros import UNREPEATABLE, VARYING, mattering, telling_lines

ENTRIES = 8  # per command line: as many sets of files are remembered, the newest first


class Unit:
    """One call of the compiler or the linker, and the place of its result in the cache.

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
        self.varying = dict.fromkeys(VARYING)
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
        """Return an argument of a link; one that names a file becomes the file's content."""
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
        """Write the output, and the dependency file of a unit, from the cache; return False where it has none."""
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

    def keep(self) -> bool:
        """Put what was just compiled or linked into the cache; return False where it must not be kept."""
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
                    entry["files"].append((path, self.root.identity(path)))
                telling.append(telling_lines(store.read(path.replace("%ROOT%", self.root.path))))
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
    """Return {path: content} of the sources in a unit's two folders, where the runtime writes what it generates for
    it."""
    found = {}
    for folder in (".", ".."):
        for name in sorted(os.listdir(folder)):
            if name.endswith(store.SOURCE_SUFFIXES):
                path = os.path.normpath(f"{folder}/{name}")
                found[path] = store.read(path)
    return found


def dependencies(text):
    """Return the files that a dependency file names after the colon of its first rule."""
    rule = text.replace("\\\n", " ").split("\n", 1)[0]
    return rule.partition(": ")[2].split()
