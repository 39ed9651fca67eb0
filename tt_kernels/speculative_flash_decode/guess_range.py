# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guess ranges: which cached tokens the guess attends to.

All of them take tiles from the start and from the end of the cache, as the kernels' split of work does
(common/kernels/chunk_split.hpp). README.md says what another kind would cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.speculative_flash_decode.tile_lists import MAX_TILES


@dataclass(frozen=True)
class GuessRange:
    """The first `first` cached tokens and the last ones, which end with the tile that holds the position.

    last: tokens, including those of the last tile that are not cached yet; so `last` - 31 to `last` are cached.
    whole_tail: one more tile if the last one is not full, so that at least `last` cached tokens are read.
    tiles: at most so many tiles of 32 between them, which a list names for each key/value head (tile_lists.py).
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


def check_guess_range(guess_range, max_tokens: int) -> None:
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
