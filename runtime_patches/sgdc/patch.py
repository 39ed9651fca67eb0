# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Apply the SGDC (static graph, dynamic concurrency) patch to a tree of tt-metal, or say in which state a tree is.

The installed ttnn package is never written: it is patched by overlays of a runtime root (`overlays`). A tt-metal source
checkout is edited in place (`apply_to_checkout`); ``git checkout`` of the stubs undoes it.
"""

from __future__ import annotations

import enum
import os
import shlex
from pathlib import Path

from runtime_patches.board.runtime_root import (
    MANIFEST,
    build_runtime_root,
    find_ttnn_dir,
    read_manifest,
    ttnn_root,
)
from runtime_patches.sgdc.stubs import (
    GATE_HEADER,
    MEMORY_MAP,
    STUBS,
    StubMismatchError,
    gate_header,
    is_stock,
    patched_files,
    stock_content,
)

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

    Errors: StubMismatchError when those stubs are not the ones the patch was made for.
    """
    source = _tree_of_ttnn() if ttnn_dir is None else Path(ttnn_dir)
    return patched_files(lambda path: _read(source, path))


def build_patched_root(*, ttnn_dir: Path | None = None, cache_dir: Path | None = None) -> Path:
    """Return a runtime root with the patch and nothing else, for real boards (see board/runtime_root.py).
    Where ttnn is a source build, return that tree, once it is patched.

    Errors: ValueError for a source build that is not patched; RuntimeRootError; StubMismatchError.
    """
    if ttnn_dir is None and (tree := _tree_of_ttnn()) != find_ttnn_dir():
        if (found := state(tree)) is not GateState.PATCHED:
            raise ValueError(
                f"ttnn is the source build {tree} ({found.value}), which is patched in place: "
                f"run `{_apply_command(tree)}`"
            )
        return tree
    return build_runtime_root(overlays(ttnn_dir), ttnn_dir=ttnn_dir, cache_dir=cache_dir)


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
    files = patched_files(lambda path: _read(root, path))
    written = []
    for path, content in reversed(files.items()):  # the header before the stubs that include it
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
    in_place = _is_tree(root) and not _is_package(root) and not (root / MANIFEST).exists()
    return f"{command} --root {shlex.quote(str(root))}" if in_place else command


def _is_package(root: Path) -> bool:
    return any(Path(root).glob("_ttnn*.so")) or Path(root).resolve() == _installed()


def _is_tree(root: Path) -> bool:
    return all((root / needed).is_file() for needed in _NEEDED)


def _tree_of_ttnn() -> Path:
    """Return the tree that came with ttnn: what it runs from by itself, or, where it looks in vain (a package outside
    site-packages, as ``pip install --target`` makes one), the package."""
    return root if _is_tree(root := ttnn_root()) else find_ttnn_dir()


def _installed() -> Path | None:
    try:
        return find_ttnn_dir()
    except RuntimeError:
        return None


def _tree(root: Path) -> Path:
    root = Path(root).absolute()
    for needed in _NEEDED:
        if not (root / needed).is_file():
            raise ValueError(f"{root} is no tree of tt-metal: {needed} is missing")
    return root


def _read(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise StubMismatchError(f"{path} cannot be read in {root}: {error.strerror}") from error
