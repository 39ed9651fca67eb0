# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draws from whole vocabularies on the device of a worker (see sim_worker.py), from given logits."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tt_programs import TINY
from tests.support.virtual_chips import Chip, on_chips


def keep(mesh, logits, params, shape: tuple[int, int], keys: tuple[float, int] | None = None):
    """Of bfloat16 logits [rows, vocab] the masses left, float32 [rows, vocab]. shape: blocks and tiles a block. keys:
    the thresholds to search instead of all, as the one below them and the logarithm of their number."""
    from models.llama31_8b.tt import whole_vocabulary
    from models.llama31_8b.tt.mesh import MeshPlan
    from models.llama31_8b.tt.model import read

    rows, vocab = logits.shape
    all_keys = whole_vocabulary.LEAST_KEY, whole_vocabulary.HALVINGS
    whole_vocabulary.LEAST_KEY, whole_vocabulary.HALVINGS = keys or all_keys
    try:
        config = replace(TINY, vocab_size=vocab)
        chooser = whole_vocabulary.WholeVocabulary(mesh, MeshPlan(), config, params, shape=shape)
        masses = chooser.masses(_put_logits(mesh, logits, chooser.columns))
        return _flat(read(chooser.kept_masses(*masses)))[:rows, :vocab]
    finally:
        whole_vocabulary.LEAST_KEY, whole_vocabulary.HALVINGS = all_keys


def keys_of(mesh, numbers):
    """`ordered_keys` of bfloat16 numbers [32, 32]: float32."""
    import ttnn

    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.whole_vocabulary import ordered_keys

    given = ttnn.from_torch(
        numbers.float()[None, None], dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh
    )
    return read(ordered_keys(given))[0, 0]


def draw_on_two_chips(mesh, logits, params, numbers) -> dict:
    """The vocabulary split over two virtual chips: tokens drawn by `numbers`, float64 [draws, rows], by either chip,
    [draws, rows]; and for each token how many zeros stand before it, [rows, vocab]."""
    import torch
    import ttnn

    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.whole_vocabulary import ORIGIN, WholeVocabulary

    rows, vocab = logits.shape

    def body(chip: int) -> tuple:
        whole = WholeVocabulary(mesh, Chip(1, 2, chip), replace(TINY, vocab_size=vocab), params)
        part = logits[:, chip * whole.columns : (chip + 1) * whole.columns]
        masses, blocks = whole.masses(_put_logits(mesh, part, whole.columns))
        drawn = []
        for row in numbers:
            uniforms = torch.zeros(32, 1, dtype=torch.float64)
            uniforms[:rows, 0] = row
            keys = whole.draw(masses, whole._put(uniforms.float()))
            drawn.append(ORIGIN - read(keys)[0, 0, :rows, 0].long())
        rank = whole._rank(ttnn.eqz(blocks))
        return torch.stack(drawn), _flat(read(rank))[:rows, : whole.columns]

    ((first, ranks), (second, more)), _ = on_chips(2, body)
    return {"first": first, "second": second, "ranks": torch.cat((ranks, more), 1)[:, :vocab]}


def _put_logits(mesh, logits, columns: int):
    """Rows of logits as tiles, followed by the head's padding as Chooser masks it."""
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.tt.sampling import LOWEST

    padded = F.pad(logits, (0, columns - logits.shape[1]), value=LOWEST)
    return ttnn.from_torch(padded[None, None], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)


def _flat(blocks):
    """[blocks, tiles, 32, 32] -> [32, columns]."""
    return blocks.permute(2, 0, 1, 3).reshape(32, -1)
