# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draws from whole vocabularies on the device of a worker (see sim_worker.py), from given logits."""

from __future__ import annotations

from dataclasses import replace

from runtime_patches.simulated_n150.testing.tensors import on_chips
from tests.models.tt.parallel_programs import of_chips
from tests.support.tt_programs import TINY


def draw_on_a_row(mesh, logits, params, numbers) -> list:
    """The vocabulary split over a TP group: the tokens drawn by `numbers`, float64 [rows], by each chip, [rows]."""
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.sampling.top_k import LOWEST, FullVocabSampler

    shape = MeshShape(*mesh.shape)
    # Followed by the head's padding as Sampler masks it.
    columns = shape.padded_vocab(replace(TINY, vocab_size=logits.shape[1]))
    padded = F.pad(logits, (0, columns - logits.shape[1]), value=LOWEST)
    given = on_chips(mesh, padded[None, None], ttnn.bfloat16, ttnn.TILE_LAYOUT, shape.mapper(mesh, -1))
    sampler = FullVocabSampler(mesh, shape, params)
    return [chip[0].long() for chip in of_chips(sampler(given, sampler.uniforms(numbers.tolist())))]
