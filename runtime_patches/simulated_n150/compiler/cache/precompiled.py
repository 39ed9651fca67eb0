# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Precompiled headers of kernel units: what all kernels of a core read, parsed once for all of them.

The runtime precompiles a few headers of the standard library and includes them first in every unit. Here that
header is replaced by a longer one: the same, then the headers of HEADERS, which every kernel of such a core
reads sooner or later. It saves 0.04 s of the 0.2 s of a data movement unit and 0.07 of the 0.3 to 0.5 s of a
compute unit. One header serves all roots in which the files it holds are the same, whatever else differs.

A header is read earlier than the unit would read it, so no macro that the unit has at that place and not at
the start may have a say in it. That is checked, never assumed: `words` are all identifiers of the precompiled
text and all macros it asked for, and a unit that defines one of them, on the command line or in any file
outside the precompiled ones, is compiled as without this module. So is one that does not include by itself what
would leave functions in its object by being there (EMITTING). GCC itself refuses a precompiled header made with
other options.

It takes a few units to get one made (WANTED): that costs as much as some twenty units save.
"""

import fcntl
import os

from . import objects, store
from .kernel_headers import EMITTING, HEADERS, SHARED_MACROS, WANTED
from .texts import defined_macros

# Folders of the root whose replaced files can be among the headers.
HEADER_FOLDERS = (
    "tt_metal/hw/inc/",
    "tt_metal/hw/ckernels/",
    "tt_metal/tt-llk/",
    "tt_metal/api/",
    "tt_metal/hostdevcommon/",
    "runtime/sfpi/include/",
)


def _is_shared_folder(option):
    """Whether an include folder is one of the runtime, rather than the one a kernel's source lies in."""
    return option.startswith(("-I%ROOT%/tt_metal/", "-I%ROOT%/runtime/")) or option in (
        "-I%ROOT%/",
        "-I%ROOT%/ttnn",
        "-I%ROOT%/ttnn/cpp",
    )


def macro_name(argument):
    return argument[2:].split("=", 1)[0]


class Precompiled:
    """A precompiled header that is there: path of the header GCC is to include, and what it stands for.

    words: {identifier: True where an opening parenthesis follows it somewhere} of the text it holds.
    files: those in it that are not the compiler's own; the ones of a root are named below %ROOT%.
    emitting: the headers in it that a unit must include by itself.
    """

    def __init__(self, known, emitting):
        self.path, self.words, self.emitting = known["path"], known["words"], emitting
        self.files = [name for name, _ in known["files"] if name != self.path]

    def disturbed_from_the_start(self, command):
        """Name of a macro this header was made without and asks for, or None: one of the command line, or of the
        sources that can be told before anything is compiled, in whose folders this is called.
        """
        names = (macro_name(a) for a in command if a.startswith("-D"))
        found = next((n for n in names if n in self.words and n not in SHARED_MACROS), None)
        texts = (*objects.generated_sources().values(), *map(store.read, store.kernel_sources("..")))
        return found or self.disturbed_by(macro for text in texts for macro in defined_macros(text))

    def changes_nothing_for(self, facts):
        """Whether a unit that read sources with these `facts` (texts.facts_of) besides this header is the same without
        it.
        """
        included = {name for _, _, names in facts for name in names}
        defined = (macro for _, macros, _ in facts for macro in macros)
        return included.issuperset(self.emitting) and self.disturbed_by(defined) is None

    def disturbed_by(self, macros):
        """Name of one of these macros (as texts.defined_macros has them) that this header asks for, or None."""
        for name, parenthesis in macros:
            # A macro with arguments is only a macro where a parenthesis follows.
            if self.words.get(name.decode()) or not parenthesis and name.decode() in self.words:
                return name.decode()
        return None


