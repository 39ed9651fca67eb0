# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives between the chips of a tensor-parallel group."""

from __future__ import annotations

import ttnn

from .mesh import TP_AXIS, MeshShape


def gather(x: ttnn.Tensor, mesh_shape: MeshShape, dim: int = 3) -> ttnn.Tensor:
    """The columns of all chips of a row, on each: [1, 1, rows, columns / tp] -> [1, 1, rows, columns]; or what they
    have one behind the other along another dimension."""
    return x if mesh_shape.tp == 1 else ttnn.all_gather(x, dim=dim, cluster_axis=TP_AXIS)


def reduce(x: ttnn.Tensor, mesh_shape: MeshShape) -> ttnn.Tensor:
    """The sum over the chips of a row, a part each: [1, 1, rows, columns] -> [1, 1, rows, columns / tp]."""
    if mesh_shape.tp == 1:
        return x
    return ttnn.reduce_scatter(x, dim=3, cluster_axis=TP_AXIS, topology=ttnn.Topology.Linear)


class TpCollectives:
    """The chips of a row: their collectives of a decode step."""

    def __init__(self, mesh_shape: MeshShape) -> None:
        self.mesh_shape = mesh_shape

    def gather(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """As the function of this name; the next call may overwrite the result."""
        return gather(x, self.mesh_shape)

    def reduce(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """As the function of this name; the next call may overwrite the result."""
        return reduce(x, self.mesh_shape)


class ShardedTpCollectives(TpCollectives):
    """Between activations that lie in L1 by columns, into buffers that all steps share: `whole` of all columns, `part`
    of a chip's. Gathers and reductions take turns, so that no chip writes a buffer which its peer still reads."""

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
