# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stages with a small model of random weights, each compared with the reference: a layer by either sharding, a pair
that speculates, token trees, and loops of decode steps."""

from __future__ import annotations

from typing import Any

import torch

from ..checkpoint.tensor_shapes import random_state_dict
from ..config import LlamaConfig
from ..generation.sampling import SamplingParams
from ..reference.alspec.policies import ALSpecAttention
from ..reference.model.kv_cache import KVCache
from ..reference.model.model import ReferenceLlama
from ..reference.model.step import GuessRange
from ..spec_decode.tree import TokenTree
from ..tiny import BANKED, TINY
from .findings import Check, Context, near


def _make(mesh: Any, config: LlamaConfig, **settings: Any) -> tuple[Any, ReferenceLlama]:
    """Return a TtLlama for one user on `mesh` and the reference with the same weights. settings: of ModelSettings."""
    from ..tt.model import TtLlama
    from ..tt.settings import ModelSettings

    state = random_state_dict(config)
    model = TtLlama.from_state_dict(config, state, mesh, ModelSettings(precision="bfloat16", **settings))
    return model, ReferenceLlama.from_state_dict(config, state)


def filled_cache(reference: ReferenceLlama, cached: int, capacity: int) -> KVCache:
    """Return the reference's cache of one user with `cached` random tokens, in bfloat16's numbers."""
    cache, generator = reference.new_cache(1, capacity), torch.Generator().manual_seed(cached)
    for tensor in (*cache.keys, *cache.values):
        tensor.zero_()
        tensor[:, :, :cached] = torch.randn(tensor[:, :, :cached].shape, generator=generator).bfloat16().float()
    cache.reserve(cached)
    cache.commit(cached)
    return cache


def _load_cache(model: Any, cache: KVCache) -> None:
    """Write the reference's cache into every chip of a model whose TP groups have one chip."""
    import ttnn

    for ours, theirs, is_key in (
        *((*pair, True) for pair in zip(model.cache.keys, cache.keys, strict=True)),
        *((*pair, False) for pair in zip(model.cache.values, cache.values, strict=True)),
    ):
        values = torch.stack(theirs.chunk(2, -1), -1).flatten(-2) if is_key else theirs  # RoPE pairs side by side
        mapper = model.mesh_shape.mapper(model.mesh, None)
        host = ttnn.from_torch(values.bfloat16(), dtype=ours.dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)
        ttnn.copy_host_to_device_tensor(host, ours)


def _near_cache(model: Any, cache: KVCache, count: int) -> Check:
    """Compare all layers' keys and values of `count` tokens on the first chip with the reference's."""
    import ttnn

    found = []
    for tensors, is_key in ((model.cache.keys, True), (model.cache.values, False)):
        for tensor in tensors:
            values = ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])[:, :, :count].float()
            values = torch.cat((values[..., 0::2], values[..., 1::2]), -1) if is_key else values
            found.append(values.flatten())
    expected = torch.cat([tensor[:, :, :count].flatten() for tensor in (*cache.keys, *cache.values)])
    return near("keys and values", torch.cat(found), expected)


def interleaved(context: Context) -> list[Check]:
    """Decode with ttnn's default placements."""
    return _layer(context, "interleaved")


def sharded(context: Context) -> list[Check]:
    """Decode with sharded activations and weights laid out by DRAM bank."""
    return _layer(context, "sharded")


def _layer(context: Context, decode_sharding: str, capacity: int = 64, count: int = 20) -> list[Check]:
    """Prefill `count` tokens and decode one by a model with one layer."""
    from ..tt.model import read

    model, reference = _make(context.device, BANKED, capacity=capacity, decode_sharding=decode_sharding)
    generator = torch.Generator().manual_seed(3)
    *prompt, token = torch.randint(0, BANKED.vocab_size, (count + 1,), generator=generator).tolist()
    cache = reference.new_cache(1, capacity)
    wanted = reference.prefill([prompt], cache)[0]
    logits = read(model.prefill(prompt, 0, 0, last=True))[0, 0, count - 1].float()
    checks = [near("logits of a prompt", logits, wanted)]
    wanted = reference.forward(torch.tensor([[token]]), cache)[0, 0]
    logits = read(model.decode(model.step_inputs([token], [count])))[0, 0, 0].float()
    return [*checks, near("logits of a decode step", logits, wanted), _near_cache(model, cache, count + 1)]


