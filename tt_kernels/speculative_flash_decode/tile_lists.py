# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of the tiles of 32 keys that a guess reads beside the two ends; `common/kernels/tile_list.hpp` reads them.

uint32 [users, kv_heads, 16], ROW_MAJOR: the number of cached tokens of the step that the list is for, the number of
tiles, and the tiles in ascending order. A step with another number of cached tokens ignores the list, as it does tiles
that it reads anyway or does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError

if TYPE_CHECKING:
    import torch

ROW_WORDS = 16
MASS_UNIT = 2.0**-24  # of a mass (common/kernels/tile_mass.hpp)
MAX_TILES = ROW_WORDS - 2
MAX_ITEMS = 64


def list_rows(tokens: Sequence[int], tiles: Sequence[Sequence[Sequence[int]]]) -> torch.Tensor:
    """Return the lists as int32 [users, kv_heads, 16]. tokens: cached tokens of each user in the step that reads them;
    tiles: tiles by user and key/value head. Raises ValueError for more than 14 tiles."""
    import torch

    rows = torch.zeros(len(tiles), len(tiles[0]), ROW_WORDS, dtype=torch.int32)
    for user, (cached, heads) in enumerate(zip(tokens, tiles, strict=True)):
        for head, listed in enumerate(heads):
            if len(listed) > MAX_TILES:
                raise ValueError(f"user {user}, head {head}: {len(listed)} tiles, at most {MAX_TILES} are listed")
            words = [cached, len(listed), *sorted(listed)]
            rows[user, head, : len(words)] = torch.tensor(words, dtype=torch.int32)
    return rows


def check_tile_masses(found: TensorFacts, users: int, kv_heads: int, max_tokens: int) -> None:
    """Raise UnsupportedError unless the masses have a word for each tile of 32 tokens of each key/value head."""
    wanted = ((users, kv_heads, max_tokens // 32), "UINT32", "ROW_MAJOR", True, True)
    if (found.shape, found.dtype, found.layout, found.on_device, found.interleaved) != wanted:
        raise UnsupportedError(
            f"tile_masses must be UINT32 ROW_MAJOR {wanted[0]}, interleaved on the device, it is {found}"
        )


def check_tile_lists(found: TensorFacts | None, users: int, kv_heads: int, tiles: int) -> None:
    """Raise UnsupportedError unless there are lists as above exactly where the guess range has `tiles`."""
    if found is None or not tiles:
        if (found is None) != (not tiles):
            raise UnsupportedError(f"tile_lists and guess_range.tiles belong together: {found}, {tiles} tiles")
        return
    wanted = ((users, kv_heads, ROW_WORDS), "UINT32", "ROW_MAJOR", True, True)
    if (found.shape, found.dtype, found.layout, found.on_device, found.interleaved) != wanted:
        raise UnsupportedError(
            f"tile_lists must be UINT32 ROW_MAJOR {wanted[0]}, interleaved on the device, it is {found}"
        )
    if users * kv_heads > MAX_ITEMS:
        raise UnsupportedError(
            f"tile_lists are for at most {MAX_ITEMS} key/value heads of all users, there are {users} x {kv_heads}"
        )
