# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of the flash decode that speculates, on a virtual pair, and of the choice of the tiles that its guesses read.

Measured in a process with an open device; ttnn is imported there alone. Cores count cycles; those of this repository's
kernels start together (perf/lib/start_line.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from perf.lib.chip import Chip, counted_from_start, cycles_of, cycles_until_end
from perf.ops.family import Family, Row, measurable

RANKS = ((5, 2), (5, 2))  # columns and rows of the sender and the receiver


def _flash_decode(device, p: SimpleNamespace) -> Row:
    """One head on a virtual pair: the exact op, the whole sender, its exchange core with the guess, the receiver, which
    has it then, the guess alone, and the choice of one layer's tiles where the sender hands out their weights."""
    import torch

    from perf.lib.tensors import VirtualPair, tile, words
    from tt_kernels.speculative_flash_decode.guess_range import chosen_rows
    from tt_kernels.speculative_flash_decode.op import GuessRange, ProgramConfig, flash_decode, guess_flash_decode
    from tt_kernels.tile_selection.op import select_tiles

    torch.manual_seed(0)
    tiles = -(-p.context // 32)
    q = tile(device, (1, 1, p.heads, p.head_dim))
    k, v = (tile(device, (1, 1, 32 * tiles, p.head_dim), p.dtype) for _ in range(2))
    tensors = (q, k, v, words(device, [p.context - 1]))
    guess_range = GuessRange(p.first or p.chunk_size, p.last or p.chunk_size, p.whole_tail)
    chosen = None
    if p.tiles:  # as far apart as they can be
        middle = guess_range.middle(p.context)
        bits = chosen_rows([[middle[:: len(middle) // p.tiles][: p.tiles]]], 32 * tiles)
        chosen = words(device, bits, "uint32")
    pair = VirtualPair.make(
        *(device, tensors, RANKS),
        chunk_size=p.chunk_size,
        workers=p.workers,
        timeout_s=1e-2,
        guess_range=guess_range,
        chosen=chosen,
        tile_masses=lambda: words(device, torch.zeros(1, 1, tiles), "uint32") if p.masses else None,
    )
    config = ProgramConfig(RANKS[0], (0, 0), workers_per_head=p.workers)
    alone = {"chunk_size": p.chunk_size, "program_config": config}
    exact = cycles_of(device, lambda: flash_decode(*tensors, **alone))
    guessed = cycles_of(device, lambda: guess_flash_decode(*tensors, guess_range=guess_range, chosen=chosen, **alone))
    both, start = counted_from_start(device, pair.launch)
    pair.check()
    selection = 0
    if p.masses and p.tiles:
        given: tuple[Any, ...] = ([pair.sender.tile_masses], [chosen], tensors[3], guess_range, 0.98)
        selection = cycles_of(device, lambda: select_tiles(*given))
    sender, receiver = (
        cycles_until_end([cores for (_, y), cores in both.items() if y // 2 == rank], start) for rank in range(2)
    )
    row: Row = {"exact": exact, "sender": sender, "guess": cycles_until_end([both[pair.exchange]], start)}
    row |= {"receiver": receiver, "guess_alone": guessed}
    measurable(row)
    if row["guess"] > sender:
        raise ValueError(f"not measurable: the guess leaves after the end of {row}")
    row |= {"selection": selection, "overhead": sender / exact, "guess_share": row["guess"] / sender}
    # What the guess takes beyond its share of the exact pass, by tiles.
    read = guess_range.first_tiles + guess_range.tail_tiles(p.context) + p.tiles
    row["read_share"] = read / tiles
    row["beyond_share"] = round(row["guess"] - row["read_share"] * exact)
    return row | {"guess_range": guess_name(p), "chunks": -(-p.context // p.chunk_size)}


def guess_name(p: SimpleNamespace) -> str:
    """Return the tokens of a guess: of a chunk, or first + last; + where the tail is whole, and selected tiles."""
    sizes = f"{p.first or p.chunk_size} + {p.last}" if p.last else f"{p.chunk_size}"
    if p.tiles:
        sizes = f"{p.first} + {p.tiles} x 32 + {p.last}"
    return sizes + ("+" if p.whole_tail else "")


_SIZES = [
    *("context=128,256,384 chunk_size=32", "context=512 chunk_size=64", "context=1024 chunk_size=128"),
    "context=1024 chunk_size=32 workers=7",
]
_ENDS = "chunk_size=128 whole_tail=True head_dim=128 workers=7"
_CHOSEN = "chunk_size=128 whole_tail=True first=32 last=128 head_dim=128 workers=8 dtype=bfloat8_b"
FLASH_DECODE = Family(
    about="what speculation costs the flash decode kernel, one head on a virtual pair",
    options={
        **{"context": 128, "chunk_size": 32, "head_dim": 64, "heads": 4, "workers": 1, "last": 0},
        **{"whole_tail": False, "first": 0, "tiles": 0, "masses": False, "dtype": "bfloat16"},
    },
    choices={"dtype": ("bfloat16", "bfloat8_b")},
    points={
        "default": _SIZES,
        # Of a key/value head of Llama 3.1 8B; at 64K tokens with 3, 6 and 12 % of its tiles.
        "chosen": [
            *(f"context=1024,8192 {_ENDS}", f"context=16384 {_CHOSEN} tiles=61"),
            f"context=65536 {_CHOSEN} tiles=61,123,246",
        ],
        # What the sender pays for handing out the weights of its tiles.
        "weights": [
            f"context=1024,2048,4096,8192 {_ENDS} masses=False,True",
            "context=1024 chunk_size=128 whole_tail=True head_dim=128 masses=False,True",
        ],
        "long": [
            *_SIZES,
            *("context=256,768 chunk_size=64", "context=512 chunk_size=64 head_dim=128"),
            *("context=512,1024 chunk_size=64 workers=2", "context=1024 chunk_size=32 workers=2,4"),
            *("context=256,2048 chunk_size=32 workers=7", "context=1024,5120 chunk_size=128 workers=7"),
            "context=2048 chunk_size=128 workers=2,3,7",
            *(f"context=65536 {_CHOSEN} tiles=0", f"context=65536 {_CHOSEN} tiles=123 masses=True"),
        ],
    },
    chip=lambda point: Chip("5x4"),
    measure=_flash_decode,
)

# --- choosing the tiles of the next guesses ---


def _tile_selection(device, p: SimpleNamespace) -> Row:
    """One chip's choice for all layers of a step, of one key/value head each: masses over many octaves, as attention
    has them, or all within one, which takes most passes."""
    import torch

    from perf.lib.tensors import words
    from tt_kernels.speculative_flash_decode.guess_range import GuessRange, chosen_words
    from tt_kernels.tile_selection.op import select_tiles

    generator = torch.Generator().manual_seed(0)
    tiles = p.context // 32
    scores = torch.randn(p.layers, tiles, generator=generator) * 3
    weights = torch.softmax(scores, -1) if p.masses == "octaves" else 1 + torch.sigmoid(scores)
    masses = (weights * 2**24).long().view(p.layers, 1, 1, tiles)
    tensors = (
        [words(device, mass, "uint32") for mass in masses],
        [words(device, torch.zeros(1, 1, chosen_words(p.context)), "uint32") for _ in masses],
        words(device, [p.context - 1]),
        GuessRange(32, 128, whole_tail=True),
    )
    return {"cycles": cycles_of(device, lambda: select_tiles(*tensors, p.budget))}


TILE_SELECTION = Family(
    about="the choice of the tiles that the next guesses read, all layers of a step",
    options={"context": 65536, "layers": 4, "masses": "octaves", "budget": 0.98},
    points={"default": ["context=8192,65536 masses=octaves,even"]},
    chip=lambda point: Chip("2x1"),
    measure=_tile_selection,
)
