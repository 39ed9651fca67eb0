# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation inside the model, on a mesh of two rows in a worker (see sim_worker.py)."""

from __future__ import annotations

import time
from typing import NamedTuple

from models.llama31_8b.config import LlamaConfig
from tests.support.tt_programs import half_split

# Cycles of the 1 GHz clock that a row waits for the other: the host launches chip after chip.
TIMEOUT_S = 0.02


# Of rows of two chips, each of which has half of the heads.
ROWS = LlamaConfig(
    vocab_size=64,
    hidden_size=128,
    intermediate_size=128,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=256,
    name="rows",
)


class Run(NamedTuple):
    """One run of decode steps from position `start`: tokens that are fed in, one a step, so that a near tie ends no
    comparison."""

    threshold: float
    start: int
    tokens: list[int]


def build_pair(
    mesh,
    config,
    state,
    *,
    users=1,
    capacity=128,
    chunk_size=32,
    threshold=0.1,
    precision="bfloat16",
    decode_sharding="interleaved",
    attention=None,
    ends=None,
    budget=None,
    timeout_s=TIMEOUT_S,
):
    """(TtLlama that speculates, its PairAlspec, or a subclass `attention`). Its guess reads the ends by default; by a
    budget; or `ends`, (first, last) tokens in whole tiles, the tail with those that are not cached yet."""
    from models.llama31_8b.tt.alspec import PairAlspec
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings
    from tt_kernels.speculative_flash_decode.op import GuessRange

    guess = {"predictor": "ends"} if ends is None else {"guess_range": GuessRange(*ends)}
    if budget is not None:
        guess = {"predictor": "budget", "budget": budget}
    chosen = AttentionSettings("alspec", chunk_size, threshold, timeout_s=timeout_s, **guess)
    pair = (attention or PairAlspec)(mesh, MeshShape(*mesh.shape), config, chosen, users, capacity)
    settings = ModelSettings(users, capacity, precision, pair, decode_sharding)
    return TtLlama.from_state_dict(config, state, mesh, settings), pair


def load_cache(model, keys, values) -> None:
    """Fill user 0's cache on every chip, or several users', with what prompts leave there, the heads split over the
    columns of the mesh.

    keys, values: by layer float32 [kv heads, tokens, head_dim], or [users, ...]; keys in Hugging Face's order.
    """
    import torch
    import ttnn

    for layer in range(model.config.num_hidden_layers):
        pairs = torch.stack(keys[layer].chunk(2, -1), -1).flatten(-2)  # RoPE pairs side by side
        for tensor, content in ((model.cache.keys[layer], pairs), (model.cache.values[layer], values[layer])):
            users, _, capacity, head_dim = tensor.shape
            whole = torch.zeros(users, content.shape[-3], capacity, head_dim)
            whole[: 1 if content.ndim == 3 else users, :, : content.shape[-2]] = content
            host = ttnn.from_torch(
                whole,
                dtype=tensor.dtype,
                layout=ttnn.TILE_LAYOUT,
                mesh_mapper=model.mesh_shape.mapper(model.mesh, 1),
            )
            ttnn.copy_host_to_device_tensor(host, tensor)


def speculate(mesh, config, state, prefilled, chunk_size: int, capacity: int, runs: list[Run]) -> dict:
    """Decode steps behind a prompt, each of `runs`: by run the logits of both rows at each step, the priorities of both
    rows after each layer, and the outcomes; both rows' caches after the first run, keys in Hugging Face's order. Then
    what the guard of tokens does.

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
            model.check()
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
        told["runs"].append({"logits": logits, "decisions": decisions, "outcomes": attend.statistics()})
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
    return told | {"guarded": guarded(model, model.pair.attention_pairs, 8)}


def guarded(model, state, status: int) -> list:
    """Tokens behind the guard, while all is well and when the second chip has given up with this status of `state`: all
    chips' tokens, and what the generator makes of them."""
    import torch
    import ttnn

    from models.llama31_8b.tt.generator import agreed_tokens
    from tt_kernels.common.peer import PeerError

    told = []
    for found in (0, status):
        end_second_chip_in(model, state, found)
        tokens = model.put_integers(torch.tensor([[7]]), "uint32")
        model.guard_tokens(tokens)
        seen = [int(ttnn.to_torch(part)) & 0xFFFFFFFF for part in ttnn.get_device_tensors(tokens)]
        try:
            outcome = agreed_tokens(model, tokens).tolist()
        except PeerError as error:
            outcome = str(error)
        told.append((seen, outcome))
    model.reset()
    return told


def end_second_chip_in(model, state, status: int) -> None:
    """Make the second chip have given up with this status of `state`, 0 for not at all."""
    import torch
    import ttnn

    states = torch.zeros(model.mesh_shape.chips, 1, 1, state.STATE_WORDS, dtype=torch.int32)
    states[1, ..., state.STATUS_WORD] = status
    host = ttnn.from_torch(
        states,
        dtype=ttnn.uint32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        mesh_mapper=ttnn.ShardTensorToMesh(model.mesh, dim=0),
    )
    ttnn.copy_host_to_device_tensor(host, state.state)


def _row(tensor, row: int, cached: int):
    """User 0's positions of a cache on the first chip of that row: float32 [kv heads, cached, head_dim]."""
    import ttnn

    parts = ttnn.get_device_tensors(tensor)
    return ttnn.to_torch(parts[row * len(parts) // 2])[0, :, :cached].float()
