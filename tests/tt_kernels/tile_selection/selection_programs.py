# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of the tile selection tests that run in a worker with a device."""

from __future__ import annotations

import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import upload_words
from tt_kernels.speculative_flash_decode.guess_range import GuessRange

CHIP = "4x2"


def selection_body(device, masses: torch.Tensor, before: torch.Tensor, positions: list[int], guess_range: GuessRange):
    """The lists of all layers after the op, int64 [layers, users, kv_heads, 16]. before: what they hold at first."""
    import ttnn

    from tt_kernels.tile_selection.op import select_tiles

    held = [upload_words(device, layer, "uint32") for layer in masses.int()]
    lists = [upload_words(device, layer, "uint32") for layer in before]
    select_tiles(held, lists, upload_words(device, positions, "int32"), guess_range)
    return torch.stack([ttnn.to_torch(layer).long() for layer in lists])


def refused_body(device) -> list[str]:
    """Calls that were not refused with the words that name their mistake."""
    from tt_kernels.common.tensor_facts import UnsupportedError
    from tt_kernels.tile_selection.op import select_tiles

    def words(*shape, dtype="uint32"):
        return upload_words(device, torch.zeros(shape, dtype=torch.int32), dtype)

    good = GuessRange(32, 32, tiles=2)
    masses, lists, at = words(2, 1, 8), words(2, 1, 16), words(2, dtype="int32")
    wrong = []
    for arguments, expected in (
        (([], [], at, good), "got 0 and 0"),
        (([masses], [lists, lists], at, good), "got 1 and 2"),
        (([masses, words(2, 1, 4)], [lists, lists], at, good), "(2, 1, 8)"),
        (([masses], [words(2, 1, 8)], at, good), "(2, 1, 16)"),
        (([masses], [lists], words(1, dtype="int32"), good), "(2,)"),
        (([masses], [lists], at, GuessRange(32, 32)), "without tiles"),
        (([masses], [lists], at, GuessRange(32, 512, tiles=2)), "256 tokens"),
    ):
        try:
            select_tiles(*arguments)
            wrong.append(f"accepted: {expected}")
        except UnsupportedError as error:
            if expected not in str(error):
                wrong.append(f"{expected}: {error}")
    return wrong
