# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode steps with either decode sharding, on the device of a worker (see sim_worker.py): what the test compares.

Sharded steps need a whole chip, where each program costs seconds; interleaved ones run on a small grid.
"""

from __future__ import annotations

from dataclasses import replace

from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.tiny import BANKED
from tests.support.tt_programs import build

# As much on each of two chips, but for the residual, of which a chip has half.
BANKED_ROW = replace(
    BANKED,
    vocab_size=2 * BANKED.vocab_size,
    intermediate_size=2 * BANKED.intermediate_size,
    num_attention_heads=2 * BANKED.num_attention_heads,
    num_key_value_heads=2 * BANKED.num_key_value_heads,
    name="banked-row",
)
CAPACITY = 64
PROMPT_CAPACITY = 128  # of prefilled prompts
CACHED = 40  # positions with random keys and values before the first step


def made(mesh, decode_sharding: str, users: int, precision: str, config: LlamaConfig = BANKED):
    """The model with random keys and values of all users at the first positions; all else is zero."""
    import torch
    import ttnn

    model, _ = build(mesh, config, precision, users=users, capacity=CAPACITY, decode_sharding=decode_sharding)
    generator = torch.Generator().manual_seed(1)
    for tensor in (*model.cache.keys, *model.cache.values):
        values = torch.randn(
            users, model.cache.heads * model.mesh_shape.tp, CAPACITY, BANKED.head_dim, generator=generator
        )
        values[:, :, CACHED:] = 0
        host = ttnn.from_torch(
            values, dtype=tensor.dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=model.mesh_shape.mapper(mesh, 1)
        )
        ttnn.copy_host_to_device_tensor(host, tensor)
    return model


def modules(mesh, decode_sharding: str, users: int = 2, precision: str = "bfloat16") -> dict:
    """float32 results by module from the same inputs, of users at different positions: norm, fused product, attention
    (heads, rotation, cache, output projection), what it wrote into the cache, MLP, LM head."""
    import torch
    import ttnn
    from loguru import logger

    from models.llama31_8b.tt.layer import Pass
    from models.llama31_8b.tt.model import read

    model, found = made(mesh, decode_sharding, users, precision), {}
    layer = model.layers[0]
    x = torch.randn(1, 1, users, BANKED.hidden_size, generator=torch.Generator().manual_seed(7)).bfloat16()
    rows = ttnn.from_torch(x, layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=ttnn.L1_MEMORY_CONFIG)
    positions = [CACHED + 3 * user for user in range(users)]

    def keep(name: str, tensor) -> None:
        found[name] = read(tensor).float()
        logger.info("{}: {}", name, tuple(found[name].shape))

    normed = layer.attention_norm.decode(model.layout.residual(rows))
    keep("norm", normed)
    keep("fused product", layer.attention.qkv.decode(normed))
    inputs = model.step_inputs([0] * users, positions)
    step = Pass(model.layout, model.layout.angles(model.rope, inputs.angles), model.attention, inputs)
    output = layer.attention.attend(layer.attention.project_qkv(normed, step, model.cache), model.cache, step)
    keep("attention", layer.attention.project_output(output, model.layout))
    for name in ("keys", "values"):
        cached = read(getattr(model.cache, name)[0]).float()
        found[f"new {name}"] = torch.stack([cached[user, :, at] for user, at in enumerate(positions)])
        for user, at in enumerate(positions):
            cached[user, :, at] = 0
        found[f"other {name}"] = cached
    rows_of_products(mesh, model, keep)
    keep("mlp", layer.mlp(normed, model.layout))
    keep("head", model.head(normed, model.layout))
    return found


def rows_of_products(mesh, model, keep) -> None:
    """The output projection of rows as trees (20) and prefill (160) have them, interleaved."""
    import torch
    import ttnn

    wo, generator = model.layers[0].attention.wo, torch.Generator().manual_seed(9)
    for name, count in (("rows of a tree", 20), ("rows of a prefill", 160)):
        x = torch.randn(1, 1, count, wo.weight.shape[2], generator=generator).bfloat16()
        rows = ttnn.from_torch(x, layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=ttnn.DRAM_MEMORY_CONFIG)
        keep(name, wo.rows(rows, ttnn.DRAM_MEMORY_CONFIG))


def prompts(mesh, decode_sharding: str, chunks: list[list[int]], tokens: list[int]) -> dict:
    """Prefill a prompt of two layers in `performance` precision once per list of chunk sizes: float32 logits of the
    last token, cached keys and values of both layers, and how often all cores read a weight in the banks."""
    from unittest import mock

    import torch

    from models.llama31_8b.tt import modules
    from models.llama31_8b.tt.model import read

    config = replace(BANKED, num_hidden_layers=2, max_position_embeddings=PROMPT_CAPACITY)
    model, _ = build(
        mesh, config, "performance", users=len(chunks), capacity=PROMPT_CAPACITY, decode_sharding=decode_sharding
    )
    logits = []
    with mock.patch.object(modules, "banked_product", wraps=modules.banked_product) as banked:
        for user, sizes in enumerate(chunks):
            start = 0
            for size in sizes:
                out = model.prefill(tokens[start : start + size], user, start, last=start + size == len(tokens))
                start += size
            logits.append(read(out)[0, 0, (sizes[-1] - 1) % 32, : config.vocab_size].float())
    found = {"logits": torch.stack(logits), "banked": banked.call_count}
    for name in ("keys", "values"):
        found[name] = torch.stack([read(cached).float() for cached in getattr(model.cache, name)])[
            ..., : len(tokens), :
        ]
    return found


def steps_of_row(mesh, decode_sharding: str, tokens: list[int]) -> dict:
    """Decode one user over a TP group: float32 logits of each step, the token that each chip chooses from them, and at
    the end each chip's cached keys and values."""
    import torch
    import ttnn
    from loguru import logger

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.layouts import gather
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.sampling.top_k import Sampler

    def of_chips(tensor) -> list[torch.Tensor]:
        return [ttnn.to_torch(part).float() for part in ttnn.get_device_tensors(tensor)]

    model = made(mesh, decode_sharding, 1, "bfloat16", BANKED_ROW)
    sampler = Sampler(mesh, model.mesh_shape, BANKED_ROW, SamplingParams(0.0))
    logits, chosen = [], []
    for step, token in enumerate(tokens):
        part = model.decode(model.step_inputs([token], [CACHED + step]), gather_logits=False)
        chosen.append([int(chip[0, 0]) for chip in of_chips(sampler(part, None))])
        logits.append(read(gather(part, model.mesh_shape)).float()[0, 0, 0, : BANKED_ROW.vocab_size])
        logger.info("step {}: tokens {}", step, chosen[-1])
    cached = [torch.stack(of_chips(tensor)) for tensor in (model.cache.keys[0], model.cache.values[0])]
    return {"logits": logits, "chosen": chosen, "keys": cached[0], "values": cached[1]}


