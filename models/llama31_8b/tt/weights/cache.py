# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Converted weights on disk: an entry is named by all that it is made from, so that no other weights are ever found in
it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch
from filelock import FileLock
from loguru import logger
from tqdm import tqdm

from runtime_patches.runtime_root import project_cache_dir

from ...config import LlamaConfig
from ..device.precision import PrecisionConfig
from ..parallel.mesh import MeshShape

# Part of every key: increase it when the layout of a converted tensor changes.
LAYOUT_VERSION = 2
_SHOWN_NAME = 40  # characters of a model's or precision's name in a folder's


def state_fingerprint(state: Mapping[str, torch.Tensor]) -> str:
    """Return a SHA-256 of every tensor's name, shape, dtype and bytes; shows a progress bar on a terminal. Tensors are
    hashed in parallel, one thread per core: hashlib releases the GIL."""

    def of(name: str) -> bytes:
        tensor = state[name].detach()
        digest = hashlib.sha256(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()))
        return digest.digest()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        digests = tqdm(
            pool.map(of, sorted(state)),
            "checking weights",
            len(state),
            unit="tensor",
            leave=False,
            file=sys.stderr,
            disable=not sys.stderr.isatty(),
        )
        return hashlib.sha256(b"".join(digests)).hexdigest()


def entry_folder(
    config: LlamaConfig, state: Mapping[str, torch.Tensor], mesh_shape: MeshShape, precision: PrecisionConfig
) -> Path:
    """Return the folder of the converted weights of this model, mesh shape, precision config and ttnn version. Reads
    all of `state`; every field of `config` counts."""
    made_from = {
        "config": asdict(config),
        "weights": state_fingerprint(state),
        "mesh": str(mesh_shape),
        "precision": asdict(precision),
        "ttnn": importlib.metadata.version("ttnn"),
        "layout": LAYOUT_VERSION,
    }
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]
    shown = [re.sub(r"[^A-Za-z0-9.+]+", "-", name)[:_SHOWN_NAME] for name in (config.name, precision.name)]
    return project_cache_dir() / "tt_weights" / "-".join([*shown, str(mesh_shape), digest])


class WeightCache:
    """One entry's folder, which several processes may use at once. A file counts only with its line in the manifest: a
    description and the SHA-256 of its content. Files appear whole, by renaming, and one process writes at a time."""

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises OSError."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / "entry.lock")
        self._manifest = self._read()

    def find(self, name: str, described: Mapping) -> Path | None:
        """Find the file of this name and description; None, with a warning, if it is different or damaged."""
        found = self._manifest.get(name)
        if found is None:
            return None
        path = self._path(name)
        if not _matches(found, described):
            logger.warning("{} holds {} in another form: converting it again", self.folder, name)
        elif not path.is_file() or _digest(path) != found.get("sha256"):
            logger.warning("{} is damaged: converting {} again", path, name)
        else:
            return path
        return None

    def save(self, name: str, described: Mapping, write: Callable[[Path], None]) -> None:
        """Keep what `write` writes to the path it is given; waits for other processes that save."""
        # Under the lock one partial file of a name is enough, and what a killed process left is overwritten.
        with self._lock:
            partial = self.folder / f"{name}.partial.tensorbin"
            try:
                write(partial)
                line = {**described, "sha256": _digest(partial)}
                os.replace(partial, self._path(name))
            finally:
                partial.unlink(missing_ok=True)
            self._manifest = {**self._read(), name: line}
            written = self.folder / "manifest.json.partial"
            written.write_text(json.dumps(self._manifest), encoding="utf-8")
            os.replace(written, self.folder / "manifest.json")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.tensorbin"

    def _read(self) -> dict[str, dict]:
        path = self.folder / "manifest.json"
        if not path.is_file():
            return {}
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return {name: dict(line) for name, line in data.items()}
        except (ValueError, AttributeError, TypeError):
            logger.warning("{} is damaged: converting every weight again", path)
            return {}


def _matches(line: Mapping, described: Mapping) -> bool:
    return {key: line.get(key) for key in described} == dict(described)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
