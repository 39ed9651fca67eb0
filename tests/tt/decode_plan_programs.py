# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The fast plan of decode steps against the simple one, on the device of a worker (see sim_worker.py)."""

from __future__ import annotations

from models.llama31_8b.config import LlamaConfig, RopeScaling
from tests.support.tt_programs import build, figures

# 12 tiles of columns in the residual, the MLP and the vocabulary, one in each DRAM bank; the fused product has fewer.
BANKED = LlamaConfig(
    vocab_size=384,
    hidden_size=384,
    intermediate_size=416,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=64,
    max_position_embeddings=128,
    rope_scaling=RopeScaling("llama3", factor=8.0, original_max_position_embeddings=64),
    name="banked",
)
PROMPT = 40


def fill(model, seed: int, length: int) -> None:
    """Random keys and values of all users at the first positions."""
    import torch
    import ttnn

    generator = torch.Generator().manual_seed(seed)
    for tensors in (model.cache.keys, model.cache.values):
        for tensor in tensors:
            values = torch.randn(tuple(tensor.shape), generator=generator)
            values[:, :, length:] = 0
            host = ttnn.from_torch(
                values,
                dtype=tensor.dtype,
                layout=ttnn.TILE_LAYOUT,
                mesh_mapper=model.plan.mapper(model.mesh, None),
            )
            ttnn.copy_host_to_device_tensor(host, tensor)


def modules(mesh, config: LlamaConfig = BANKED, users: int = 2, precision: str = "bfloat16") -> dict:
    """Figures by module of the fast plan against the simple one, from the same inputs: norm, heads after rotation and
    the cache they went to, attention, MLP, head."""
    import torch
    import ttnn
    from loguru import logger

    from models.llama31_8b.tt.model import read

    simple, _ = build(mesh, config, precision, users=users)
    fast, _ = build(mesh, config, precision, users=users, layout="fast")
    for model in (simple, fast):
        fill(model, 1, PROMPT)
    generator, found = torch.Generator().manual_seed(7), {}
    x = torch.randn(1, 1, users, config.hidden_size, generator=generator)
    positions = [PROMPT + user for user in range(users)]

    def both(name: str, of) -> None:
        ours, theirs = (read(of(model)).float() for model in (fast, simple))
        found[name] = figures(ours[:, :, :users], theirs[:, :, :users])
        logger.info("{}: {}", name, found[name])

    def put(model):
        rows = ttnn.from_torch(
            x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=ttnn.L1_MEMORY_CONFIG
        )
        return model.layout.residual(rows)

    def normed(model):
        return model.layers[0].attention_norm.decode(put(model))

    def attention(model):
        inputs = model.step_inputs([0] * users, positions)
        angles = model.rope.decode_angles(inputs.angles)
        return model.layers[0].attention.decode(normed(model), model.cache, inputs.positions, angles)

    both("norm", normed)
    both("fused qkv", lambda model: model.layers[0].attention.qkv.decode(normed(model)))
    both("attention", attention)
    for name, cache in (("keys", "keys"), ("values", "values")):
        both(f"cached {name}", lambda model, cache=cache: getattr(model.cache, cache)[0])
        ours, theirs = (read(getattr(model.cache, cache)[0]).float() for model in (fast, simple))
        new = [
            torch.stack([part[user, :, at] for user, at in enumerate(positions)]) for part in (ours, theirs)
        ]
        found[f"new {name}"] = figures(*new)
    both("mlp", lambda model: model.layers[0].mlp.decode(normed(model)))
    both("head", lambda model: model.head.decode(normed(model)))
    return found