CHUNK_SIZE, CAPACITY = 32, 128
CACHED = 95  # a guess reads 32 tokens at the start and, of 96, those from 64 on; where a pass went before, all
THRESHOLD, PAIR_TOKEN, STEPS = 0.3, 27, 3


def steps_of_reference(reference: ReferenceLlama, cache: Any, policy: ALSpecAttention) -> tuple[list[int], list[Any]]:
    """Return the greedy tokens that the pair's steps are fed and choose, and the logits of each step."""
    tokens, logits = [PAIR_TOKEN], []
    for _ in range(STEPS):
        logits.append(reference.forward(torch.tensor([tokens[-1:]]), cache, policy=policy)[0, 0])
        tokens.append(int(logits[-1].argmax()))
    return tokens, logits


def speculating_pair(context: Context) -> list[Check]:
    """Decode on both chips what the reference decodes alone: its decisions, tokens, logits and cache. Steps after the
    first replay its trace where this dispatch has traces."""
    import ttnn

    from ..tt.model import overwrite
    from ..tt.settings import AttentionSettings
    from ..tt.trace import TracedStep, why_no_trace

    settings = AttentionSettings("alspec", CHUNK_SIZE, THRESHOLD)
    model, reference = _make(context.device, TINY, capacity=CAPACITY, attention=settings)
    cache = filled_cache(reference, CACHED, CAPACITY)
    _load_cache(model, cache)
    policy = ALSpecAttention(THRESHOLD, GuessRange.by_budget(CHUNK_SIZE))
    tokens, wanted = steps_of_reference(reference, cache, policy)
    accepted = [step.accepted[:, 0, 0].tolist() for step in policy.statistics.steps]
    attention, logits, priorities = model.pair, [], []
    inputs = model.step_inputs([PAIR_TOKEN], [CACHED])
    traced = TracedStep(context.device, lambda: model.decode(inputs), why_no_trace(context.device) is not None)
    for step, token in enumerate(tokens[:-1]):
        overwrite(inputs, model.step_inputs([token], [CACHED + step], on_device=False))
        output = traced()
        model.check()
        logits.append([ttnn.to_torch(part)[0, 0, 0].float() for part in ttnn.get_device_tensors(output)])
        priorities.append(attention.last_priorities())
    replays = traced.replays
    traced.release()
    chosen = [[int(rank.argmax()) for rank in ranks] for ranks in logits]
    expected = [[token] * 2 for token in tokens[1:]]
    return [
        check_decisions(priorities, accepted),
        Check("tokens by step and rank", chosen, expected, chosen == expected),
        Check("steps that replayed a trace", replays),
        near("logits", torch.stack([ranks[0] for ranks in logits]), torch.stack(wanted)),
        _near_cache(model, cache, CACHED + STEPS),
    ]


def check_decisions(found: list[Any], accepted: list[list[bool]]) -> Check:
    """Compare what each rank held after each layer. found: priorities after each step, by rank, layer and user.
    accepted: the reference's decisions, by step and layer."""
    from tt_kernels.common.priority import NAMES

    shown, expected = [], []
    for ranks, layers in zip(found, accepted, strict=True):
        shown.append([[NAMES.get(rank[layer][0], "none") for rank in ranks] for layer in range(len(layers))])
        sender, wanted = 0, []
        for hit in layers:
            names = ["accepted" if hit else "rejected", "received"]
            wanted.append(names if sender == 0 else names[::-1])
            sender = 1 - sender if hit else sender
        expected.append(wanted)
    return Check("decisions by step, layer and rank", shown, expected, shown == expected)


TREE_CAPACITY, TREE_CACHED, TREE_TOKEN = 64, 30, 71  # the first tree crosses a tile of 32 positions
PARENTS = (-1, 0, 0, 2)  # a wrong child comes before the right path 2, 3: accepted keys and values move
RIGHT = (2, 1, 0)  # drafted tokens of the path that are right, by round


