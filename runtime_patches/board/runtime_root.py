# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Build a runtime root: a folder of links to the installed ttnn with some files replaced or added.

tt-metal reads its kernels, firmware, linker scripts, core descriptors and compiler from the folder that
``TT_METAL_RUNTIME_ROOT`` names. This module builds such a folder. It is the only way the project changes the runtime:
the installed package is read, never written.

A root is keyed by the ttnn version, the place of the installation its links point at, and the content of every overlay
file, so that two different sets of patches never share a root (nor the kernel cache, which is keyed by the root's
name).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

SUPPORTED_VERSIONS = ("0.81.1",)
MANIFEST = ".runtime_root.json"


class RuntimeRootError(RuntimeError):
    """A runtime root cannot be built from what was given."""


def project_cache_dir(cache_dir: Path | None = None) -> Path:
    """Return the project's cache folder: `cache_dir`, ``$LLAMA_ALSPEC_CACHE``, or one below the user's cache."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser().absolute()
    if named := os.environ.get("LLAMA_ALSPEC_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "llama-alspec"


def find_ttnn_dir() -> Path:
    """Return the folder of the installed ttnn package, found without importing it.

    Errors: :class:`RuntimeRootError` when no ttnn is installed for this interpreter.
    """
    spec = importlib.util.find_spec("ttnn")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeRootError("ttnn is not installed for this Python: pip install ttnn==" + SUPPORTED_VERSIONS[0])
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def ttnn_root() -> Path:
    """Return the folder that ttnn compiles kernels from when ``TT_METAL_RUNTIME_ROOT`` is not set.

    The rule of ttnn's ``__init__.py``: the package's own folder where that is in site-packages or dist-packages, else,
    as in a source build, the folder two levels up. ``TT_METAL_HOME`` has no say. Errors: those of
    :func:`find_ttnn_dir`.
    """
    package = find_ttnn_dir()
    module = (package / "__init__.py").resolve()
    installed = any(folder in str(module) for folder in ("site-packages", "dist-packages"))
    return module.parent if installed else module.parents[2]


def ttnn_version(ttnn_dir: Path | None = None) -> str:
    """Return the version of the ttnn installed in `ttnn_dir` (default: the one this interpreter would import)."""
    where = find_ttnn_dir() if ttnn_dir is None else Path(ttnn_dir).resolve()
    for found in importlib.metadata.distributions(name="ttnn", path=[str(where.parent)]):
        return found.version
    raise RuntimeRootError(f"no metadata of a ttnn distribution stands beside {where}: its version is not known")


def merge_overlays(**sources: Mapping[str, Path | bytes]) -> dict[str, Path | bytes]:
    """Return the overlays of several named sources as one mapping.

    Two sources may name the same path only with the same content; otherwise :class:`RuntimeRootError` names the path
    and both sources.
    """
    merged: dict[str, Path | bytes] = {}
    owner: dict[str, str] = {}
    for source, overlays in sources.items():
        for path, content in overlays.items():
            for key, leaf in _leaves(_checked_path(path), content):
                if key in merged and _digests(key, merged[key]) != _digests(key, leaf):
                    raise RuntimeRootError(
                        f"{key} is replaced by {owner[key]} and by {source}, with different contents"
                    )
                merged[key], owner[key] = leaf, owner.get(key, source)
    for path in owner:
        for parent in PurePosixPath(path).parents:
            if (folder := str(parent)) in owner:
                by = f"({owner[folder]} and {owner[path]})"
                raise RuntimeRootError(f"the overlay {folder} is a file and {path} is below it {by}")
    return merged


def overlay_digests(overlays: Mapping[str, Path | bytes]) -> dict[str, str]:
    """Return {path: SHA-256 of the content, ``x:`` before it for an executable} of every file, sorted by path."""
    found: dict[str, str] = {}
    for path, content in overlays.items():
        found.update(_digests(_checked_path(path), content))
    return dict(sorted(found.items()))


def build_runtime_root(
    overlays: Mapping[str, Path | bytes],
    *,
    ttnn_dir: Path | None = None,
    cache_dir: Path | None = None,
) -> Path:
    """Return the folder to name in ``TT_METAL_RUNTIME_ROOT``; build it unless it is already there.

    overlays: paths relative to the root, with ``/``; a value is the content of the file as bytes, the path of
        a file, or the path of a folder (its whole tree is added). Contents and executable bits are copied at
        this moment, so that a later change of the source cannot change a root that is in use.
    ttnn_dir: the ttnn package to link to; default the installed one.
    cache_dir: the project's cache folder; roots are kept in its ``runtime_roots``.

    Safe under concurrent calls: a root appears under its name whole or not at all. Errors: :class:`RuntimeRootError`
    for another ttnn version, a path that leaves the root, a file where the package has a folder or the reverse, a
    source that does not exist, and a cache that cannot be written.
    """
    source = find_ttnn_dir() if ttnn_dir is None else Path(ttnn_dir).resolve()
    version = ttnn_version(source)
    if version not in SUPPORTED_VERSIONS:
        raise RuntimeRootError(
            f"the patches were made for ttnn {', '.join(SUPPORTED_VERSIONS)}; {source} is ttnn {version}. "
            f"Install a supported one: pip install ttnn=={SUPPORTED_VERSIONS[0]}"
        )
    files = merge_overlays(overlays=overlays)
    _check_against_package(files, source)
    digests = overlay_digests(files)

    digest = hashlib.sha256(json.dumps([version, str(source), list(digests.items())]).encode()).hexdigest()
    home = project_cache_dir(cache_dir) / "runtime_roots"
    root = home / f"ttnn-{version}-{digest[:20]}"
    if (root / MANIFEST).is_file():
        return root
    manifest = {"ttnn_version": version, "ttnn_dir": str(source), "digest": digest, "overlays": digests}
    files[MANIFEST] = (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()
    if home.is_relative_to(source):
        raise RuntimeRootError(f"the cache folder {home} is inside the ttnn package {source}, which stays untouched")
    try:
        home.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=home))
        try:
            building.chmod(0o755)
            _fill(building, _links(source, files), files)
            try:
                os.rename(building, root)
            except OSError as error:
                # Another process was first: its root has the same content, or the name would differ.
                if not (root / MANIFEST).is_file():
                    raise RuntimeRootError(f"{root} is in the way and is not a runtime root: remove it") from error
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise RuntimeRootError(
            f"no runtime root can be written in {home}: {error.strerror} ({error.filename}). The environment "
            "variable LLAMA_ALSPEC_CACHE names another cache folder"
        ) from error
    return root


def read_manifest(root: Path) -> dict:
    """Return what a runtime root was built from: ``ttnn_version``, ``ttnn_dir``, ``digest``, ``overlays`` {path:
    sha256}.

    Errors: :class:`RuntimeRootError` when `root` was not built by this module.
    """
    try:
        return json.loads((Path(root) / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise RuntimeRootError(f"{root} is not a runtime root built by this project: {error}") from error


def _checked_path(path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\\" in path or str(pure) == MANIFEST:
        raise RuntimeRootError(f"an overlay path must stay inside the runtime root: {path!r}")
    return str(pure)


def _leaves(path: str, content: Path | bytes) -> Iterator[tuple[str, Path | bytes]]:
    """Return the files of one overlay: itself, or every file of its folder."""
    if isinstance(content, bytes):
        yield path, content
        return
    content = Path(content)
    if content.is_file():
        yield path, content
    elif content.is_dir():
        for folder, folders, names in os.walk(content, followlinks=True):
            folders.sort()
            for name in sorted(names):
                leaf = Path(folder) / name
                yield f"{path}/{leaf.relative_to(content).as_posix()}", leaf
    else:
        raise RuntimeRootError(f"the source of the overlay {path} does not exist: {content}")


def _digests(path: str, content: Path | bytes) -> dict[str, str]:
    """Return {path: sha256 of the content, marked when executable} of every file of one overlay."""
    found = {}
    for name, leaf in _leaves(path, content):
        data = leaf if isinstance(leaf, bytes) else leaf.read_bytes()
        mark = "x:" if isinstance(leaf, Path) and leaf.stat().st_mode & stat.S_IXUSR else ""
        found[name] = mark + hashlib.sha256(data).hexdigest()
    return found


def _check_against_package(files: Mapping[str, object], source: Path) -> None:
    for path in files:
        if (source / path).is_dir():
            raise RuntimeRootError(f"the overlay {path} is a file, but ttnn has a folder of that name")
        for parent in PurePosixPath(path).parents:
            if (source / parent).is_file():
                raise RuntimeRootError(f"the overlay {path} is below {parent}, which is a file in ttnn")


def _links(source: Path, files: Mapping[str, object]) -> dict[str, Path]:
    """Return {path in a root: entry of the package it links to}; only folders above an overlay are real."""
    real = {str(parent) for path in files for parent in PurePosixPath(path).parents} | {"."}
    links = {}
    for folder in sorted(real):
        if (source / folder).is_dir():
            for entry in (source / folder).iterdir():
                path = str(PurePosixPath(folder) / entry.name)
                if path not in real and path not in files and entry.name != "__pycache__":
                    links[path] = entry
    return links


def _fill(target: Path, links: Mapping[str, Path], files: Mapping[str, Path | bytes]) -> None:
    for path, entry in links.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).symlink_to(entry)
    for path, content in files.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            shutil.copyfile(content, file)
            file.chmod(0o755 if content.stat().st_mode & stat.S_IXUSR else 0o644)
