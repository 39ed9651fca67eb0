# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What tests of the TT-NN model share: prompts, bounds, and the model against the reference, on the device of a worker
(see sim_worker.py). No ttnn at the top: tests import it at collection."""

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY
from models.llama31_8b.tt.layer_parallel import LayerAssignment
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import precision_config
from models.llama31_8b.tt.settings import ModelSettings
from runtime_patches.simulated_n150.testing.tensors import correlation

# One layer and one query head: a step is launches, on a chip of one core.
SMALLEST = replace(TINY.with_layers(1), num_attention_heads=1)
# Four key/value heads, and a vocabulary that chips fill with zeros.
SMALL = replace(
    TINY,
    vocab_size=100,
    hidden_size=256,
    intermediate_size=512,
    num_attention_heads=8,
    num_key_value_heads=4,
    name="small",
)
# Joining heads takes a core for each of the two query heads of the tiny model.
GRID = "2x1"
MIN_PCC = 0.99
# Reference logits closer than this may swap places in bfloat16.
NEAR_TIE = 0.1
# Masses are whole 65536ths of the largest: 32 of them, each off by half of one, move a border by less than this.
BAND = 2.5e-4


def prompt(length: int, seed: int) -> list[int]:
    """Random ids of the tiny model's vocabulary of 96."""
    return torch.randint(0, 96, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def repeating(seed: int) -> list[int]:
    """24 of its tokens out of 6 random ones, in which there is something to look up."""
    generator = torch.Generator().manual_seed(seed)
    alphabet = torch.randint(0, 96, (6,), generator=generator)
    return alphabet[torch.randint(0, 6, (24,), generator=generator)].tolist()


def margin(masses: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """How far each number is from the nearest border between two tokens: masses [n, vocab], numbers [n] -> [n]."""
    return (masses.double().cumsum(-1) - numbers[:, None]).abs().amin(-1)


def figures(got, expected) -> dict:
    """PCC and the largest absolute and relative error (of numbers above 0.01)."""
    error = (got.double() - expected.double()).abs()
    relative = error / expected.double().abs().clamp_min(1e-2)
    return {
        "pcc": correlation(got, expected),
        "absolute": float(error.max()),
        "relative": float(relative.max()),
    }


def check_close(name, got, expected, least: float = MIN_PCC) -> dict:
    """Figures of a result, which are logged and held to a PCC."""
    found = figures(got, expected)
    logger.info("{}: {}", name, found)
    assert found["pcc"] >= least, name
    return found


def check_rows(name, rows: list[dict], least: float = MIN_PCC) -> None:
    """Log figures and hold them to a PCC."""
    for row in rows:
        logger.info("{}: {}", name, row)
    assert all(row["pcc"] >= least for row in rows), name


def build(
    mesh,
    config,
    precision="bfloat16",
    users=1,
    capacity=128,
    seed=0,
    fuzzy=None,
    decode_sharding="interleaved",
):
    """(TtLlama, ReferenceLlama) with the same random weights, without a weight cache. precision: a preset's name, or
    formats. fuzzy: the layer groups of a
    draft model, see LayerAssignment.make."""
    from models.llama31_8b.tt.model import TtLlama

    state = random_state_dict(config, seed)
    settings = ModelSettings(
        users=users,
        capacity=capacity,
        precision=precision_config(precision, config.num_hidden_layers) if isinstance(precision, str) else precision,
        decode_sharding=decode_sharding,
        layer_assignment=None if fuzzy is None else LayerAssignment.make(config, MeshShape(*mesh.shape), fuzzy),
    )
    return TtLlama.from_state_dict(config, state, mesh, settings), ReferenceLlama.from_state_dict(config, state)


def half_split(keys):
    """Keys [..., head_dim] with RoPE pairs side by side, in Hugging Face's order."""
    return torch.cat((keys[..., 0::2], keys[..., 1::2]), -1)


def put(mesh, values, memory: str = "DRAM"):
    """A tensor of every chip, bfloat16 in tiles."""
    import ttnn

    place = getattr(ttnn, f"{memory}_MEMORY_CONFIG")
    return ttnn.from_torch(values, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=place)


def read(tensor) -> torch.Tensor:
    """What the first chip of a mesh holds."""
    import ttnn

    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


def of_chips(tensor) -> list[torch.Tensor]:
    """What each chip of a mesh holds, row by row."""
    import ttnn

    return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(tensor)]


def cache_figures(model, reference, lengths) -> list[dict]:
    """Compare every layer's keys and values of all users, up to their lengths."""
    found = []
    for layer in range(model.config.num_hidden_layers):
        for name, ours, theirs in (
            ("keys", model.cache.keys, reference.keys),
            ("values", model.cache.values, reference.values),
        ):
            # The first TP group of the mesh, heads apart.
            whole = torch.cat(of_chips(ours[layer])[: model.mesh_shape.tp], dim=1).float()
            whole = half_split(whole) if name == "keys" else whole
            got = torch.cat([whole[u, :, :n].flatten() for u, n in enumerate(lengths)])
            expected = torch.cat([theirs[layer][u, :, :n].flatten() for u, n in enumerate(lengths)])
            found.append({"layer": layer, "what": name} | figures(got, expected))
    return found


def prefill_and_decode(
    mesh,
    prompt: list[int],
    steps: int,
    chunk: int,
    precision: str = "bfloat16",
    config=TINY,
    capacity: int = 128,
) -> dict:
    """Prefill one user in chunks, then feed greedy tokens: figures of logits at every step, top choices."""
    model, reference = build(mesh, config, precision, capacity=capacity)
    cache = reference.new_cache(1, capacity)
    expected = reference.prefill([prompt], cache)
    for start in range(0, len(prompt), chunk):
        part = prompt[start : start + chunk]
        got = model.prefill(part, 0, start, last=start + chunk >= len(prompt))
    logits = read(got)[0, 0, (len(prompt) - 1) % 32].float()
    rows = [compared(logits, expected[0])]
    length = len(prompt)
    for _ in range(steps):
        token = rows[-1]["reference_token"]  # teacher-forced: a near-tie must not end the comparison
        expected = reference.forward(torch.tensor([[token]]), cache)[:, 0]
        logits = read(model.decode(model.step_inputs([token], [length])))[0, 0, 0].float()
        rows.append(compared(logits, expected[0]))
        length += 1
    return {"steps": rows, "cache": cache_figures(model, cache, [length])}


def compared(got, expected) -> dict:
    """Figures of logits [vocab], the best token of either, and how far the reference's leads."""
    top = expected.topk(2)
    return figures(got, expected) | {
        "token": int(got.argmax()),
        "reference_token": int(top.indices[0]),
        "gap": float(top.values[0] - top.values[1]),
    }


ROWS = 32


def modules(mesh, config, precision: str) -> dict[str, dict]:
    """Figures of every module of a two-layer model's first layer, with random weights: name -> PCC and
    largest errors. The last layer has other formats in the performance plan."""
    import ttnn

    from models.llama31_8b.config import inverse_frequencies
    from models.llama31_8b.reference.model.model import rotary_rows, rotate
    from models.llama31_8b.tt.layer import Pass
    from models.llama31_8b.tt.model import StepInputs

    config = config.with_layers(2)
    model, reference = build(mesh, config, precision)
    ours, theirs = model.layers[0], reference.layers[0]
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    generator, placed = torch.Generator().manual_seed(7), partial(put, mesh)

    def normal(*shape) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).bfloat16().float()

    def rotated(x, start):
        """x: [heads, rows, head_dim], positions from start."""
        cos, sin = rotary_rows(inverse_frequencies(config), torch.arange(start, start + x.shape[1]))
        return rotate(x.transpose(0, 1), cos, sin).transpose(0, 1)

    found = {}
    x, one = normal(ROWS, config.hidden_size), normal(1, config.hidden_size)
    tokens = torch.randint(0, config.vocab_size, (1, ROWS), generator=generator)
    found["embedding"] = figures(
        read(model.embedding(model.put_integers(tokens, "uint32"), ttnn.DRAM_MEMORY_CONFIG))[0, 0],
        F.embedding(tokens[0], reference.embedding),
    )
    normed = reference._rms_norm(x, theirs.mlp_norm)
    found["rms_norm"] = figures(read(ours.mlp_norm(placed(x[None, None])))[0, 0], normed)

    def mlp(rows):
        gate, up = theirs.gate_up(rows).chunk(2, dim=-1)
        return theirs.down(F.silu(gate) * up)

    with torch.inference_mode():
        found["mlp, a tile of rows"] = figures(read(ours.mlp(placed(x[None, None]), model.rows))[0, 0], mlp(x))
        in_l1 = placed(one[None, None], "L1")
        found["mlp, one row in L1"] = figures(read(ours.mlp(in_l1, model.layout))[0, 0], mlp(one))
        found["lm_head"] = figures(
            read(model.head(placed(x[None, None]), model.rows))[0, 0, :, : config.vocab_size], reference.head(x)
        )

    angles = model.rope.row_angles(model.put_integers(torch.arange(64, 64 + ROWS)[None], "uint32"))
    many = normal(1, heads, ROWS, dim)  # neighbours are pairs
    found["rope, prefill"] = figures(
        half_split(read(model.rope.prefill(placed(many), angles))[0]), rotated(half_split(many[0]), 64)
    )

    # A whole prompt of one chunk: causal attention and the output projection.
    chunk = model.chunk([0] * ROWS, 0, 0)
    given = StepInputs(chunk.tokens, chunk.start, chunk.angles)
    rows = Pass(model.cache, model.rows, model.rope.row_angles(given.angles), model.attention, given)
    fused = model.rows.multiply(ours.attention.qkv, placed(x[None, None]))
    heads_output = ours.attention.attend_chunk(fused, chunk, rows)
    got = read(model.rows.multiply_heads(ours.attention.wo, heads_output))[0, 0]

    def projected(rows, start):
        """Queries, keys and values, [heads, rows, head_dim] each."""
        q, k, v = theirs.qkv(rows).view(len(rows), -1, dim).transpose(0, 1).split([heads, kv_heads, kv_heads])
        return rotated(q, start), rotated(k, start), v

    def attended(q, k, v, causal):
        out = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal, enable_gqa=True)
        return theirs.o(out[0].transpose(0, 1).reshape(q.shape[1], heads * dim))

    with torch.inference_mode():
        q, k, v = projected(x, 0)
        found["attention, prefill"] = figures(got, attended(q, k, v, True))

        # One more token behind it.
        inputs = model.step_inputs([0], [ROWS])
        step = Pass(model.cache, model.layout, model.rope.decode_angles(inputs.angles), model.attention, inputs)
        fused = model.layout.multiply(ours.attention.qkv, placed(one[None, None], "L1"))
        out = ours.attention.attend(fused, step)
        got = read(model.layout.multiply_heads(ours.attention.wo, out))[0, 0]
        q, k1, v1 = projected(one, ROWS)
        keys, values = torch.cat((k, k1), 1), torch.cat((v, v1), 1)
        found["attention, decode"] = figures(got, attended(q, keys, values, False))
    cached = read(model.cache.keys[0]).float()[0, :, : ROWS + 1]
    found["cached keys"] = figures(half_split(cached), keys)
    found["cached values"] = figures(read(model.cache.values[0]).float()[0, :, : ROWS + 1], values)
    return found
