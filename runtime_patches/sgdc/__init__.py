# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Static graph, dynamic concurrency (SGDC): a gate in the kernel stubs of tt-metal (ALSpec paper, section 4.2). This
patches a tree of tt-metal, or says in which state one is; the README says how the gate works.

The installed ttnn package is never written: it is patched by overlays of a runtime root (`overlays`). A tt-metal source
checkout is edited in place (`apply_to_checkout`); ``git checkout`` of the stubs undoes it.
"""

from __future__ import annotations

import enum
import hashlib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from runtime_patches.board.runtime_root import (
    MANIFEST,
    RuntimeRootError,
    build_runtime_root,
    find_ttnn_dir,
    read_manifest,
    ttnn_root,
)

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


def stock_content(stub: Stub, content: bytes) -> bytes | None:
    """Return the stock stub that a patched `content` was made from, or None when it is not a patched stub."""
    text = content.decode(errors="replace")
    for edit in reversed(stub.edits):
        if text.count(edit.text) != 1:
            return None
        text = text.replace(edit.text, edit.anchor)
    stock = text.encode()
    return stock if is_stock(stub, stock) else None


# A kernel whose KernelDescriptor carries this define runs whatever the gate says.
UNGATED_DEFINE = ("SGDC_UNGATED", "1")

_NEEDED = (MEMORY_MAP, *(stub.path for stub in STUBS))
_found_patched: set[Path] = set()


class GateState(enum.Enum):
    """How far a tree carries the patch."""

    PATCHED = "patched"
    STOCK = "not patched"
    PARTIAL = "patched in part: `apply` was interrupted, or the gate's header is missing or another"
    OTHER = "neither the stock files nor the patched ones"


class UnpatchedRuntimeError(RuntimeError):
    """The runtime this process runs on has no compute gate."""


def overlays(ttnn_dir: Path | None = None) -> dict[str, bytes]:
    """Return the files to replace in a runtime root: ``{path: content}``, from the stubs that came with ttnn.

    Errors: StubMismatchError when those stubs, stock or patched, are not the ones the patch was made for; all are
    checked before any is returned.
    """
    source = _tree_of_ttnn() if ttnn_dir is None else Path(ttnn_dir)
    return {stub.path: patched(stub, _read(source, stub.path)) for stub in STUBS} | {GATE_HEADER: gate_header()}


def build_patched_root() -> Path:
    """Return a runtime root with the patch and nothing else, for real boards (see board/runtime_root.py).
    Where ttnn is a source build, return that tree, once it is patched.

    Errors: ValueError for a source build that is not patched; RuntimeRootError; StubMismatchError.
    """
    if (tree := _tree_of_ttnn()) != find_ttnn_dir():
        if (found := state(tree)) is not GateState.PATCHED:
            raise ValueError(
                f"ttnn is the source build {tree} ({found.value}), which is patched in place: "
                f"run `{_apply_command(tree)}`"
            )
        return tree
    return build_runtime_root(overlays())


def apply_to_checkout(root: Path) -> list[str]:
    """Patch the tt-metal source checkout `root` in place; return the paths that were written, none if it was patched.
    Complete what an interrupted call left half done.

    Errors: StubMismatchError for other stubs; ValueError for a folder that is no checkout, that is the installed
    package, or a runtime root of links (both stay untouched); OSError when a file cannot be written.
    """
    root = _tree(root)
    if (root / MANIFEST).exists():
        raise ValueError(f"{root} is a runtime root; its files are links. Run `apply` without --root to build one")
    if _is_package(root):
        raise ValueError(f"{root} is an installed package and stays untouched. Run `apply` without --root")
    written = []
    for path, content in reversed(overlays(root).items()):  # the header before the stubs that include it
        target = root / path
        if target.is_file() and target.read_bytes() == content:
            continue
        draft = target.with_name(target.name + ".sgdc-draft")
        try:
            draft.write_bytes(content)
            os.replace(draft, target)
        finally:
            if draft.is_file():
                draft.unlink()
        written.append(path)
    return written


def state(root: Path) -> GateState:
    """Return how far the tree `root` carries the patch.

    Errors: ValueError for a folder that is no tree of tt-metal.
    """
    root = _tree(root)
    header = root / GATE_HEADER
    stubs = [(stub, _read(root, stub.path)) for stub in STUBS]
    stock = [is_stock(stub, content) for stub, content in stubs]
    edited = [stock_content(stub, content) is not None for stub, content in stubs]
    if all(stock):
        return GateState.STOCK
    if all(edited) and header.is_file() and header.read_bytes() == gate_header():
        return GateState.PATCHED
    known = all(map(any, zip(stock, edited, strict=True)))
    return GateState.PARTIAL if known else GateState.OTHER


def runtime_in_use() -> Path:
    """Return the tree this process compiles kernels from: ``$TT_METAL_RUNTIME_ROOT`` or what ttnn takes without it.

    An empty variable is the working directory, as it is to the runtime. ``TT_METAL_HOME`` is not looked at: ttnn names
    its own tree to the runtime whatever it holds.
    """
    named = os.environ.get("TT_METAL_RUNTIME_ROOT")
    return ttnn_root() if named is None else Path(named).absolute()


def require_patched() -> Path:
    """Return the runtime tree in use, after making sure that it carries the patch.

    Errors: UnpatchedRuntimeError with the command that fixes it.
    """
    root = runtime_in_use()
    if root in _found_patched:  # called for every gated region; the files of a running process do not change
        return root
    try:
        found = state(root).value if state(root) is not GateState.PATCHED else None
    except ValueError as error:
        found = str(error)
    if found is None:
        _found_patched.add(root)
        return root
    raise UnpatchedRuntimeError(
        f"the runtime root {root} has no compute gate ({found}), so nothing could be skipped. Run "
        f"`{_apply_command(root)}` and start again with the TT_METAL_RUNTIME_ROOT it prints; on "
        "the simulated N150 `run` takes --patch runtime_patches.sgdc, and simulated_environment its overlays()"
    )


def describe(root: Path) -> str:
    """Return one line about a tree: what it is and whether it carries the patch."""
    kind = "source tree"
    if (Path(root) / MANIFEST).is_file():
        kind = f"runtime root over ttnn {read_manifest(root)['ttnn_version']}"
    elif _is_package(root):
        kind = "installed ttnn"
    return f"{root}: {kind}, {state(root).value}"


def _apply_command(root: Path) -> str:
    """Return the command that patches `root`, or that builds a patched root in its place where it must
    stay as it is."""
    command = "python -m runtime_patches.sgdc apply"
    in_place = _missing(root) is None and not _is_package(root) and not (root / MANIFEST).exists()
    return f"{command} --root {shlex.quote(str(root))}" if in_place else command


def _is_package(root: Path) -> bool:
    try:
        return any(Path(root).glob("_ttnn*.so")) or Path(root).resolve() == find_ttnn_dir()
    except RuntimeRootError:
        return False


def _missing(root: Path) -> str | None:
    """Return the first file of a tree of tt-metal that `root` lacks."""
    return next((needed for needed in _NEEDED if not (root / needed).is_file()), None)


def _tree_of_ttnn() -> Path:
    """Return the tree that came with ttnn: what it runs from by itself, or, where it looks in vain (a package outside
    site-packages, as ``pip install --target`` makes one), the package."""
    return find_ttnn_dir() if _missing(root := ttnn_root()) else root


def _tree(root: Path) -> Path:
    root = Path(root).absolute()
    if missing := _missing(root):
        raise ValueError(f"{root} is no tree of tt-metal: {missing} is missing")
    return root


def _read(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise StubMismatchError(f"{path} cannot be read in {root}: {error.strerror}") from error