def prepared(command, root, folder, base, run):
    """The precompiled header for a unit, made when it is wanted often enough; None where there is none.

    command: the compiler's, for the unit. folder: of all precompiled headers. base: what they depend on
    besides (the compiler). run(command): runs GCC; its exit status.
    """
    core = next((a for a in command if a in HEADERS), None)
    if core is None or "-DKERNEL_BUILD" not in command:
        return None
    options, first, option, own_folder = [], None, "", False
    for argument in command[1:]:
        if option == "-include" and first is None and os.path.isabs(argument):
            first = argument
        if option == "-isystem":
            options += [option, argument]
        if option:
            option = ""
        elif argument in ("-include", "-isystem", "-o", "-MF", "-MT"):
            option = argument
        elif argument in ("-c", "-S", "-MMD", "-I.", "-I..") or not argument.startswith("-"):
            continue  # without the folders of generated headers: the same for all kernels
        elif argument.startswith("-I") and not _is_shared_folder(root.portable(argument)):
            own_folder = True
        elif argument.startswith("-I") and own_folder:
            return None  # a kernel's own folder comes first: its headers may hide those named here
        elif not argument.startswith("-D") or macro_name(argument) in SHARED_MACROS:
            options.append(argument)
    if first is None:
        return None
    text = store.read(first).decode() + "".join(f"#include <{name}>\n" for name in HEADERS[core])
    kind = f"{folder}/{store.digest([*base, text, *(root.portable(o) for o in options)])}"
    overlays = store.digest(f"{p}={d}" for p, d in sorted(root.sources(HEADER_FOLDERS).items()))
    place = f"{kind}/{overlays}"
    known = _made(kind, overlays, root)
    if known is None:
        os.makedirs(place, exist_ok=True)
        with open(f"{place}/wanted", "ab") as wanted:
            wanted.write(b".")
            if wanted.tell() < WANTED:
                return None
            # One process makes it; the others go on as without it.
            try:
                fcntl.flock(wanted, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            known = _made(kind, overlays, root)
            if known is None:
                known = _make(place, text, [command[0], *options], root, run)
                store.write_sealed(f"{place}/ready", known)
    return Precompiled(known, EMITTING.get(core, ())) if known["words"] else None


def _made(kind, overlays, root):
    """What is known of a header of the folder `kind` that holds what this root has, or None.

    overlays: name of its own place there. A header made in another place may serve; one that GCC refused there may not.
    """
    others = (place for place in store.listed(kind) if place != overlays)
    for place in (overlays, *others):
        known = store.read_sealed(f"{kind}/{place}/ready")
        if known and (known["words"] or place == overlays):
            if root.reads_the_same(known["files"], known["sources"], HEADER_FOLDERS):
                return known
    return None


def _make(place, text, compiler, root, run):
    """Precompile `text` in the folder `place`; what is to be known of it, without words if GCC refused it."""
    header = f"{place}/kernel.h"
    refused = {"path": header, "words": None, "files": [], "sources": root.sources(HEADER_FOLDERS)}
    store.write_whole(header, text.encode())
    language = ["-x", "c++-header", header]
    expanded, depends = f"{place}/kernel.i", f"{place}/kernel.d"
    if run([*compiler, *language, "-E", "-dU", "-MMD", "-MF", depends, "-o", expanded]) or run(
        [*compiler, *language, "-o", f"{header}.draft"]
    ):
        return refused
    os.rename(f"{header}.draft", f"{header}.gch")
    words = _words(store.read(expanded).decode("utf-8", "surrogateescape"))
    os.unlink(expanded)
    named = objects.dependencies(store.read(depends).decode("utf-8", "surrogateescape"))
    if any(b"__has_include" in store.read(path) for path in named):
        return refused  # it asks for files that only a kernel's folder may have
    files = dict.fromkeys(root.portable(path) for path in named)
    return refused | {"words": words, "files": [(path, root.identity(path)) for path in files]}


def _words(expanded):
    """{identifier: True where an opening parenthesis follows it somewhere} of a preprocessed text."""
    import re

    words = {}
    without_texts = re.sub(r"\"(?:\\.|[^\"\\\n])*\"|^# \d.*$", "", expanded, flags=re.MULTILINE)
    for word in re.findall(r"[A-Za-z_]\w*(?:\s*\()?", without_texts):
        name = word.rstrip("( \t\n")
        words[name] = words.get(name, False) or word.endswith("(")
    return words
