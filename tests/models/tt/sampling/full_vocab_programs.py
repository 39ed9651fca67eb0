# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draws from whole vocabularies on the device of a worker (see sim_worker.py), from given logits."""

from __future__ import annotations

from dataclasses import replace

from tests.models.tt.parallel_programs import of_chips
from tests.support.mesh_tensors import on_chips
from tests.support.tt_programs import TINY


def keep(mesh, logits, params, shape: tuple[int, int], numbers, keys: tuple[float, int] | None = None):
    """Bfloat16 logits [rows, vocab] with LEAST_LOGIT for what is left out, and the tokens drawn by `numbers`, float64
    [rows]. shape: blocks and tiles a block. keys: the thresholds to search instead of all, as the one below them and
    the logarithm of their number."""
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.parallel.mesh import MeshShape
    from models.llama31_8b.tt.sampling import full_vocab as whole_vocabulary

    rows, vocab = logits.shape
    all_keys = whole_vocabulary.LEAST_KEY, whole_vocabulary.HALVINGS
    whole_vocabulary.LEAST_KEY, whole_vocabulary.HALVINGS = keys or all_keys
    try:
        config = replace(TINY, vocab_size=vocab)
        sampler = whole_vocabulary.FullVocabSampler(mesh, MeshShape(), config, params, shape=shape)
        left = sampler.left(_put_logits(mesh, logits, sampler.columns))
        drawn = sampler.draw(left, sampler.uniforms(numbers.tolist()))
        return read(left)[0, 0, :rows, :vocab], read(drawn)[0].long()
    finally:
        whole_vocabulary.LEAST_KEY, whole_vocabulary.HALVINGS = all_keys


def keys_of(mesh, numbers):
    """`ordered_keys` of bfloat16 numbers [32, 32]: float32."""
    import ttnn

    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.sampling.full_vocab import ordered_keys

    given = ttnn.from_torch(numbers.float()[None, None], dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)
    return read(ordered_keys(given))[0, 0]


def draw_on_a_row(mesh, logits, params, numbers) -> dict:
    """The vocabulary split over the chips of a row: tokens drawn by `numbers`, float64 [rows], by each chip, [rows];
    and for each token how many zeros stand before it, [rows, vocab]."""
    import torch
    import ttnn

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.parallel.mesh import MeshShape
    from models.llama31_8b.tt.sampling.full_vocab import FullVocabSampler

    rows, vocab = logits.shape
    plan, config = MeshShape(*mesh.shape), replace(TINY, vocab_size=vocab)
    given = _put_logits(mesh, logits, plan.padded_vocab(config), plan.mapper(mesh, -1))
    whole = FullVocabSampler(mesh, plan, config, params)
    drawn = [chip[0].long() for chip in of_chips(whole(given, whole.uniforms(numbers.tolist())))]
    limited = FullVocabSampler(mesh, plan, config, SamplingParams(1.0, top_k=40))
    _, blocks = limited.masses(given)
    ranks = [_flat(chip)[:rows, : limited.columns] for chip in of_chips(limited._rank(ttnn.eqz(blocks)))]
    return {"drawn": drawn, "ranks": torch.cat(ranks, 1)[:, :vocab]}


def _put_logits(mesh, logits, columns: int, mapper=None):
    """Rows of logits as tiles, followed by the head's padding as Sampler masks it; mapper: over the chips."""
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.tt.sampling.top_k import LOWEST

    padded = F.pad(logits, (0, columns - logits.shape[1]), value=LOWEST)
    mapper = mapper or ttnn.ReplicateTensorToMesh(mesh)
    return on_chips(mesh, padded[None, None], ttnn.bfloat16, ttnn.TILE_LAYOUT, mapper)


def _flat(blocks):
    """[blocks, tiles, 32, 32] -> [32, columns]."""
    return blocks.permute(2, 0, 1, 3).reshape(32, -1)
