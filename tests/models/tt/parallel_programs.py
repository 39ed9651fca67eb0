# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A tensor-parallel model on a mesh against the reference, in a worker (see sim_worker.py)."""

from __future__ import annotations

from dataclasses import replace

from tests.models.tt.speculation_programs import guarded
from tests.support.tt_programs import TINY, build, cache_figures, figures

# Two query heads and a key/value head a chip; 96 tokens leave the second chip 32 columns and a tile of padding.
CONFIG = replace(TINY, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2)
CAPACITY = 64


def prefill_decode_choose(mesh, prompt: list[int], steps: int, params, number: float) -> dict:
    """Prefill one user, then feed the reference's greedy tokens; every row of the mesh does the same.

    By step, the prefill first: figures of the first chip's logits, its best token and the reference's, and whether all
    chips have the same logits. Figures of the caches, whether all rows have the same, and at the last step the tokens
    that every chip chooses: the greedy one, and by `params` and a uniform number; and the host's choice by the same.
    And tokens of a chip that has given up on another.
    """
    import torch

    from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
    from models.llama31_8b.tt.layouts import gather
    from models.llama31_8b.tt.sampling.top_k import Sampler

    model, reference = build(mesh, CONFIG, capacity=CAPACITY)
    cache, told = reference.new_cache(1, CAPACITY), []

    def compare(logits, row: int, wanted) -> None:
        ours = [chip[0, 0, row, : CONFIG.vocab_size].float() for chip in of_chips(logits)]
        top = wanted.topk(2)
        told.append(
            figures(ours[0], wanted)
            | {
                "token": int(ours[0].argmax()),
                "wanted": int(top.indices[0]),
                "gap": float(top.values[0] - top.values[1]),
                "same": [torch.equal(ours[0], other) for other in ours],
            }
        )

    wanted = reference.prefill([prompt], cache)[0]
    compare(model.prefill(prompt, 0, 0, last=True), (len(prompt) - 1) % 32, wanted)
    for step in range(steps):
        token, last = int(wanted.argmax()), step == steps - 1
        wanted = reference.forward(torch.tensor([[token]]), cache)[0, 0]
        part = model.decode(model.step_inputs([token], [len(prompt) + step]), gather_logits=not last)
        logits = gather(part, model.mesh_shape) if last else part
        compare(logits, 0, wanted)
    chosen = []
    for choice in (SamplingParams(0.0), params):
        sampler = Sampler(mesh, model.mesh_shape, CONFIG, choice)
        chosen.append([int(ids[0, 0]) for ids in of_chips(sampler(part, sampler.uniforms([number])))])
    masses = warp_logits(of_chips(logits)[0][0, 0, :1, : CONFIG.vocab_size].float(), params)
    caches = [of_chips(tensor) for tensor in (*model.cache.keys, *model.cache.values)]
    columns = model.mesh_shape.tp
    model.check()
    return {
        "steps": told,
        "cache": cache_figures(model, cache, [len(prompt) + steps]),
        "rows": [
            all(torch.equal(chip, parts[place % columns]) for place, chip in enumerate(parts)) for parts in caches
        ],
        "greedy": chosen[0],
        "drawn": chosen[1],
        "host": int(inverse_cdf(masses, torch.tensor([number]))),
        "guarded": guarded(model, model.layout.all_reduce, 1),
    }


def of_chips(tensor) -> list:
    """What each chip of a mesh holds, row by row, in torch."""
    import ttnn

    return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(tensor)]
