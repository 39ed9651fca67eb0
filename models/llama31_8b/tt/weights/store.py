# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Put weights on the mesh, converted once and cached on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import ttnn

from ..parallel.mesh import MeshShape
from .cache import WeightCache


class WeightStore:
    """Put host matrices on the mesh. folder: the cache entry (see cache.py), None for no cache."""

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, folder: Path | None = None) -> None:
        self.mesh, self.mesh_shape = mesh, mesh_shape
        self.cache = None if folder is None else WeightCache(folder)
        self.converted, self.reused = 0, 0

    def put(
        self,
        name: str,
        make: Callable[[], torch.Tensor],
        dtype: str,
        split: int | None,
        layout: str = "TILE_LAYOUT",
        memory: ttnn.MemoryConfig | None = None,
    ) -> ttnn.Tensor:
        """Put `make`'s tensor in DRAM as [1, 1, rows, columns] (ROW_MAJOR: [rows, columns]).

        split: the dimension, -1 or -2, that a TP group shares; None for a copy on each chip. memory: of a chip's part,
        None for interleaved; one cached file serves all.
        """
        described = {"dtype": dtype, "split": split, "layout": layout}
        if self.cache is not None and (cached := self.cache.find(name, described)) is not None:
            self.reused += 1
            if memory is None:
                return ttnn.load_tensor(str(cached), device=self.mesh)
            return ttnn.to_device(ttnn.load_tensor(str(cached)), self.mesh, memory_config=memory)
        host = self._convert(make(), dtype, split, layout)
        self.converted += 1
        if self.cache is not None:
            self.cache.save(name, described, lambda path: ttnn.dump_tensor(str(path), host))
        return ttnn.to_device(host, self.mesh, memory_config=memory or ttnn.DRAM_MEMORY_CONFIG)

    def _convert(self, tensor: torch.Tensor, dtype: str, split: int | None, layout: str) -> ttnn.Tensor:
        if layout == "TILE_LAYOUT":
            tensor = tensor.reshape((1,) * (4 - tensor.ndim) + tuple(tensor.shape))
        dim = None if split is None else tensor.ndim + split
        values = tensor if dtype == "bfloat16" else tensor.float()
        return self.mesh_shape.put(self.mesh, values, dtype, layout, dim, on_device=False)
