# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guess ranges and chosen tiles: which cached tokens the guess attends to.

A range takes tiles from the start and from the end of the cache. A bitmap names the tiles of 32 keys that the guess of
a key/value head reads besides: uint32 [users, kv_heads, W], ROW_MAJOR, with W = `chosen_words(max_tokens)`; bit t % 32
of word t // 32 is set for tile t (common/kernels/chosen_tiles.hpp). Bits of tiles that the guess reads anyway, or that
hold no cached token, count for nothing: whatever the words hold, no tile is read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, check_words

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class GuessRange:
    """The first `first` cached tokens and the last ones, which end with the tile that holds the position.

    last: tokens, including those of the last tile that are not cached yet; so `last` - 31 to `last` are cached.
    whole_tail: one more tile if the last one is not full, so that at least `last` cached tokens are read.
    Both sizes are multiples of 32. Users with fewer cached tokens than twice the larger one are bypassed.
    """

    first: int
    last: int
    whole_tail: bool = False

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
        """The number of cached tokens below which users are bypassed: twice the larger end."""
        return 2 * max(self.first, self.last)

    def tail_tiles(self, tokens: int) -> int:
        """Return the tiles that are read from the end for a user with `tokens` cached tokens."""
        return self.last_tiles + (self.whole_tail and tokens % TILE != 0)

    def middle(self, tokens: int) -> range:
        """Return the tiles between both ends of a user with `tokens` cached tokens, of which bits may choose some."""
        total = -(-tokens // TILE)
        return range(self.first_tiles, max(total - self.tail_tiles(tokens), self.first_tiles))


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


WORD_BITS, LINE_WORDS = 32, 8  # DRAM is read by lines of 32 bytes
MASS_UNIT = 2.0**-24  # of a mass (common/kernels/tile_mass.hpp)


def chosen_words(max_tokens: int) -> int:
    """Return the words of a head's bitmap: ceil(max_tokens / 32 / 32), rounded up to a multiple of 8."""
    return -(-max_tokens // (TILE * WORD_BITS * LINE_WORDS)) * LINE_WORDS


def chosen_rows(tiles: Sequence[Sequence[Sequence[int]]], max_tokens: int) -> torch.Tensor:
    """Return the bitmaps, as int64 [users, kv_heads, W], of tiles by user and key/value head. Raises ValueError for a
    tile outside the cache."""
    import torch

    rows = torch.zeros(len(tiles), len(tiles[0]), chosen_words(max_tokens), dtype=torch.int64)
    for user, heads in enumerate(tiles):
        for head, chosen in enumerate(heads):
            for tile in set(chosen):
                if not 0 <= tile < -(-max_tokens // TILE):
                    raise ValueError(f"user {user}, head {head}: tile {tile} is outside a cache of {max_tokens} tokens")
                rows[user, head, tile // WORD_BITS] |= 1 << tile % WORD_BITS
    return rows


def check_tile_words(
    chosen: TensorFacts | None, masses: TensorFacts | None, users: int, kv_heads: int, max_tokens: int
) -> None:
    """Raise UnsupportedError unless each key/value head has a bitmap as above, and a mass, a word, for each tile of 32
    tokens, where they are given."""
    if chosen is not None:
        check_words("chosen", chosen, "UINT32", (users, kv_heads, chosen_words(max_tokens)))
    if masses is not None:
        check_words("tile_masses", masses, "UINT32", (users, kv_heads, max_tokens // TILE))
