# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the tiles of 32 keys that the next guesses read beside the two ends of the cache: the heaviest ones of each
key/value head by the softmax masses of the layer's last exact pass on this chip.

`speculative_flash_decode(tile_masses=)` writes the masses and `speculative_flash_decode(tile_lists=)` reads the lists
(speculative_flash_decode/guess_range.py). One call at the start of a decode step serves all layers, each head on a core
of its own where there are enough. Masses may be of any earlier step: a chip of a pair has none of the steps in which
its peer computed the exact attention. Zeroed masses, as after a prompt, give an empty list.
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
    ROW_WORDS,
    GuessRange,
    check_guess_range,
    check_tile_lists,
    check_tile_masses,
)

if TYPE_CHECKING:
    import ttnn

KERNEL = Path(__file__).parent / "kernels" / "select.cpp"
_BUFFERS = {"cb_positions": 0, "cb_masses": 1, "cb_list": 2}


def select_tiles(
    masses: Sequence[ttnn.Tensor], lists: Sequence[ttnn.Tensor], cur_pos: ttnn.Tensor, guess_range: GuessRange
) -> None:
    """Write the lists of a step with the positions `cur_pos`: the `guess_range.tiles` heaviest tiles between the two
    ends, the lower one where two are equal, none without mass.

    masses: of each layer, uint32 [users, kv_heads, max_tokens / 32]. lists: of each layer, uint32 [users, kv_heads,
    16]. cur_pos: int32 [users]; the lists of a user at -1 stay what they are. All ROW_MAJOR and interleaved. Runs
    inside and outside `skip_compute` alike. Errors: UnsupportedError.
    """
    import ttnn

    if not masses or len(masses) != len(lists):
        raise UnsupportedError(f"select_tiles needs masses and lists of each layer, got {len(masses)} and {len(lists)}")
    shape = tuple(masses[0].shape)
    if len(shape) != 3:
        raise UnsupportedError(f"masses must be [users, kv_heads, tiles], their shape is {shape}")
    users, kv_heads, tiles = shape
    check_guess_range(guess_range, 32 * tiles)
    if not guess_range.tiles:
        raise UnsupportedError(f"a guess range without tiles has no lists: {guess_range}")
    check_positions(facts("cur_pos", cur_pos), users)
    device = masses[0].device()
    for layer, (mass, rows) in enumerate(zip(masses, lists, strict=True)):
        check_tile_masses(facts(f"masses[{layer}]", mass), users, kv_heads, 32 * tiles)
        check_tile_lists(facts(f"lists[{layer}]", rows), users, kv_heads, guess_range.tiles)
    for name, tensor in (("masses", masses[0]), ("lists", lists[0]), ("cur_pos", cur_pos)):
        unsupported_if_refused(check_on_device, name, tensor, device)
    ttnn.generic_op([*masses, cur_pos, *lists], _program(masses, lists, cur_pos, guess_range))


def _program(
    masses: Sequence[ttnn.Tensor], lists: Sequence[ttnn.Tensor], cur_pos: ttnn.Tensor, guess_range: GuessRange
) -> Any:
    import ttnn

    users, kv_heads, tiles = tuple(masses[0].shape)
    places = [
        (mass.buffer_address(), rows.buffer_address(), item)
        for mass, rows in zip(masses, lists, strict=True)
        for item in range(users * kv_heads)
    ]
    cores = grid_cores(masses[0].device(), None, (0, 0))[: len(places)]
    dealt = {core: places[i :: len(cores)] for i, core in enumerate(cores)}
    kernel = kernel_descriptor(
        KERNEL,
        ttnn.WriterConfigDescriptor(),
        constants=_BUFFERS,
        accessors={"masses": masses[0], "lists": lists[0], "positions": cur_pos},
        common={
            "users": users,
            "kv_heads": kv_heads,
            "cache_tiles": tiles,
            "guess_first": guess_range.first_tiles,
            "guess_last": guess_range.last_tiles,
            "guess_whole_tail": int(guess_range.whole_tail),
            "guess_tiles": guess_range.tiles,
            "positions": cur_pos.buffer_address(),
        },
        per_core={
            core: {"heads": len(own), "places": [word for place in own for word in place]}
            for core, own in dealt.items()
        },
        defines=[UNGATED_DEFINE],
    )
    sizes = {"cb_positions": 64, "cb_masses": 4 * tiles, "cb_list": 4 * ROW_WORDS}
    program = ttnn.ProgramDescriptor(
        kernels=[kernel],
        semaphores=[],
        cbs=[word_buffer(_BUFFERS[name], -(-size // 16) * 16, core_set(*cores)) for name, size in sizes.items()],
    )
    return require_ungated(program, "select_tiles")
