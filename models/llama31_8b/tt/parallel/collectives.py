# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives between the chips of a tensor-parallel group."""

from __future__ import annotations

import ttnn

from .mesh import TP_AXIS, MeshShape


def gather(x: ttnn.Tensor, mesh_shape: MeshShape, dim: int = 3) -> ttnn.Tensor:
    """Gather the columns of a TP group on each chip: [1, 1, rows, columns / tp] -> [1, 1, rows, columns]; or
    concatenate along another dimension."""
    return x if mesh_shape.tp == 1 else ttnn.all_gather(x, dim=dim, cluster_axis=TP_AXIS)


def reduce(x: ttnn.Tensor, mesh_shape: MeshShape) -> ttnn.Tensor:
    """Sum over a TP group, a part for each chip: [1, 1, rows, columns] -> [1, 1, rows, columns / tp]."""
    if mesh_shape.tp == 1:
        return x
    return ttnn.reduce_scatter(x, dim=3, cluster_axis=TP_AXIS, topology=ttnn.Topology.Linear)


class TpCollectives:
    """The collectives of a decode step over a TP group."""

    def __init__(self, mesh_shape: MeshShape) -> None:
        self.mesh_shape = mesh_shape

    def gather(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Do `gather`; the next call may overwrite the result."""
        return gather(x, self.mesh_shape)

    def reduce(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Do `reduce`; the next call may overwrite the result."""
        return reduce(x, self.mesh_shape)


class ShardedTpCollectives(TpCollectives):
    """Collectives of activations sharded by columns in L1, into buffers that all steps share. whole: memory of all
    columns; part: of a chip's. Gathers and reductions alternate, so that no chip writes a buffer which its peer still
    reads."""

    def __init__(
        self,
        mesh_shape: MeshShape,
        mesh: ttnn.MeshDevice,
        users: int,
        hidden: int,
        whole: ttnn.MemoryConfig,
        part: ttnn.MemoryConfig,
    ) -> None:
        super().__init__(mesh_shape)
        self._gathered, self._reduced = (
            ttnn.empty([1, 1, users, columns], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, memory)
            for columns, memory in ((hidden, whole), (hidden // mesh_shape.tp, part))
        )

    def gather(self, x):
        return ttnn.all_gather(
            x,
            dim=3,
            cluster_axis=TP_AXIS,
            memory_config=self._gathered.memory_config(),
            output_tensor=self._gathered,
        )

    def reduce(self, x):
        return ttnn.reduce_scatter(
            x,
            dim=3,
            cluster_axis=TP_AXIS,
            topology=ttnn.Topology.Linear,
            memory_config=self._reduced.memory_config(),
            output_tensor=self._reduced,
        )
