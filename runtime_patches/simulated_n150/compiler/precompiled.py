# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Precompiled headers of kernel units: what all kernels of a core read, parsed once for all of them.

The runtime precompiles a few headers of the standard library and includes them first in every unit. Here that
header is replaced by a longer one: the same, then the headers of HEADERS, which every kernel of such a core
reads sooner or later. Two thirds of a unit's time is parsing; this takes most of it away.

A header is read earlier than the unit would read it, so no macro that the unit has at that place and not at
the start may have a say in it. That is checked, never assumed: `words` are all identifiers of the precompiled
text and all macros it asked for, and a unit that defines one of them, on the command line or in any file
outside the precompiled ones, is compiled as without this module. GCC itself refuses a precompiled header made
with other options.

It takes a few units to get one made (WANTED): that costs as much as six units save.
"""

import fcntl
import os
import re

import objects
import store
from kernel_headers import HEADERS, SHARED_MACROS, WANTED

# Folders of the root whose replaced files can be among the headers.
HEADER_FOLDERS = (
    "tt_metal/hw/inc/", "tt_metal/hw/ckernels/", "tt_metal/tt-llk/", "tt_metal/api/", "tt_metal/hostdevcommon/",
    "runtime/sfpi/include/",
)  # fmt: skip
_DEFINED = re.compile(rb"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)(\(?)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*(?:\s*\()?")
_TEXT = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|^# \d.*$", re.MULTILINE)


def _is_shared_folder(option):
    """Whether an include folder is one of the runtime, rather than the one a kernel's source lies in."""
    return option.startswith(("-I%ROOT%/tt_metal/", "-I%ROOT%/runtime/")) or option in (
        "-I%ROOT%/", "-I%ROOT%/ttnn", "-I%ROOT%/ttnn/cpp",
    )  # fmt: skip


def macro_name(argument):
    return argument[2:].split("=", 1)[0]


class Precompiled:
    """A precompiled header that is there: path of the header GCC is to include, and what it stands for.

    words: {identifier: True where an opening parenthesis follows it somewhere} of the text it holds.
    files: those in it that are not the compiler's own; the ones of a root are named below %ROOT%.
    """

    def __init__(self, path, known):
        self.path, self.words = path, known["words"]
        self.files = [name for name, _ in known["files"] if name != path]

    def disturbed_by_options(self, command):
        """Name of a macro of a command line that this header was made without and asks for, or None."""
        names = (macro_name(a) for a in command if a.startswith("-D"))
        return next((n for n in names if n in self.words and n not in SHARED_MACROS), None)

    def disturbed_by_texts(self, texts):
        """Name of a macro that one of these sources (bytes) defines and this header asks for, or None."""
        for text in texts:
            for name, parenthesis in _DEFINED.findall(text):
                # A macro with arguments is only a macro where a parenthesis follows.
                if self.words.get(name.decode()) or not parenthesis and name.decode() in self.words:
                    return name.decode()
        return None


def prepared(command, root, folder, base, run):
    """The precompiled header for a unit, made when it is wanted often enough; None where there is none.

    command: the compiler's, for the unit. folder: of all precompiled headers. base: what they depend on
    besides (the compiler). run(command): runs GCC; its exit status.
    """
    headers = next((HEADERS[a] for a in command if a in HEADERS), None)
    if headers is None or "-DKERNEL_BUILD" not in command:
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
    text = store.read(first).decode() + "".join(f"#include <{name}>\n" for name in headers)
    overlays = [f"{p}={d}" for p, d in sorted(root.sources().items()) if p.startswith(HEADER_FOLDERS)]
    key = store.digest([*base, text, *overlays, *(root.portable(o) for o in options)])
    place = f"{folder}/{key}"
    path, note = f"{place}/kernel.h", f"{place}/ready"
    known = _current(store.read_sealed(note), root)
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
            known = _current(store.read_sealed(note), root)
            if known is None:
                known = _make(place, text, [command[0], *options], root, run)
                store.write_sealed(note, known)
    return Precompiled(path, known) if known["words"] else None


def _current(known, root):
    """`known` where none of the files it was made from has changed since, else None."""
    try:
        return known if known and all(root.identity(path) == i for path, i in known["files"]) else None
    except OSError:  # one is gone
        return None


def _make(place, text, compiler, root, run):
    """Precompile `text` in the folder `place`; what is to be known of it, without words if GCC refused it."""
    header = f"{place}/kernel.h"
    store.write_whole(header, text.encode())
    language = ["-x", "c++-header", header]
    expanded, depends = f"{place}/kernel.i", f"{place}/kernel.d"
    if run([*compiler, *language, "-E", "-dU", "-MMD", "-MF", depends, "-o", expanded]) or run(
        [*compiler, *language, "-o", f"{header}.draft"]
    ):
        return {"words": None, "files": []}
    os.rename(f"{header}.draft", f"{header}.gch")
    words = {}
    for word in _WORD.findall(_TEXT.sub("", store.read(expanded).decode("utf-8", "surrogateescape"))):
        name = word.rstrip("( \t\n")
        words[name] = words.get(name, False) or word.endswith("(")
    os.unlink(expanded)
    named = objects.dependencies(store.read(depends).decode("utf-8", "surrogateescape"))
    if any(b"__has_include" in store.read(path) for path in named):
        return {"words": None, "files": []}  # it asks for files that only a kernel's folder may have
    files = dict.fromkeys(root.portable(path) for path in named)
    return {"words": words, "files": [(path, root.identity(path)) for path in files]}
