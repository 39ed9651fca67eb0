# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation inside the model, on a mesh of two rows in a worker (see sim_worker.py)."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.support.tt_programs import half_split

# Cycles of the 1 GHz clock that a row waits for the other: the host launches chip after chip.
TIMEOUT_S = 0.02
SHORT_PROMPT = 15  # tokens of the prompt that the generator gets


class Run(NamedTuple):
    """One run of decode steps from position `start`: tokens that are fed in, one a step, so that a near tie ends no
    comparison."""

    threshold: float
    start: int
    tokens: list[int]


def build_pair(
    mesh, config, state, *, users=1, capacity=128, chunk_size=32, threshold=0.1, precision="bfloat16"
):
    """(TtLlama that speculates, its AttentionSpeculation)."""
    from models.llama31_8b.tt.mesh import MeshPlan
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.precision import precision_plan
    from models.llama31_8b.tt.speculation import AttentionSpeculation
    from models.llama31_8b.tt.weight_map import WeightMap
    from models.llama31_8b.tt.weight_store import WeightStore

    plan = MeshPlan(*mesh.shape)
    attend = AttentionSpeculation(
        mesh, plan, config, users=users, capacity=capacity, chunk_size=chunk_size, threshold=threshold,
        timeout_s=TIMEOUT_S,
    )  # fmt: skip
    formats = precision_plan(precision, config.num_hidden_layers)
    weights, store = WeightMap(config, state, plan), WeightStore(mesh, plan)
    model = TtLlama(
        mesh, plan, config, formats, weights, store, users=users, capacity=capacity, attend=attend
    )
    return model, attend


def load_cache(model, keys, values) -> None:
    """Fill user 0's cache on every chip of a mesh without tensor parallelism with what a prompt leaves there.

    keys, values: by layer float32 [kv heads, tokens, head_dim], keys in Hugging Face's order.
    """
    import torch
    import ttnn

    for layer in range(model.config.num_hidden_layers):
        pairs = torch.stack(keys[layer].chunk(2, -1), -1).flatten(-2)  # RoPE pairs side by side
        for tensor, content in ((model.cache.keys[layer], pairs), (model.cache.values[layer], values[layer])):
            whole = torch.zeros(tuple(tensor.shape))
            whole[0, :, : content.shape[1]] = content
            host = ttnn.from_torch(
                whole, dtype=tensor.dtype, layout=ttnn.TILE_LAYOUT,
                mesh_mapper=ttnn.ReplicateTensorToMesh(model.mesh),
            )  # fmt: skip
            ttnn.copy_host_to_device_tensor(host, tensor)


def speculate(
    mesh, config, state, prompt: list[int], prefilled, chunk_size: int, capacity: int, runs: list[Run]
) -> dict:
    """Decode steps behind a prompt, each of `runs`: by run the logits of both rows at each step, the priorities of both
    rows after each layer, and the outcomes; both rows' caches after the first run, keys in Hugging Face's order; a
    short text of the generator, prefill included; and what the guard of tokens does.

    prefilled: keys and values of the whole prompt, as of `load_cache`: a simulated prefill takes as long as six steps.
    """
    import ttnn
    from loguru import logger

    model, attend = build_pair(mesh, config, state, capacity=capacity, chunk_size=chunk_size)
    told = {"runs": []}
    load_cache(model, *prefilled)
    for number, run in enumerate(runs):
        attend.reset()
        attend.threshold = run.threshold
        logits, decisions = [], []
        for step, token in enumerate(run.tokens):
            started = time.monotonic()
            out = model.decode(model.step_inputs([token], [run.start + step]))
            attend.check()
            rows = [ttnn.to_torch(part)[0, 0, 0].float() for part in ttnn.get_device_tensors(out)]
            logits.append(rows)
            decisions.append([[layer[0] for layer in row] for row in attend.last_priorities()])
            logger.info(
                "run {} step {}: {:.0f} s, {}, best {}",
                number,
                step,
                time.monotonic() - started,
                decisions[-1],
                [int(row.argmax()) for row in rows],
            )
        told["runs"].append({"logits": logits, "decisions": decisions, "outcomes": attend.outcomes()})
        if number == 0:
            cached = run.start + len(run.tokens)
            told["cache"] = [
                [
                    (half_split(keys), values)
                    for keys, values in (
                        (
                            _row(model.cache.keys[layer], row, cached),
                            _row(model.cache.values[layer], row, cached),
                        )
                        for layer in range(config.num_hidden_layers)
                    )
                ]
                for row in range(2)
            ]
    told["generated"] = generated(model, prompt[:SHORT_PROMPT], 3)
    told["guarded"] = guarded(model)
    return told