def tokens(mesh, decode_sharding: str, steps: int, precision: str = "bfloat16") -> dict:
    """Greedy tokens of one user, chosen on the chip, and each step's two best logits; traced where it can be."""
    import ttnn
    from loguru import logger

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.sampling.top_k import Sampler
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    model = made(mesh, decode_sharding, 1, precision)
    sampler = Sampler(mesh, model.mesh_shape, BANKED, SamplingParams(0.0))
    inputs, gaps = model.step_inputs([5], [CACHED]), []

    def once():
        logits = model.decode(inputs, gather_logits=False)
        ttnn.plus_one(inputs.positions, skip_negative_entries=True)
        ttnn.plus_one(inputs.angles)
        return logits, sampler(logits, None, inputs.tokens)

    step, chosen = TracedStep(mesh, once, eager=why_no_trace(mesh) is not None), []
    try:
        for _ in range(steps):
            logits, token = step()
            top = read(logits)[0, 0, 0].float().topk(2).values
            gaps.append(float(top[0] - top[1]))
            chosen.append(int(read(token)[0, 0]))
            logger.info("token {} by {:.3f}", chosen[-1], gaps[-1])
    finally:
        replays = step.replays
        step.release()
    return {"tokens": chosen, "gaps": gaps, "replays": replays}
