# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Apply the SGDC patch to a tree of tt-metal, or say in which state a tree is.

The installed ttnn package is never written: it is patched as overlays of a runtime root (`overlays`). A
tt-metal source checkout is edited in place (`apply_to_checkout`); ``git checkout`` of the stubs undoes it.
"""

from __future__ import annotations

import enum
import os
from pathlib import Path

from runtime_patches.runtime_root import MANIFEST, build_runtime_root, find_ttnn_dir, read_manifest
from runtime_patches.sgdc.stubs import (
    GATE_HEADER,
    MEMORY_MAP,
    STUBS,
    StubMismatchError,
    gate_header,
    patched_files,
    stock_content,
)

# A kernel whose KernelDescriptor carries this define runs whatever the gate says.
UNGATED_DEFINE = ("SGDC_UNGATED", "1")


_found_patched: set[Path] = set()


class GateState(enum.Enum):
    """How far a tree carries the patch."""

    PATCHED = "patched"
    STOCK = "not patched"
    OTHER = "neither the stock files nor the patched ones"


class UnpatchedRuntimeError(RuntimeError):
    """The runtime this process runs on has no compute gate."""


def overlays(ttnn_dir: Path | None = None) -> dict[str, bytes]:
    """The files to replace in a runtime root: ``{path: content}``, from the stubs of the installed ttnn.

    Errors: StubMismatchError when those stubs are not the ones the patch was made for.
    """
    source = find_ttnn_dir() if ttnn_dir is None else Path(ttnn_dir)
    return patched_files(lambda path: _read(source, path))


def build_patched_root(*, ttnn_dir: Path | None = None, cache_dir: Path | None = None) -> Path:
    """A runtime root with the patch and nothing else, for real boards; see
    :mod:`runtime_patches.runtime_root`."""
    return build_runtime_root(overlays(ttnn_dir), ttnn_dir=ttnn_dir, cache_dir=cache_dir)


def apply_to_checkout(root: Path) -> list[str]:
    """Patch the tt-metal source checkout `root` in place; the paths that were written, none if it was
    patched.

    Errors: StubMismatchError for other stubs; ValueError for a folder that is no checkout, that is the
    installed package, or a runtime root of links (both stay untouched).
    """
    root = _tree(root)
    if (root / MANIFEST).exists():
        raise ValueError(
            f"{root} is a runtime root; its files are links. Run `apply` without --root to build one"
        )
    package = _installed()
    if any(root.glob("_ttnn*.so")) or (package and root.resolve() == package):
        raise ValueError(f"{root} is an installed package and stays untouched. Run `apply` without --root")
    if state(root) is GateState.PATCHED:
        return []
    files = patched_files(lambda path: _read(root, path))
    for path, content in reversed(files.items()):  # the header before the stubs that include it
        target = root / path
        draft = target.with_name(target.name + ".sgdc-draft")
        draft.write_bytes(content)
        os.replace(draft, target)
    return list(files)


def state(root: Path) -> GateState:
    """Whether the tree `root` carries the patch, whole and unchanged.

    Errors: ValueError for a folder that is no tree of tt-metal.
    """
    root = _tree(root)
    header = root / GATE_HEADER
    stubs = [(stub, _read(root, stub.path)) for stub in STUBS]
    if all(stock_content(stub, content) is not None for stub, content in stubs):
        return (
            GateState.PATCHED
            if header.is_file() and header.read_bytes() == gate_header()
            else GateState.OTHER
        )
    try:
        patched_files({stub.path: content for stub, content in stubs}.__getitem__)
    except StubMismatchError:
        return GateState.OTHER
    return GateState.STOCK


def runtime_in_use() -> Path:
    """The tree this process compiles kernels from: ``$TT_METAL_RUNTIME_ROOT``, ``$TT_METAL_HOME`` or the
    package."""
    named = os.environ.get("TT_METAL_RUNTIME_ROOT") or os.environ.get("TT_METAL_HOME")
    return Path(named) if named else find_ttnn_dir()


def require_patched() -> Path:
    """The runtime tree in use, after making sure that it carries the patch.

    Errors: UnpatchedRuntimeError with the command that mends it.
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
        "`python -m runtime_patches.sgdc apply` and start again with the TT_METAL_RUNTIME_ROOT it prints; on "
        "the simulated N150 pass overlays=runtime_patches.sgdc.overlays() to simulated_environment"
    )


def describe(root: Path) -> str:
    """One line on a tree: what it is and whether it carries the patch."""
    kind = "source tree"
    if (Path(root) / MANIFEST).is_file():
        kind = f"runtime root over ttnn {read_manifest(root)['ttnn_version']}"
    elif any(Path(root).glob("_ttnn*.so")):
        kind = "installed ttnn"
    return f"{root}: {kind}, {state(root).value}"


def _installed() -> Path | None:
    try:
        return find_ttnn_dir()
    except RuntimeError:
        return None


def _tree(root: Path) -> Path:
    root = Path(root).absolute()
    for needed in (MEMORY_MAP, *(stub.path for stub in STUBS)):
        if not (root / needed).is_file():
            raise ValueError(f"{root} is no tree of tt-metal: {needed} is missing")
    return root


def _read(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise StubMismatchError(f"{path} cannot be read in {root}: {error.strerror}") from error
