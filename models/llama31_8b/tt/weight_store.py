# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Weights on the mesh, through a cache on disk of what was converted for this model, plan, mesh and ttnn."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import ttnn
from loguru import logger

from ..config import LlamaConfig
from ..conversion_cache import cache_folder
from .mesh import MeshPlan
from .precision import PrecisionPlan

# Part of every key: raise it when the layout of a converted tensor changes.
LAYOUT_VERSION = 1


def state_fingerprint(state: Mapping[str, torch.Tensor]) -> str:
    """Sixteen hex digits of names, shapes and some numbers of every tensor; other weights, others."""
    digest = hashlib.sha256()
    for name in sorted(state):
        flat = state[name].detach().reshape(-1)
        some = flat[:: max(1, len(flat) // 1024)].float().contiguous().numpy()
        digest.update(f"{name} {tuple(state[name].shape)} {state[name].dtype}".encode())
        digest.update(some.tobytes())
    return digest.hexdigest()[:16]


def entry_folder(
    config: LlamaConfig, state: Mapping[str, torch.Tensor], plan: MeshPlan, precision: PrecisionPlan
) -> Path:
    """Where the converted weights of this model, mesh, precision plan and ttnn version are kept."""
    model = re.sub(r"[^A-Za-z0-9.]+", "-", config.name)
    version = importlib.metadata.version("ttnn")
    key = f"{model}-{state_fingerprint(state)}-{precision.key}-{plan}-ttnn{version}-v{LAYOUT_VERSION}"
    return cache_folder() / "tt_weights" / key


class WeightStore:
    """Puts host matrices on the mesh. folder: the cache entry, None for no cache.

    A file counts only with its line in the manifest: name, format, split and the SHA-256 of its content. One
    that does not match is made again.
    """

    def __init__(self, mesh: ttnn.MeshDevice, plan: MeshPlan, folder: Path | None = None) -> None:
        self.mesh, self.plan, self.folder = mesh, plan, folder
        self.converted, self.reused = 0, 0
        self._manifest: dict[str, dict] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._manifest = _read_manifest(folder / "manifest.json")

    def put(
        self,
        name: str,
        make: Callable[[], torch.Tensor],
        dtype: str,
        split: int | None,
        layout: str = "TILE_LAYOUT",
    ) -> ttnn.Tensor:
        """The tensor `make` gives, in DRAM, as [1, 1, rows, columns] (ROW_MAJOR: [rows, columns]).

        split: the dimension, -1 or -2, that the chips of a row share; None for a copy on each.
        """
        described = {"dtype": dtype, "split": split, "layout": layout}
        if (cached := self._cached(name, described)) is not None:
            self.reused += 1
            return ttnn.load_tensor(str(cached), device=self.mesh)
        host = self._convert(make(), dtype, split, layout)
        self.converted += 1
        if self.folder is not None:
            self._save(name, host, described)
        return ttnn.to_device(host, self.mesh, memory_config=ttnn.DRAM_MEMORY_CONFIG)

    def _convert(self, tensor: torch.Tensor, dtype: str, split: int | None, layout: str) -> ttnn.Tensor:
        if layout == "TILE_LAYOUT":
            tensor = tensor.reshape((1,) * (4 - tensor.ndim) + tuple(tensor.shape))
        dim = None if split is None else tensor.ndim + split
        return ttnn.from_torch(
            tensor.to(torch.bfloat16).contiguous() if dtype == "bfloat16" else tensor.float().contiguous(),
            dtype=getattr(ttnn, dtype),
            layout=getattr(ttnn, layout),
            mesh_mapper=self.plan.mapper(self.mesh, dim),
        )

    def _cached(self, name: str, described: Mapping) -> Path | None:
        found = self._manifest.get(name)
        if self.folder is None or found is None:
            return None
        path = self.folder / f"{name}.tensorbin"
        wanted = {key: found.get(key) for key in described} == described
        if wanted and path.is_file() and _digest(path) == found.get("sha256"):
            return path
        logger.warning("{} is damaged: converting {} again", path, name)
        return None

    def _save(self, name: str, host: ttnn.Tensor, described: Mapping) -> None:
        path, partial = self.folder / f"{name}.tensorbin", self.folder / f"{name}.partial.tensorbin"
        ttnn.dump_tensor(str(partial), host)
        self._manifest[name] = {**described, "sha256": _digest(partial)}
        os.replace(partial, path)
        written = self.folder / "manifest.json.partial"
        written.write_text(json.dumps(self._manifest), encoding="utf-8")
        os.replace(written, self.folder / "manifest.json")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(path: Path) -> dict[str, dict]:
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {name: dict(entry) for name, entry in data.items()}
    except (ValueError, AttributeError, TypeError):
        logger.warning("{} is damaged: converting every weight again", path)
        return {}
