# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Converted weights on disk: what an entry is made from names it, so that no other weights are ever found in it."""

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

# Part of every key: raise it when the layout of a converted tensor changes.
LAYOUT_VERSION = 2
_SHOWN_NAME = 40  # characters of a model's or plan's name in a folder's


def state_fingerprint(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of every tensor's name, shape, dtype and all its bytes; a progress bar on a terminal.

    Tensors are hashed side by side, a thread a core: hashlib lets go of the interpreter meanwhile.
    """

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
    config: LlamaConfig, state: Mapping[str, torch.Tensor], plan: MeshShape, precision: PrecisionConfig
) -> Path:
    """Where the converted weights of this model, mesh, precision plan and ttnn version are kept.

    Reads all of `state`; every field of `config` counts.
    """
    made_from = {
        "config": asdict(config),
        "weights": state_fingerprint(state),
        "mesh": str(plan),
        "precision": asdict(precision),
        "ttnn": importlib.metadata.version("ttnn"),
        "layout": LAYOUT_VERSION,
    }
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]
    shown = [re.sub(r"[^A-Za-z0-9.+]+", "-", name)[:_SHOWN_NAME] for name in (config.name, precision.name)]
    return project_cache_dir() / "tt_weights" / "-".join([*shown, str(plan), digest])


class WeightCache:
    """One entry's folder, which several processes may use at once.

    A file counts only with its line in the manifest: a description and the SHA-256 of its content. Files appear
    whole, by renaming, and one process writes at a time.
    """

    def __init__(self, folder: Path) -> None:
        """Makes the folder. Raises OSError."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / "entry.lock")
        self._manifest = self._read()

    def find(self, name: str, described: Mapping) -> Path | None:
        """The file of this name and description; None, and said, when there is another or a damaged one."""
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
