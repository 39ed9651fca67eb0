# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Keep sealed files, digests and the runtime root: what the cache of objects is made of.

Part of the driver, which starts thousands of times: a start of hashlib, json, re or subprocess costs as much as a whole
hit of the cache, so none of them is imported here (see driver.py).
"""

import marshal
import os
from _blake2 import blake2b  # what hashlib.blake2b is, without OpenSSL's 10 ms

SOURCE_SUFFIXES = (".h", ".hpp", ".inl", ".c", ".cc", ".cpp", ".inc", ".S")
# Variables with which GCC finds headers, parts of itself, or a date.
GCC_VARIABLES = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "LIBRARY_PATH",
    "SOURCE_DATE_EPOCH",
)
MANIFEST = ".runtime_root.json"
# The files the runtime generates for a kernel, one or all of which include its source by an absolute path.
GENERATED = ("kernel_includes.hpp", "chlkc_unpack.cpp", "chlkc_math.cpp", "chlkc_pack.cpp")


def digest(parts) -> str:
    """Return the hexadecimal digest of a sequence of texts or bytes; where one ends and the next begins counts."""
    state = blake2b(digest_size=16)
    for part in parts:
        part = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        state.update(b"%d:" % len(part))
        state.update(part)
    return state.hexdigest()


def read(path) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def read_sealed(path):
    """Return the value that :func:`write_sealed` wrote, or None where there is none or it was damaged."""
    try:
        data = read(path)
    except FileNotFoundError:
        return None
    seal, payload = data[:32], data[32:]
    if len(seal) != 32 or digest([payload]).encode() != seal:
        return None
    return marshal.loads(payload)


def write_sealed(path, value) -> None:
    """Write `value` (what marshal takes) in one step: a reader sees the old file or the new one, whole."""
    payload = marshal.dumps(value, 4)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_whole(path, digest([payload]).encode() + payload)


def write_whole(path, data) -> None:
    """Write bytes under a name of this process, then give the file its name."""
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "wb") as file:
            file.write(data)
        os.rename(draft, path)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise


def stamp(path) -> tuple[int, int]:
    """Return (bytes, nanoseconds of the last change) of a file."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


class Root:
    """The runtime root that a command line belongs to.

    path: of its folder. name: the folder's own name, a digest of all its files. overlays: {path in the root: digest} of
    the files that are not the ttnn package's.
    """

    def __init__(self, path, notes):
        self.path, self.name = path, os.path.basename(path)
        note = f"{notes}/{self.name}"
        known = read_sealed(note)
        if known is None:
            import json

            manifest = json.loads(read(f"{path}/{MANIFEST}"))
            known = manifest["overlays"]
            write_sealed(note, known)
        self.overlays = known

    def sources(self) -> dict[str, str]:
        """Return the overlays that a compiler can read as source: {path in the root: digest}."""
        return {path: d for path, d in self.overlays.items() if path.endswith(SOURCE_SUFFIXES)}

    def portable(self, text: str) -> str:
        """Return `text` with this root's path replaced by a word that is the same for all roots."""
        return text.replace(self.path, "%ROOT%")

    def identity(self, path: str):
        """Return what tells one content of the file at `path` (absolute, or below %ROOT%) from another.

        An overlay's digest, the stamp of a file of the ttnn package, or the digest of any other file.
        """
        if path.startswith("%ROOT%/"):
            inside = path[len("%ROOT%/") :]
            if inside in self.overlays:
                return self.overlays[inside]
            return stamp(f"{self.path}/{inside}")  # whatever is no overlay is a link to the package
        return digest([read(path)])

    def reads_the_same(self, files, sources) -> bool:
        """Return whether what was compiled from `files` in a root with the overlays `sources` reads the same in this
        one.

        None of the files, [(path, identity)], has changed, and no overlay that only one of the roots has bears the name
        of one of them: it could be found before it.
        """
        names = {os.path.basename(path) for path, _ in files}
        if any(os.path.basename(path) in names for path in self.sources().keys() ^ sources.keys()):
            return False
        try:
            return all(self.identity(path) == identity for path, identity in files)
        except OSError:  # one is gone
            return False


def kernel_sources(folder) -> list[str]:
    """Return the absolute paths of the sources of the kernel in `folder`; none for a kernel given as text."""
    found = []
    for name in GENERATED:
        try:
            lines = read(os.path.join(folder, name)).split(b"\n")
        except FileNotFoundError:
            continue
        for line in lines:
            path = line[len(b'#include "') :].partition(b'"')
            if line.startswith(b'#include "/') and path[1]:
                found.append(os.fsdecode(path[0]))
    return list(dict.fromkeys(found))


def find_root(arguments, notes):
    """Return the runtime root of an include folder or a linker script of a command line, or None."""
    for argument in arguments:
        before, folder, after = argument.partition("/runtime_roots/")
        if folder and argument.startswith(("-I/", "-T/")):
            path = before[2:] + folder + after.split("/", 1)[0]
            if os.path.isfile(f"{path}/{MANIFEST}"):
                return Root(path, notes)
    return None
