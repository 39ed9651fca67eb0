# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A tensor-parallel model on virtual chips against the reference, in a worker (see sim_worker.py)."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tt_programs import TINY, figures, half_split
from tests.support.virtual_chips import Chip, on_chips

# Two query heads and a key/value head a chip; 96 tokens leave the second chip 32 columns and a tile of padding.
CONFIG = replace(
    TINY, num_hidden_layers=1, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2
)


def prefill_decode_choose(mesh, prompt: list[int], steps: int, params, number: float) -> dict:
    """Prefill one user, then feed the reference's greedy tokens: figures of the logits on every chip, of the joined
    caches, and at the last step the token that every chip chooses by `params` and a uniform number, and the host."""
    import torch

    from models.llama31_8b.reference.model.model import ReferenceLlama
    from models.llama31_8b.reference.model.random_weights import random_state_dict
    from models.llama31_8b.sampling import inverse_cdf, warp_logits
    from models.llama31_8b.tt.linear import gather
    from models.llama31_8b.tt.model import TtLlama, read
    from models.llama31_8b.tt.precision import precision_plan
    from models.llama31_8b.tt.sampling import Chooser
    from models.llama31_8b.tt.weight_map import WeightMap
    from models.llama31_8b.tt.weight_store import WeightStore

    state, chips = random_state_dict(CONFIG, 0), 2
    reference = ReferenceLlama.from_state_dict(CONFIG, state)
    cache = reference.new_cache(1, 64)
    expected = [reference.prefill([prompt], cache)[0]]
    fed = []
    for _ in range(steps):
        fed.append(int(expected[-1].argmax()))
        expected.append(reference.forward(torch.tensor([[fed[-1]]]), cache)[0, 0])
    length = len(prompt) + steps

    def body(chip: int) -> dict:
        plan = Chip(1, chips, chip)
        formats = precision_plan("bfloat16", CONFIG.num_hidden_layers)
        weights, store = WeightMap(CONFIG, state, plan), WeightStore(mesh, plan)
        model = TtLlama(mesh, plan, CONFIG, formats, weights, store, capacity=64)
        chooser, logits = Chooser(mesh, plan, CONFIG, params), []

        def look(part, row: int) -> None:
            logits.append(read(gather(part, plan))[0, 0, row, : CONFIG.vocab_size].float())

        look(model.prefill(prompt, 0, 0, last=True, whole=False), (len(prompt) - 1) % 32)
        for step, token in enumerate(fed):
            part = model.decode(model.step_inputs([token], [len(prompt) + step]), whole=False)
            look(part, 0)
        token = int(read(chooser(part, chooser.uniforms([number])))[0, 0])
        parts = [
            read(tensors[0])[0, :, :length].float() for tensors in (model.cache.keys, model.cache.values)
        ]
        return {"logits": logits, "token": token, "cache": parts}

    told, collectives = on_chips(chips, body)
    masses = warp_logits(told[0]["logits"][-1][None], params)
    keys, values = (torch.cat([chip["cache"][i] for chip in told]) for i in range(2))
    return {
        "steps": [
            [figures(got, want) for got, want in zip(chip["logits"], expected, strict=True)] for chip in told
        ],
        "same": all(torch.equal(a, b) for a, b in zip(told[0]["logits"], told[1]["logits"], strict=True)),
        "tokens": [chip["token"] for chip in told] + [int(inverse_cdf(masses, torch.tensor([number])))],
        "cache": [
            figures(half_split(keys), cache.keys[0][0, :, :length]),
            figures(values, cache.values[0][0, :, :length]),
        ],
        "collectives": collectives,
    }