def generated(model, prompt: list[int], new_tokens: int) -> dict:
    """A greedy text chosen on the chips: its tokens, and the hits, misses and bypassed positions of its result."""
    from models.llama31_8b.tt.generator import Generator

    generator = Generator(model, prefill_chunk=32)
    result = generator.generate([prompt], max_new_tokens=new_tokens, eos_token_ids=())
    found, cached = result.statistics, len(prompt) + new_tokens - 1
    rows = [
        [_row(tensor, row, cached) for tensor in (*model.cache.keys, *model.cache.values)] for row in range(2)
    ]
    return {
        "tokens": result.token_ids[0],
        "counts": (found.hits, found.misses, found.bypassed_positions),
        "caches": rows,
    }


def guarded(model) -> dict:
    """Tokens behind the guard, while all is well and when the second chip's attention has given up on its peer: both
    chips' tokens, and what the generator makes of them."""
    import torch
    import ttnn

    from models.llama31_8b.tt.generator import _result
    from tt_kernels.common.peer import PeerError

    attend, told = model.attend, []
    for status in (0, 8):
        states = torch.zeros(2, 1, 1, attend.pairs.STATE_WORDS, dtype=torch.int32)
        states[1, ..., attend.pairs.STATUS_WORD] = status
        host = ttnn.from_torch(
            states,
            dtype=ttnn.uint32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            mesh_mapper=ttnn.ShardTensorToMesh(model.mesh, dim=0),
        )
        ttnn.copy_host_to_device_tensor(host, attend.pairs.state)
        tokens = model.put_integers(torch.tensor([[7]]), "uint32")
        attend.guard(tokens)
        seen = [int(ttnn.to_torch(part)) & 0xFFFFFFFF for part in ttnn.get_device_tensors(tokens)]
        try:
            outcome = _result(model, tokens, chosen=True).tolist()
        except PeerError as error:
            outcome = str(error)
        told.append((seen, outcome))
    attend.reset()
    return told


def _row(tensor, row: int, cached: int):
    """User 0's positions of a cache on the first chip of that row: float32 [kv heads, cached, head_dim]."""
    import ttnn

    parts = ttnn.get_device_tensors(tensor)
    return ttnn.to_torch(parts[row * len(parts) // 2])[0, :, :cached].float()


def traced(
    mesh, config, state, prompt: list[int], chunk_size: int, capacity: int, threshold: float, new_tokens: int
) -> dict:
    """A greedy text whose steps replay a trace: tokens, hits, misses and bypassed positions, replays, who sent."""
    from models.llama31_8b.tt.generator import Generator

    model, _ = build_pair(mesh, config, state, capacity=capacity, chunk_size=chunk_size, threshold=threshold)
    generator = Generator(model, prefill_chunk=32)
    result = generator.generate([prompt], max_new_tokens=new_tokens, eos_token_ids=())
    found = result.statistics
    return {
        "tokens": result.token_ids[0],
        "counts": (found.hits, found.misses, found.bypassed_positions),
        "replays": generator.replays,
        "sent": found.sent,
        "failures": found.failures,
    }
