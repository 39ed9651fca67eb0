# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The state of a guess that follows the attention: each layer's masses of tiles and lists of tiles on every chip.

A chip writes the masses of a layer when it verifies a guess there, for its own heads. At the start of a step every chip
makes the lists of all layers from its own masses: nothing is exchanged, and where a chip was not the sender for some
steps, its masses are that much older. Only the sender's list counts in a step, since the receiver takes the guess.
"""

from __future__ import annotations

import torch
import ttnn

from tt_kernels.speculative_flash_decode.op import GuessRange
from tt_kernels.speculative_flash_decode.tile_lists import ROW_WORDS
from tt_kernels.tile_selection.op import select_tiles

from ..parallel.mesh import TILE


class FollowedTiles:
    """masses, lists: of each layer, uint32 [users, kv_heads / tp, capacity / 32] and [users, kv_heads / tp, 16] on each
    chip (`speculative_flash_decode`). kv_heads: of one chip."""

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        guess_range: GuessRange,
        *,
        layers: int,
        users: int,
        kv_heads: int,
        capacity: int,
    ) -> None:
        self.guess_range = guess_range
        masses, lists = (users, kv_heads, capacity // TILE), (users, kv_heads, ROW_WORDS)
        self.masses = [_zeros(mesh, masses) for _ in range(layers)]
        self.lists = [_zeros(mesh, lists) for _ in range(layers)]
        self._no_mass = _zeros(mesh, masses)

    def select(self, positions: ttnn.Tensor) -> None:
        """Make the lists of a step with these positions, int32 [users]."""
        select_tiles(self.masses, self.lists, positions, self.guess_range)

    def reset(self) -> None:
        """Forget all masses, as after a prompt. No step may be running."""
        for masses in self.masses:
            ttnn.copy(self._no_mass, masses)


def _zeros(mesh: ttnn.MeshDevice, shape: tuple[int, ...]) -> ttnn.Tensor:
    return ttnn.from_torch(
        torch.zeros(shape, dtype=torch.int32),
        dtype=ttnn.uint32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
    )
