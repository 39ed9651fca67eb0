# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draws from whole vocabularies on the device of a worker (see sim_worker.py), from given logits."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tt_programs import TINY
from tests.tt.parallel_programs import of_chips


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


def draw_on_a_row(mesh, logits, params, numbers) -> dict:
    """The vocabulary split over the chips of a row: tokens drawn by `numbers`, float64 [draws, rows], by each chip,
    [draws, rows]; and for each token how many zeros stand before it, [rows, vocab]."""
    import torch
    import ttnn

    from models.llama31_8b.tt.mesh import MeshPlan
    from models.llama31_8b.tt.whole_vocabulary import ORIGIN, WholeVocabulary

    rows, vocab = logits.shape
    plan, config = MeshPlan(*mesh.shape), replace(TINY, vocab_size=vocab)
    whole = WholeVocabulary(mesh, plan, config, params)
    masses, blocks = whole.masses(_put_logits(mesh, logits, plan.padded_vocab(config), plan.mapper(mesh, -1)))
    drawn = []
    for row in numbers:
        uniforms = torch.zeros(32, 1, dtype=torch.float64)
        uniforms[:rows, 0] = row
        keys = of_chips(whole.draw(masses, whole._put(uniforms.float())))
        drawn.append([ORIGIN - chip[0, 0, :rows, 0].long() for chip in keys])
    ranks = [_flat(chip)[:rows, : whole.columns] for chip in of_chips(whole._rank(ttnn.eqz(blocks)))]
    return {
        "drawn": [torch.stack(chip) for chip in zip(*drawn, strict=True)],
        "ranks": torch.cat(ranks, 1)[:, :vocab],
    }


def _put_logits(mesh, logits, columns: int, mapper=None):
    """Rows of logits as tiles, followed by the head's padding as Chooser masks it; mapper: over the chips."""
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.tt.sampling import LOWEST

    padded = F.pad(logits, (0, columns - logits.shape[1]), value=LOWEST)
    return ttnn.from_torch(
        padded[None, None],
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=mapper,
    )


def _flat(blocks):
    """[blocks, tiles, 32, 32] -> [32, columns]."""
    return blocks.permute(2, 0, 1, 3).reshape(32, -1)
