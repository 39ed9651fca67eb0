# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guess ranges: which cached tokens the guess attends to.

All of them take tiles from the start and from the end of the cache, as the kernels' split of work does
(common/kernels/chunk_split.hpp). README.md says what another kind would cost.

Lists name the tiles of 32 keys that a guess reads beside the two ends; `common/kernels/tile_list.hpp` reads them:
uint32 [users, kv_heads, 16], ROW_MAJOR: the number of cached tokens of the step that the list is for, the number of
tiles, and the tiles in ascending order. A step with another number of cached tokens ignores the list, as it does tiles
that it reads anyway or does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class GuessRange:
    """The first `first` cached tokens and the last ones, which end with the tile that holds the position.

    last: tokens, including those of the last tile that are not cached yet; so `last` - 31 to `last` are cached.
    whole_tail: one more tile if the last one is not full, so that at least `last` cached tokens are read.
    tiles: at most so many tiles of 32 between them, which a list names for each key/value head (guess_range.py).
    Both sizes are multiples of 32. Users with fewer cached tokens than all of these are bypassed.
    """

    first: int
    last: int
    whole_tail: bool = False
    tiles: int = 0

    @classmethod
    def both_ends(cls, chunk_size: int) -> GuessRange:
        """Return the default: `chunk_size` tokens at either end, those of the tail all cached (README.md says why)."""
        return cls(chunk_size, chunk_size, whole_tail=True)

    @property
    def first_tiles(self) -> int:
        return self.first // TILE

    @property
    def last_tiles(self) -> int:
        return self.last // TILE

    @property
    def bypass_below(self) -> int:
        """The number of cached tokens below which users are bypassed."""
        return self.first + self.last + self.tiles * TILE

    def tail_tiles(self, tokens: int) -> int:
        """Return the tiles that are read from the end for a user with `tokens` cached tokens."""
        return self.last_tiles + (self.whole_tail and tokens % TILE != 0)


def check_guess_range(guess_range: Any, max_tokens: int) -> None:
    """Raise UnsupportedError unless `guess_range` is a GuessRange of multiples of 32 tokens within the cache."""
    if not isinstance(guess_range, GuessRange):
        raise UnsupportedError(f"guess_range must be a GuessRange, it is a {type(guess_range).__qualname__}")
    for name, size in (("first", guess_range.first), ("last", guess_range.last)):
        if type(size) is not int or not TILE <= size <= max_tokens or size % TILE:
            raise UnsupportedError(
                f"guess_range.{name} must be a multiple of {TILE} from {TILE} to the {max_tokens} tokens of the "
                f"caches, got {size!r}"
            )
    if type(guess_range.whole_tail) is not bool:
        raise UnsupportedError(f"guess_range.whole_tail must be True or False, got {guess_range.whole_tail!r}")
    if type(guess_range.tiles) is not int or not 0 <= guess_range.tiles <= MAX_TILES:
        raise UnsupportedError(f"guess_range.tiles must be from 0 to {MAX_TILES}, got {guess_range.tiles!r}")


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
