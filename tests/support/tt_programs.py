# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The TT-NN model and its modules against the reference, on the device of a worker (see sim_worker.py)."""

from __future__ import annotations

from models.llama31_8b.tiny import TINY
from runtime_patches.simulated_n150.testing.tensors import correlation


def figures(got, expected) -> dict:
    """PCC and the largest absolute and relative error (of numbers above 0.01)."""
    error = (got.double() - expected.double()).abs()
    relative = error / expected.double().abs().clamp_min(1e-2)
    return {
        "pcc": correlation(got, expected),
        "absolute": float(error.max()),
        "relative": float(relative.max()),
    }


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
    """(TtLlama, ReferenceLlama) with the same random weights, without a weight cache. fuzzy: the layer groups of a
    draft model, see LayerAssignment.make."""
    from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
    from models.llama31_8b.reference.model.model import ReferenceLlama
    from models.llama31_8b.tt.layer_parallel import LayerAssignment
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.precision import precision_config
    from models.llama31_8b.tt.settings import ModelSettings

    state = random_state_dict(config, seed)
    settings = ModelSettings(
        users=users,
        capacity=capacity,
        precision=precision_config(precision, config.num_hidden_layers),
        decode_sharding=decode_sharding,
        layer_assignment=None if fuzzy is None else LayerAssignment.make(config, MeshShape(*mesh.shape), fuzzy),
    )
    return TtLlama.from_state_dict(config, state, mesh, settings), ReferenceLlama.from_state_dict(config, state)


def half_split(keys):
    """Keys [..., head_dim] with RoPE pairs side by side, in Hugging Face's order."""
    import torch

    return torch.cat((keys[..., 0::2], keys[..., 1::2]), -1)


def cache_figures(model, reference, lengths) -> list[dict]:
    """Compare every layer's keys and values of all users, up to their lengths."""
    import torch
    import ttnn

    found = []
    for layer in range(model.config.num_hidden_layers):
        for name, ours, theirs in (
            ("keys", model.cache.keys, reference.keys),
            ("values", model.cache.values, reference.values),
        ):
            # The first TP group of the mesh, heads apart.
            chips = ttnn.get_device_tensors(ours[layer])[: model.mesh_shape.tp]
            whole = torch.cat([ttnn.to_torch(chip) for chip in chips], dim=1).float()
            got = torch.cat([whole[u, :, :n].flatten() for u, n in enumerate(lengths)])
            if name == "keys":
                got = torch.cat([half_split(whole[u, :, :n]).flatten() for u, n in enumerate(lengths)])
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
    import torch

    from models.llama31_8b.tt.model import read

    model, reference = build(mesh, config, precision, capacity=capacity)
    cache = reference.new_cache(1, capacity)
    expected = reference.prefill([prompt], cache)
    for start in range(0, len(prompt), chunk):
        part = prompt[start : start + chunk]
        got = model.prefill(part, 0, start, last=start + chunk >= len(prompt))
    logits = read(got)[0, 0, (len(prompt) - 1) % 32].float()
    rows = [_row(logits, expected[0])]
    length = len(prompt)
    for _ in range(steps):
        token = rows[-1]["reference_token"]  # teacher-forced: a near-tie must not end the comparison
        expected = reference.forward(torch.tensor([[token]]), cache)[:, 0]
        logits = read(model.decode(model.step_inputs([token], [length])))[0, 0, 0].float()
        rows.append(_row(logits, expected[0]))
        length += 1
    return {"steps": rows, "cache": cache_figures(model, cache, [length])}


def _row(got, expected) -> dict:
    top = expected.topk(2)
    return figures(got, expected) | {
        "token": int(got.argmax()),
        "reference_token": int(top.indices[0]),
        "gap": float(top.values[0] - top.values[1]),
    }


def weight_cache(mesh, folder: str) -> dict:
    """Put three weights through a cache on disk, again, and without one of its files: counts, and if contents held."""
    from pathlib import Path

    import torch

    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.weights import WeightStore

    generator = torch.Generator().manual_seed(0)
    host = {name: torch.randn(64, 64, generator=generator).bfloat16().float() for name in ("a", "b", "c")}

    def put_all() -> dict:
        store = WeightStore(mesh, MeshShape(*mesh.shape), Path(folder))
        equal = True
        for name, tensor in host.items():
            got = read(store.put(name, lambda tensor=tensor: tensor, "bfloat16", -1)).float()
            equal &= torch.equal(got[0, 0], tensor)
        return {"converted": store.converted, "reused": store.reused, "equal": equal}

    told = {"first": put_all(), "second": put_all()}
    (Path(folder) / "a.tensorbin").unlink()
    return told | {"one gone": put_all()}


def generate_batch(mesh, prompts: list[list[int]], new_tokens: int) -> dict:
    """Greedy texts of users with prompts of different lengths, chosen on the device; the same from read-back
    logits on the host, and those of the reference with its gaps between best and second best."""
    import torch

    from models.llama31_8b.reference.generate import generate
    from models.llama31_8b.tt.generator import Generator

    model, reference = build(mesh, TINY.with_layers(1), users=len(prompts), capacity=128)
    device = Generator(model, sample_on="device", prefill_chunk=32).generate(
        prompts, max_new_tokens=new_tokens, eos_token_ids=()
    )
    lengths = [len(prompt) + new_tokens - 1 for prompt in prompts]
    seen: list[list[torch.Tensor]] = [[] for _ in prompts]
    by_host = Generator(model, sample_on="host", prefill_chunk=32, on_logits=lambda user, row: seen[user].append(row))
    host = by_host.generate(prompts, max_new_tokens=new_tokens, eos_token_ids=())
    expected = generate(reference, prompts, max_new_tokens=new_tokens, eos_token_ids=())
    gaps = []
    for prompt, text in zip(prompts, expected.token_ids, strict=True):
        cache = reference.new_cache(1, 128)
        ids = torch.tensor([prompt + text[:-1]])
        top = reference.forward(ids, cache, logits="all")[0, len(prompt) - 1 :].topk(2).values
        gaps.append((top[:, 0] - top[:, 1]).tolist())
    return {
        "device": device.token_ids,
        "host": host.token_ids,
        "argmax": [[int(row.argmax()) for row in rows] for rows in seen],
        "reference": expected.token_ids,
        "gaps": gaps,
        "lengths": lengths,
    }
