# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps over token trees under attention-level speculation, on a mesh of two rows in a worker (see sim_worker.py)."""

from __future__ import annotations

from tests.models.tt.speculation_programs import build_pair, end_second_chip_in, load_cache
from tests.models.tt.tree_rounds import NODES, Round
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
        step.load(planned.drafts, planned.lengths)
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
            (half_split(_of_row(model, model.cache.keys[layer], chip)), _of_row(model, model.cache.values[layer], chip))
            for layer in range(config.num_hidden_layers)
        ]
        for chip in chips
    ]
    return told


def tree_texts(
    mesh, config, state, prompt: list[int], new_tokens: int, ends: tuple[int, int], capacity: int, runs: list
) -> dict:
    """Greedy texts of one user, a run for each (drafter, threshold) of `runs`: chains of two tokens by "model", the
    same model under exact attention, whose rounds stay on the chips, or by "self", over its windows. By run the tokens
    of the chips and of the reference's loop under the same rule, and the hits and misses of both; then the plain text,
    and `guarded_results`.
    """
    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.reference import generate as by_reference
    from models.llama31_8b.reference.alspec.policies import ALSpecAttention
    from models.llama31_8b.reference.model.model import ReferenceLlama
    from models.llama31_8b.reference.model.step import GuessRange
    from models.llama31_8b.spec_decode.draft_shape import DraftShape
    from models.llama31_8b.tt.generator import Generator
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import ModelSettings
    from models.llama31_8b.tt.spec_decode.drafters import ModelDrafter, self_drafter

    model, pair = build_pair(mesh, config, state, capacity=capacity, chunk_size=ends[0], ends=ends)
    reference = ReferenceLlama.from_state_dict(config, state)
    request = {"max_new_tokens": new_tokens, "sampling": SamplingParams(0.0), "eos_token_ids": ()}
    told: dict = {"runs": []}
    for name, threshold in runs:
        pair.threshold, shape = threshold, DraftShape(2)
        if name == "self":
            drafters = self_drafter(model, ends[0]), by_reference.self_drafter(reference, ends[0])
        else:
            draft = TtLlama.from_state_dict(config, state, mesh, ModelSettings(1, capacity, "bfloat16"))
            drafters = ModelDrafter(draft, prefill_chunk=32), by_reference.model_drafter(reference)
        found = Generator(model, shape, drafters[0], prefill_chunk=32).generate([prompt], **request)
        policy = ALSpecAttention(threshold, GuessRange(*ends))
        drafted = {"drafter": drafters[1], "shape": shape, "policy": policy}
        wanted = by_reference.generate(reference, [prompt], **drafted, **request)
        hits = [int(step.accepted[:, 0, 0].sum()) for step in policy.statistics.steps]
        counted = found.statistics
        told["runs"].append(
            {
                "texts": (found.token_ids[0], wanted.token_ids[0]),
                "decisions": ((counted.hits, counted.misses + counted.bypassed), (sum(hits), len(hits) - sum(hits))),
                "accepted": [result.speculation.num_accepted_tokens for result in (found, wanted)],
                "failures": counted.failures,
            }
        )
    told["guarded"] = guarded_results(model)
    told["plain"] = by_reference.generate(reference, [prompt], **request).token_ids[0]
    return told


def guarded_results(model) -> list:
    """What the guard leaves of a verification that accepted a token of two users, while all is well and when the second
    chip's attention has given up on its peer, as of `as_told`."""
    import torch

    from tt_kernels.speculative_sampling.op import Verified

    told = []
    for status in (0, 8):
        end_second_chip_in(model, status)
        rows = torch.tensor([[0, 1, 7, 2, 1, -1, 5, 7], [0, 0, 9, 1, -1, -1, 9, -1]])
        verified = Verified(model.put_integers(rows, "int32"), nodes=2)
        model.guard_result(verified.result)
        told.append(as_told(model, verified))
    model.reset()
    return told


def step_with_a_cut_cable(mesh, config, state, ends: tuple[int, int], capacity: int, timeout_s: float) -> list:
    """Two steps over a chain of three nodes behind a cache of zeros, the second after the cable was cut, as of
    `as_told`."""
    import os

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.spec_decode.tree import TokenTree
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from runtime_patches.simulated_n150.links import Links

    model, _ = build_pair(mesh, config, state, capacity=capacity, chunk_size=ends[0], ends=ends, timeout_s=timeout_s)
    step, told = TreeStep(model, 3, SamplingParams(0.0)), []
    for cut in (False, True):
        step.load({0: (TokenTree.chain(3), [1, 2, 3])}, [capacity - 3])
        if cut:
            Links(os.getpid()).cut()
        told.append(as_told(model, step()))
    return told


def as_told(model, verified) -> tuple:
    """What both chips say of a verification, (status, tokens) of each user; and what the generator makes of it, tokens
    or an error."""
    from models.llama31_8b.tt.generator import agreed_outcomes
    from tt_kernels.common.peer import PeerError

    seen = [[(outcome.status, outcome.tokens) for outcome in verified.read(chip)] for chip in (0, 1)]
    try:
        return seen, [found.tokens for found in agreed_outcomes(model, verified)]
    except PeerError as error:
        return seen, str(error)


def _of_row(model, tensor, first: int):
    """All heads of a cache on a row of the mesh, whose first chip is `first`."""
    import torch
    import ttnn

    parts = ttnn.get_device_tensors(tensor)[first : first + model.mesh_shape.tp]
    return torch.cat([ttnn.to_torch(part).float() for part in parts], 1)
