# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation inside the model, on a mesh of two rows in a worker."""

from typing import NamedTuple

import torch
from loguru import logger

from tests.support.alspec_reference import Fault
from tests.support.tt_programs import half_split, of_chips

# Cycles of the 1 GHz clock that a row waits for the other: the host launches chip after chip.
TIMEOUT_S = 0.02


class Part(NamedTuple):
    """Some decode steps. tokens, positions: of each step and user; position -1 skips a user. anew: counts and attention
    weights are forgotten before, as for a new prompt or a conversation turn. fault: before it."""

    threshold: float
    tokens: list[list[int]]
    positions: list[list[int]]
    anew: bool = False
    fault: Fault | None = None


def build_pair(
    mesh,
    config,
    state,
    *,
    users=1,
    capacity=128,
    chunk_size=32,
    threshold=0.1,
    decode_sharding="interleaved",
    ends=None,
    budget=None,
    timeout_s=TIMEOUT_S,
    program=None,
):
    """(TtLlama that speculates, its PairAlspec). Its guess reads the ends by default; by a budget; or `ends`, (first,
    last) tokens in whole tiles, the tail with those that are not cached yet."""
    from models.llama31_8b.tt.alspec import PairAlspec
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings
    from tt_kernels.speculative_flash_decode.op import GuessRange

    guess = {"predictor": "ends"} if ends is None else {"guess_range": GuessRange(*ends)}
    if budget is not None:
        guess = {"predictor": "budget", "budget": budget}
    chosen = AttentionSettings("alspec", chunk_size, threshold, timeout_s=timeout_s, program=program, **guess)
    pair = PairAlspec(mesh, MeshShape(*mesh.shape), config, chosen, users, capacity)
    settings = ModelSettings(users, capacity, "bfloat16", pair, decode_sharding)
    return TtLlama.from_state_dict(config, state, mesh, settings), pair


def load_cache(model, keys, values) -> None:
    """Fill user 0's cache on every chip, or several users', with what prompts leave there, the heads split over the
    columns of the mesh.

    keys, values: by layer float32 [kv heads, tokens, head_dim], or [users, ...]; keys in Hugging Face's order.
    """
    import ttnn

    for layer in range(model.config.num_hidden_layers):
        pairs = torch.stack(keys[layer].chunk(2, -1), -1).flatten(-2)  # RoPE pairs side by side
        for tensor, content in ((model.cache.keys[layer], pairs), (model.cache.values[layer], values[layer])):
            users, _, capacity, head_dim = tensor.shape
            whole = torch.zeros(users, content.shape[-3], capacity, head_dim)
            whole[: 1 if content.ndim == 3 else users, :, : content.shape[-2]] = content
            host = ttnn.from_torch(
                whole, dtype=tensor.dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=model.mesh_shape.mapper(model.mesh, 1)
            )
            ttnn.copy_host_to_device_tensor(host, tensor)


def caches_of(model) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """By layer and chip keys, in Hugging Face's order, and values, float32 [users, the chip's kv heads, capacity,
    head_dim]."""
    return [
        [(half_split(k.float()), v.float()) for k, v in zip(of_chips(keys), of_chips(values), strict=True)]
        for keys, values in zip(model.cache.keys, model.cache.values, strict=True)
    ]


def words_of(tensors) -> list[list[torch.Tensor]]:
    """By layer and chip the words of chosen tiles or masses, int64 [users, the chip's kv heads, words]."""
    return [[chip.long() & 0xFFFFFFFF for chip in of_chips(layer)] for layer in tensors]


def put_masses(pair, fault: Fault, after: list) -> None:
    """Make the masses of two chips what they become by `fault`. after: by step, what `words_of` gave of them."""
    import ttnn

    for layer, (tensor, chips) in enumerate(zip(pair.by_budget.masses, words_of(pair.by_budget.masses), strict=True)):
        for (rank, user), words in fault.items():
            chips[rank][user] = after[words][layer][rank][user] if isinstance(words, int) else torch.tensor(words)
        bits = torch.cat(chips).to(torch.int32)
        mapper = ttnn.ShardTensorToMesh(pair.mesh, dim=0)
        host = ttnn.from_torch(bits, dtype=tensor.dtype, layout=tensor.layout, mesh_mapper=mapper)
        ttnn.copy_host_to_device_tensor(host, tensor)


