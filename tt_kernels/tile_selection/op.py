# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the tiles of 32 keys that the next guesses read beside the two ends of the cache: the heaviest ones of each
key/value head by the softmax masses of the layer's last exact pass on this chip.

`speculative_flash_decode(tile_masses=)` writes the masses and `speculative_flash_decode(chosen=)` reads the bitmaps
(speculative_flash_decode/guess_range.py). One call at the start of a decode step serves all layers, each head on a core
of its own where there are enough. Masses may be of any earlier step: a chip of a pair has none of the steps in which
its peer computed the exact attention. Zeroed masses, as after a prompt, choose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tt_kernels.common.circular_buffers import word_buffer
from tt_kernels.common.cores import check_on_device, core_set, grid_cores
from tt_kernels.common.kernel import UNGATED_DEFINE, kernel_descriptor, require_ungated
from tt_kernels.common.tensor_facts import UnsupportedError, facts, unsupported_if_refused
from tt_kernels.speculative_flash_decode.checks import check_positions
from tt_kernels.speculative_flash_decode.guess_range import (
    GuessRange,
    check_chosen,
    check_guess_range,
    check_tile_masses,
    chosen_words,
)

if TYPE_CHECKING:
    import ttnn

KERNEL = Path(__file__).parent / "kernels" / "select.cpp"
_BUFFERS = {"cb_positions": 0, "cb_masses": 1, "cb_chosen": 2}
MOST_TILES = 14  # kernels/heaviest.hpp


def select_tiles(
    masses: Sequence[ttnn.Tensor],
    chosen: Sequence[ttnn.Tensor],
    cur_pos: ttnn.Tensor,
    guess_range: GuessRange,
    *,
    tiles: int,
) -> None:
    """Write the bitmaps of a step with the positions `cur_pos`: the `tiles` heaviest tiles between the two ends, 1 to
    14, the lower one where two are equal, none without mass.

    masses: of each layer, uint32 [users, kv_heads, max_tokens / 32]. chosen: of each layer, uint32 [users, kv_heads,
    chosen_words(max_tokens)]. cur_pos: int32 [users]; the bitmaps of a user at -1 stay what they are. All ROW_MAJOR and
    interleaved. Runs inside and outside `skip_compute` alike. Errors: UnsupportedError.
    """
    import ttnn

    if not masses or len(masses) != len(chosen):
        raise UnsupportedError(
            f"select_tiles needs masses and bitmaps of each layer, got {len(masses)} and {len(chosen)}"
        )
    shape = tuple(masses[0].shape)
    if len(shape) != 3:
        raise UnsupportedError(f"masses must be [users, kv_heads, tiles], their shape is {shape}")
    users, kv_heads, cache_tiles = shape
    check_guess_range(guess_range, 32 * cache_tiles)
    if type(tiles) is not int or not 1 <= tiles <= MOST_TILES:
        raise UnsupportedError(f"tiles must be from 1 to {MOST_TILES}, got {tiles!r}")
    check_positions(facts("cur_pos", cur_pos), users)
    device = masses[0].device()
    for layer, (mass, rows) in enumerate(zip(masses, chosen, strict=True)):
        check_tile_masses(facts(f"masses[{layer}]", mass), users, kv_heads, 32 * cache_tiles)
        check_chosen(facts(f"chosen[{layer}]", rows), users, kv_heads, 32 * cache_tiles)
    for name, tensor in (("masses", masses[0]), ("chosen", chosen[0]), ("cur_pos", cur_pos)):
        unsupported_if_refused(check_on_device, name, tensor, device)
    ttnn.generic_op([*masses, cur_pos, *chosen], _program(masses, chosen, cur_pos, guess_range, tiles))


def _program(
    masses: Sequence[ttnn.Tensor],
    chosen: Sequence[ttnn.Tensor],
    cur_pos: ttnn.Tensor,
    guess_range: GuessRange,
    limit: int,
) -> Any:
    import ttnn

    users, kv_heads, tiles = tuple(masses[0].shape)
    places = [
        (mass.buffer_address(), rows.buffer_address(), item)
        for mass, rows in zip(masses, chosen, strict=True)
        for item in range(users * kv_heads)
    ]
    cores = grid_cores(masses[0].device(), None, (0, 0))[: len(places)]
    dealt = {core: places[i :: len(cores)] for i, core in enumerate(cores)}
    kernel = kernel_descriptor(
        KERNEL,
        ttnn.WriterConfigDescriptor(),
        constants=_BUFFERS,
        accessors={"masses": masses[0], "chosen": chosen[0], "positions": cur_pos},
        common={
            "users": users,
            "kv_heads": kv_heads,
            "cache_tiles": tiles,
            "guess_first": guess_range.first_tiles,
            "guess_last": guess_range.last_tiles,
            "guess_whole_tail": int(guess_range.whole_tail),
            "guess_tiles": limit,
            "positions": cur_pos.buffer_address(),
        },
        per_core={
            core: {"heads": len(own), "places": [word for place in own for word in place]}
            for core, own in dealt.items()
        },
        defines=[UNGATED_DEFINE],
    )
    sizes = {"cb_positions": 64, "cb_masses": 4 * tiles, "cb_chosen": 4 * chosen_words(32 * tiles)}
    program = ttnn.ProgramDescriptor(
        kernels=[kernel],
        semaphores=[],
        cbs=[word_buffer(_BUFFERS[name], -(-size // 16) * 16, core_set(*cores)) for name, size in sizes.items()],
    )
    return require_ungated(program, "select_tiles")
