# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps over token trees under attention-level speculation, on a mesh of two rows in a worker (see sim_worker.py)."""

from __future__ import annotations

from tests.models.tt.decode_attention.speculation_programs import build_pair, load_cache
from tests.models.tt.decode_attention.tree_rounds import NODES, Round
from tests.support.tt_programs import half_split


def tree_rounds(mesh, config, state, prefilled, ends: tuple[int, int], capacity: int, rounds: list[Round]) -> dict:
    """Run `rounds` after the users' prompts, the threshold of each where this dispatch has no traces. By round: the
    logits of both rows, float32 [users, nodes, vocab]; both rows' priorities by layer; accepted paths and tokens as
    each row's chip tells them. Then what was counted, how often a trace was replayed, and both rows' caches, keys in
    Hugging Face's order.

    prefilled: keys and values as of `load_cache`. ends: of the guess.
    """
    import ttnn
    from loguru import logger

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    users = len(rounds[0].lengths)
    model, pair = build_pair(mesh, config, state, users=users, capacity=capacity, chunk_size=ends[0], ends=ends)
    load_cache(model, *prefilled)
    step = TreeStep(model, NODES, SamplingParams(0.0))
    traced = TracedStep(mesh, step, why_no_trace(mesh) is not None)
    told: dict = {"rounds": []}
    for number, planned in enumerate(rounds):
        pair.threshold = planned.threshold
        step.load(planned.drafts, planned.lengths, ())
        verified = traced()
        pair.check()
        parts = ttnn.get_device_tensors(step.logits)
        chips = range(0, model.mesh_shape.chips, model.mesh_shape.tp)
        found = [[(outcome.path, outcome.tokens) for outcome in verified.read(chip)] for chip in chips]
        decided = pair.last_priorities()
        logger.info("round {}: priorities {}, verified {}", number, decided, found[0])
        told["rounds"].append(
            {
                "logits": [ttnn.to_torch(parts[chip])[0, 0].float().view(users, NODES, -1) for chip in chips],
                "priorities": [[row[layer] for row in decided] for layer in range(len(decided[0]))],
                "verified": found,
            }
        )
    counted = pair.statistics()
    told["counts"] = [(layer.hits, layer.misses, layer.bypassed) for layer in counted.layers]
    told["failures"], told["replays"] = counted.failures, traced.replays
    traced.release()
    told["cache"] = [
        [
            (half_split(_on_chip(model.cache.keys[layer], chip)), _on_chip(model.cache.values[layer], chip))
            for layer in range(config.num_hidden_layers)
        ]
        for chip in chips
    ]
    return told


def _on_chip(tensor, chip: int):
    import ttnn

    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[chip]).float()
