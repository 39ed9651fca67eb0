# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How many keys a worker processes at once where the cache is long: as many as keep its result accurate."""

from __future__ import annotations

from collections.abc import Callable

# Each chunk rounds the softmax state to 9 bits (kernels/online_softmax.hpp). The roundings of random scores add up as
# the root of their number: 0.58 % of the result after 128 of them, 0.46 % after 64.
MAX_CHUNKS = 64


def lengthened(key_tiles: int, cache_tiles: int, workers: int, fits: Callable[[int], bool]) -> int:
    """Return the key tiles of a chunk: `key_tiles`, or their lowest multiple with which each of `workers` that share a
    cache of `cache_tiles` goes through it in MAX_CHUNKS chunks, or the highest below that which `fits`."""
    wanted = key_tiles * -(-cache_tiles // (workers * MAX_CHUNKS * key_tiles))
    return next((tiles for tiles in range(wanted, key_tiles, -key_tiles) if fits(tiles)), key_tiles)