def decode_parts(
    mesh, config, state, prefilled, guess: dict, capacity: int, parts: list[Part], workers: int | None = None
) -> dict:
    """Run parts behind prompts; a simulated prefill takes as long as six steps. Returns

    - "steps": of each the logits of all chips, float32 [users, vocab], the priorities of both ranks after each layer,
      and of a guess by a budget "chosen" and "masses" as of `words_of`;
    - "outcomes": what is counted since the last part that began anew, of each part;
    - "caches", as of `caches_of`, after each part;
    - "forgotten": the masses after a reset at the end;
    - "alone": with `workers` per head (else by shapes) also the logits of the last step by every chip alone, with exact
      attention over the same tiles;
    - "guarded", as of `guarded`.

    prefilled: keys and values as of `load_cache`. guess: chunk_size, and budget or ends, as of `build_pair`.
    """
    from tt_kernels.speculative_flash_decode.op import ProgramConfig

    users = len(parts[0].positions[0])
    # By shapes a chip alone has more cores, and other sums.
    program = None if workers is None else ProgramConfig(workers_per_head=workers, key_chunk=guess["chunk_size"])
    model, pair = build_pair(mesh, config, state, users=users, capacity=capacity, program=program, **guess)
    load_cache(model, *prefilled)

    told: dict = {"steps": [], "outcomes": [], "caches": []}
    for part in parts:
        pair.threshold = part.threshold
        if part.anew:
            pair.reset()
        if part.fault is not None:
            put_masses(pair, part.fault, [step["masses"] for step in told["steps"]])
        for tokens, positions in zip(part.tokens, part.positions, strict=True):
            out = model.decode(model.step_inputs(tokens, positions))
            model.check()
            logits = [chip[0, 0, :users].float() for chip in of_chips(out)]
            found = {"logits": logits, "priorities": pair.last_priorities()}
            logger.info("step {}: {}", len(told["steps"]), found["priorities"])
            if pair.by_budget is not None:
                found |= {name: words_of(getattr(pair.by_budget, name)) for name in ("chosen", "masses")}
            told["steps"].append(found)
        told["outcomes"].append(pair.statistics())
        told["caches"].append(caches_of(model))
    if program is not None:
        tiles = None if pair.by_budget is None else pair.by_budget.chosen
        exact = attention_alone()(guess["chunk_size"], False, pair.guess_range, tiles, program)
        last = model.step_inputs(parts[-1].tokens[-1], parts[-1].positions[-1])
        alone = model.with_attention(exact).decode(last)
        told["alone"] = [chip[0, 0, :users].float() for chip in of_chips(alone)]
    pair.reset()
    if pair.by_budget is not None:
        told["forgotten"] = words_of(pair.by_budget.masses)
    return told | ({"guarded": guarded(model, pair.attention_pairs, 8)} if model.mesh_shape.chips == 2 else {})


def attention_alone() -> type:
    """An AttentionPolicy, which needs ttnn."""
    from models.llama31_8b.tt.attention_policies import AttentionPolicy
    from tt_kernels.speculative_flash_decode.op import speculative_flash_decode

    class Alone(AttentionPolicy):
        """Either result of the op without a peer: every chip takes it. chosen: by layer, of a guess that follows the
        attention."""

        def __init__(self, chunk_size: int, guess: bool, guess_range=None, chosen=None, program=None) -> None:
            self.guess, self.chosen = guess, chosen
            self.options = {"chunk_size": chunk_size, "threshold": 0.0, "guess_range": guess_range}
            self.options["program_config"] = program

        def attend(self, layer, q, cache, inputs):
            given = cache.keys, cache.values, inputs.positions
            chosen = None if self.chosen is None else self.chosen[layer]
            decoded = speculative_flash_decode(q, *given, chosen=chosen, **self.options)
            return decoded.guess if self.guess else decoded.exact

    return Alone


def guarded(model, state, status: int) -> list:
    """Tokens behind the guard, while all is well and when the second chip has given up with this status of `state`: all
    chips' tokens, and what the generator makes of them."""
    from models.llama31_8b.tt.generator import agreed_tokens
    from tt_kernels.common.peer import PeerError

    told = []
    for found in (0, status):
        end_second_chip_in(model, state, found)
        tokens = model.put_integers(torch.tensor([[7]]), "uint32")
        model.guard_tokens(tokens)
        seen = [int(chip) & 0xFFFFFFFF for chip in of_chips(tokens)]
        try:
            outcome = agreed_tokens(model, tokens).tolist()
        except PeerError as error:
            outcome = str(error)
        told.append((seen, outcome))
    model.reset()
    return told


def end_second_chip_in(model, state, status: int) -> None:
    """Make the second chip have given up with this status of `state`, 0 for not at all."""
    import ttnn

    states = torch.zeros(model.mesh_shape.chips, 1, 1, state.STATE_WORDS, dtype=torch.int32)
    states[1, ..., state.STATUS_WORD] = status
    host = ttnn.from_torch(
        states, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(model.mesh, dim=0)
    )
    ttnn.copy_host_to_device_tensor(host, state.state)
