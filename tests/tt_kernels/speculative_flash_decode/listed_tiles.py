# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Five users with lists of tiles of every kind."""

from __future__ import annotations

import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import Case
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.tile_lists import list_rows

RANGE = GuessRange(32, 32, whole_tail=True, tiles=3)
CASE = Case(8, 2, 64, 320, 32, users=5, grid=(4, 1))
POSITIONS = [319, 290, -1, 100, 250]
TOKENS = [position + 1 for position in POSITIONS]
# Two heads of each user: apart and beside each other; at either end of the middle, and none; of a skipped user; the
# whole middle, of a bypassed user; and what the kernel must not follow, of which it keeps nothing and [3].
LISTS = [[[2, 5, 7], [4, 5, 6]], [[1, 7], []], [[1], [2]], [[1], [1]], [[], [3]]]


def list_words() -> torch.Tensor:
    """Return the words of LISTS, with some that a kernel must not follow."""
    found = list_rows(TOKENS, LISTS)
    found[4, 0, :5] = torch.tensor([TOKENS[4] - 1, 3, 2, 3, 4], dtype=torch.int32)  # of another step
    # At the ends, after the cache, twice, not ascending, negative; more than are counted.
    bad = [TOKENS[4], 1000, 0, 0, 3, 3, 2, 6, 7, 9, 1000, -1]
    found[4, 1, : len(bad)] = torch.tensor(bad, dtype=torch.int32)
    return found
