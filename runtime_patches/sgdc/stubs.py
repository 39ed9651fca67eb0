# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The changes to tt-metal's kernel stubs: what is inserted, where, and for which contents.

Paths are relative to a tt-metal tree: the installed ``ttnn`` package, a runtime root or a source checkout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

STUB_FOLDER = "tt_metal/hw/firmware/src/tt-1xx"
GATE_HEADER = "tt_metal/hw/inc/internal/sgdc_gate.h"
MEMORY_MAP = "tt_metal/hw/inc/internal/tt-1xx/wormhole/dev_mem_map.h"


class StubMismatchError(RuntimeError):
    """The stubs of this tree are not the ones the patch was made for."""


@dataclass(frozen=True)
class Edit:
    """An edit: `text` replaces `anchor`, which must occur exactly once in a stub."""

    anchor: str
    text: str


@dataclass(frozen=True)
class Stub:
    """One kernel stub: its path, the SHA-256 of its stock contents by ttnn version, and the edits."""

    path: str
    stock: dict[str, str]
    edits: tuple[Edit, ...]


def _entry(signature: str) -> Edit:
    # After the kernel's own source was included, so that a define in that source counts too.
    return Edit(signature, f'#include "internal/sgdc_gate.h"\n\n{signature}')


def _call(call: str, indent: str) -> Edit:
    stock = f'{indent}WAYPOINT("K");\n{indent}{call}\n'
    gated = (
        f'{indent}WAYPOINT("K");\n#if defined(SKIP_COMPUTE)\n{indent}if (!sgdc::skip_compute())\n#endif\n'
        f"{indent}{{\n{indent}    {call}\n{indent}}}\n"
    )
    return Edit(stock, gated)


_SANITIZER = "sizeof(State) <= MEM_LLK_DEBUG_SIZE, "
_SANITIZER_INCLUDE = "#if defined(LLK_SAN_ENABLE)\nnamespace llk::san {\n"
_START = 'extern "C" [[gnu::section(".start")]]\nuint32_t _start() {\n    // Enable GPREL'

STUBS = (
    Stub(
        f"{STUB_FOLDER}/brisck.cc",
        {"0.81.1": "5de60e62cb0b7331cfb2f5c1888d38802bd4abbeb942fb8231423d4afd9f394a"},
        (_entry(_START), _call("kernel_main();", "        ")),
    ),
    Stub(
        f"{STUB_FOLDER}/ncrisck.cc",
        {"0.81.1": "ed687a3fc1d052d157d728d4970b50e4fb35be29a30a822ea5023d27ac6d2b11"},
        (
            _entry('#if defined(ARCH_WORMHOLE)\nextern "C" uint32_t kernel_launch(uint32_t offset) {'),
            _call("kernel_main();", "    "),
        ),
    ),
    Stub(
        f"{STUB_FOLDER}/trisck.cc",
        {"0.81.1": "aee9392c85c6eac2f8cd0e6aef290d596f7986d286c363163589e75e162c55d7"},
        (
            Edit(_SANITIZER_INCLUDE, f'#include "internal/sgdc_gate.h"\n\n{_SANITIZER_INCLUDE}'),
            Edit(_SANITIZER, "sizeof(State) <= MEM_LLK_DEBUG_SIZE - SGDC_GATE_SIZE, "),
            _call("run_kernel();", "    "),
        ),
    ),
)
SUPPORTED_VERSIONS = tuple(STUBS[0].stock)


def gate_header() -> bytes:
    """Return the header that the patched stubs include."""
    return (Path(__file__).parent / "sgdc_gate.h").read_bytes()


def is_stock(stub: Stub, content: bytes) -> bool:
    """Return whether `content` is a stub the patch was made for, without the patch."""
    return hashlib.sha256(content).hexdigest() in stub.stock.values()


def patched(stub: Stub, content: bytes) -> bytes:
    """Return `content` of a stock stub, or of one that was patched before, with the edits applied once.

    Errors: StubMismatchError when the content is not one the patch was made for.
    """
    content = stock_content(stub, content) or content
    if not is_stock(stub, content):
        digest = hashlib.sha256(content).hexdigest()
        known = ", ".join(f"{value[:16]}... (ttnn {version})" for version, value in stub.stock.items())
        raise StubMismatchError(
            f"{stub.path} has SHA-256 {digest[:16]}..., the SGDC patch was made for {known}: "
            f"use ttnn {' or '.join(SUPPORTED_VERSIONS)}, and restore the file if it was edited"
        )
    text = content.decode()
    for edit in stub.edits:
        if text.count(edit.anchor) != 1:
            raise StubMismatchError(f"{stub.path}: the text to edit occurs {text.count(edit.anchor)} times, not once")
        text = text.replace(edit.anchor, edit.text)
    return text.encode()


def patched_files(read: Callable[[str], bytes]) -> dict[str, bytes]:
    """Return {path: content} of every file of the patch; `read` gives the content of a stub, stock or patched.

    Errors: StubMismatchError. All stubs are checked before any is returned.
    """
    files = {stub.path: patched(stub, read(stub.path)) for stub in STUBS}
    return files | {GATE_HEADER: gate_header()}


def stock_content(stub: Stub, content: bytes) -> bytes | None:
    """Return the stock stub that a patched `content` was made from, or None when it is not a patched stub."""
    text = content.decode(errors="replace")
    for edit in reversed(stub.edits):
        if text.count(edit.text) != 1:
            return None
        text = text.replace(edit.text, edit.anchor)
    stock = text.encode()
    return stock if is_stock(stub, stock) else None