def greedy_text(reference: ReferenceLlama, cache: Any, tokens: int) -> list[int]:
    """Return the token that is fed first and those chosen after it."""
    text = [TREE_TOKEN]
    for _ in range(tokens):
        text.append(int(reference.forward(torch.tensor([text[-1:]]), cache)[0, 0].argmax()))
    return text


def drafted(text: list[int], right: int) -> list[int]:
    """Return the nodes' tokens of a tree whose root is text[0] and whose path is right in so many tokens."""
    path = [token if depth < right else (token + 1) % TINY.vocab_size for depth, token in enumerate(text[1:3])]
    return [text[0], (text[1] + 2) % TINY.vocab_size, *path]


def token_trees(context: Context) -> list[Check]:
    """Commit a whole path, a part of one and none: the text is the plain greedy one, and so is the cache."""
    from ..tt.spec_decode.tree_step import TreeStep

    model, reference = _make(context.device, TINY, capacity=TREE_CAPACITY)
    cache = filled_cache(reference, TREE_CACHED, TREE_CAPACITY)
    _load_cache(model, cache)
    new = sum(RIGHT) + len(RIGHT)
    text = greedy_text(reference, cache, new + 2)
    step, tree = TreeStep(model, len(PARENTS), SamplingParams(0.0)), TokenTree.from_parents(PARENTS)
    made, paths = [TREE_TOKEN], []
    for right in RIGHT:
        step.load({0: (tree, drafted(text[len(made) - 1 :], right))}, [TREE_CACHED + len(made) - 1])
        (outcome,) = step().check()
        made += outcome.tokens
        paths.append(list(outcome.path))
    expected = [[2, 3][:right] for right in RIGHT]
    return [
        Check("accepted nodes by round", paths, expected, paths == expected),
        Check("text", made, text[: new + 1], made == text[: new + 1]),
        _near_cache(model, cache, TREE_CACHED + new),
    ]


TOKENS, SIM_TOKENS = 32, 2  # per loop


def replay(context: Context) -> list[Check]:
    """Five loops of decode steps."""
    return _loops(context, 5)


def soak(context: Context) -> list[Check]:
    """Fifty loops of decode steps."""
    return _loops(context, 50)


def _loops(context: Context, loops: int) -> list[Check]:
    """Capture a decode step and replay it for each token of a loop: the first loop is near the reference, the others
    equal the first bit for bit."""
    model, reference = _make(context.device, TINY, capacity=CAPACITY)
    cache = filled_cache(reference, CACHED, CAPACITY)
    _load_cache(model, cache)
    count = SIM_TOKENS if context.simulated else TOKENS
    tokens = torch.randint(0, TINY.vocab_size, (count,), generator=torch.Generator().manual_seed(4)).tolist()
    found = [_loop(context.device, model, tokens) for _ in range(loops)]
    first = found[0][0]
    differ = sum(not torch.equal(logits, first) for logits, _ in found)
    wanted = torch.stack([reference.forward(torch.tensor([[token]]), cache)[0, 0] for token in tokens])
    return [
        Check(f"{loops} loops of {count} tokens", f"{differ} differ", "0 differ", differ == 0),
        Check("steps that replayed a trace", sum(replays for _, replays in found)),
        near("logits of the first loop", first, wanted, max_error=float("inf")),
    ]


def _loop(device: Any, model: Any, tokens: list[int]) -> tuple[torch.Tensor, int]:
    """Return logits by token, and how many steps replayed a trace."""
    from ..tt.model import overwrite, read
    from ..tt.trace import TracedStep, why_no_trace

    inputs, logits = model.step_inputs([tokens[0]], [CACHED]), []
    traced = TracedStep(device, lambda: model.decode(inputs), why_no_trace(device) is not None)
    for step, token in enumerate(tokens):
        overwrite(inputs, model.step_inputs([token], [CACHED + step], on_device=False))
        logits.append(read(traced())[0, 0, 0].float())
    replays = traced.replays
    traced.release()
    return torch.stack(logits), replays
