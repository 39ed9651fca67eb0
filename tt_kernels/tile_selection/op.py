# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the tiles of 32 keys that the next guesses read beside the two ends of the cache: the heaviest ones of each
key/value head, until a budget of the softmax masses of the layer's earlier exact passes on this chip is read.

`speculative_flash_decode(tile_masses=)` keeps the masses and `speculative_flash_decode(chosen=)` reads the bitmaps
(speculative_flash_decode/guess_range.py). One call at the start of a decode step serves all layers, each head on a
data movement core of its own where there are enough. Masses may be of any earlier step: a chip of a pair has none of
the steps in which its peer computed the exact attention. Zeroed masses, as after a prompt, choose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tt_kernels.common.attention_checks import check_positions
from tt_kernels.common.circular_buffers import aligned, word_buffer
from tt_kernels.common.cores import check_on_device, core_set, grid_cores
from tt_kernels.common.kernel import UNGATED_DEFINE, kernel_descriptor, program_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import UnsupportedError, facts
from tt_kernels.speculative_flash_decode.guess_range import (
    GuessRange,
    check_guess_range,
    check_tile_words,
    chosen_words,
)

KERNEL = Path(__file__).parent / "kernels" / "select.cpp"
_BUFFERS = ("cb_positions", "cb_masses", "cb_chosen", "cb_near")
PART = 1 << 16  # of a budget


def select_tiles(
    masses: Sequence[ttnn.Tensor],
    chosen: Sequence[ttnn.Tensor],
    cur_pos: ttnn.Tensor,
    guess_range: GuessRange,
    budget: float,
) -> None:
    """Write the bitmaps of a step with the positions `cur_pos`: the heaviest tiles between the two ends, the lower one
    where two are equal, until those that stay unread hold at most 1 - budget of the head's whole mass; none without
    mass. budget: above 0 and below 1, counted in units of 2^-16.

    masses: of each layer, uint32 [users, kv_heads, max_tokens / 32]. chosen: of each layer, uint32 [users, kv_heads,
    chosen_words(max_tokens)]. cur_pos: int32 [users]; the bitmaps of a user at -1 stay what they are. All ROW_MAJOR and
    interleaved. Runs inside and outside `skip_compute` alike. Errors: UnsupportedError.
    """
    if not masses or len(masses) != len(chosen):
        raise UnsupportedError(
            f"select_tiles needs masses and bitmaps of each layer, got {len(masses)} and {len(chosen)}"
        )
    shape = tuple(masses[0].shape)
    if len(shape) != 3:
        raise UnsupportedError(f"masses must be [users, kv_heads, tiles], their shape is {shape}")
    users, kv_heads, cache_tiles = shape
    check_guess_range(guess_range, 32 * cache_tiles)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 < round(budget * PART) < PART:
        raise UnsupportedError(f"budget must be from 1/{PART} to 1 - 1/{PART}, got {budget!r}")
    check_positions("cur_pos", facts("cur_pos", cur_pos), users)
    device = masses[0].device()
    for layer, (mass, rows) in enumerate(zip(masses, chosen, strict=True)):
        found = facts(f"chosen[{layer}]", rows), facts(f"masses[{layer}]", mass)
        check_tile_words(*found, users, kv_heads, 32 * cache_tiles)
    for name, tensor in (("masses", masses[0]), ("chosen", chosen[0]), ("cur_pos", cur_pos)):
        check_on_device(name, tensor, device)
    ttnn.generic_op([*masses, cur_pos, *chosen], _program(masses, chosen, cur_pos, guess_range, budget))


def _program(
    masses: Sequence[ttnn.Tensor],
    chosen: Sequence[ttnn.Tensor],
    cur_pos: ttnn.Tensor,
    guess_range: GuessRange,
    budget: float,
) -> Any:
    users, kv_heads, tiles = tuple(masses[0].shape)
    places = [
        (mass.buffer_address(), rows.buffer_address(), item)
        for mass, rows in zip(masses, chosen, strict=True)
        for item in range(users * kv_heads)
    ]
    cores = grid_cores(masses[0].device())
    sizes = (64, 4 * tiles, 4 * chosen_words(32 * tiles), 4 * tiles)
    kernels, buffers = [], []
    # Both data movement cores of each core, the second ones where there are more heads than cores.
    for risc, config in enumerate(("Writer", "Reader")):
        riscs = min(2 * len(cores), len(places))
        dealt = {core: places[risc * len(cores) + i :: riscs] for i, core in enumerate(cores)}
        dealt = {core: own for core, own in dealt.items() if risc * len(cores) < riscs and own}
        if not dealt:
            continue
        numbers = {name: risc * len(_BUFFERS) + i for i, name in enumerate(_BUFFERS)}
        kernels.append(
            kernel_descriptor(
                KERNEL,
                config,
                constants=numbers,
                accessors={"masses": masses[0], "chosen": chosen[0], "positions": cur_pos},
                common={
                    "users": users,
                    "kv_heads": kv_heads,
                    "cache_tiles": tiles,
                    "guess_first": guess_range.first_tiles,
                    "guess_last": guess_range.last_tiles,
                    "guess_whole_tail": int(guess_range.whole_tail),
                    "unread_part": PART - round(budget * PART),
                    "positions": cur_pos.buffer_address(),
                },
                per_core={
                    core: {"heads": len(own), "places": [word for place in own for word in place]}
                    for core, own in dealt.items()
                },
                defines=[UNGATED_DEFINE],
            )
        )
        held = core_set(*dealt)
        buffers += [word_buffer(numbers[n], aligned(size), held) for n, size in zip(_BUFFERS, sizes, strict=True)]
    return program_of(kernels, buffers, ungated="select_tiles")
