# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of the speculative sampling tests that run in a worker with a device, and random cases for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Batch:
    """Users of one call. tokens, parents, words [users, nodes] int64; target, draft [users, nodes, vocab] bfloat16;
    uniforms: float64 of which `words` are the whole numbers."""

    tokens: torch.Tensor
    parents: torch.Tensor
    target: torch.Tensor
    draft: torch.Tensor | None
    words: torch.Tensor

    @property
    def uniforms(self) -> torch.Tensor:
        return self.words.double() / 2.0**32


def upload(device, values: torch.Tensor, dtype: str, layout: str = "ROW_MAJOR_LAYOUT"):
    import ttnn

    if dtype != "bfloat16":  # torch knows no unsigned words here: the same bits
        values = (values & 0xFFFFFFFF).to(torch.uint32) if dtype == "uint32" else values.to(torch.int32)
    return ttnn.from_torch(values, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout), device=device)


def sampling_body(device, batches, options: dict, layout: str = "ROW_MAJOR_LAYOUT", grid=(1, 1)):
    """Of each batch the rows of outcomes."""
    import ttnn

    from tt_kernels.speculative_sampling.op import speculative_sampling

    found = []
    for batch in batches:
        verified = speculative_sampling(
            upload(device, batch.tokens, "uint32"),
            upload(device, batch.parents, "int32"),
            upload(device, batch.target, "bfloat16", layout),
            None if batch.draft is None else upload(device, batch.draft, "bfloat16", layout),
            upload(device, batch.words, "uint32"),
            grid=grid,
            **options,
        )
        found.append(ttnn.to_torch(verified.outcome).to(torch.int64))
    return found


def greedy_body(device, tokens, parents, choices, vocab: int):
    """The rows of outcomes of greedy verification."""
    import ttnn

    from tt_kernels.speculative_sampling.op import greedy_verification

    words = [
        upload(device, tokens, "uint32"),
        upload(device, parents, "int32"),
        upload(device, choices, "uint32"),
    ]
    return ttnn.to_torch(greedy_verification(*words, vocab).outcome).to(torch.int64)


def build_body(device, users: int, nodes: int, vocab: int) -> tuple[int, ...]:
    """Build a call on tensors without contents; the shape of its outcome."""
    import ttnn

    from tt_kernels.speculative_sampling.op import speculative_sampling

    def empty(shape, dtype, layout):
        return ttnn.empty(shape, dtype, layout, device, ttnn.DRAM_MEMORY_CONFIG)

    rows = [
        empty([users, nodes], dtype, ttnn.ROW_MAJOR_LAYOUT)
        for dtype in (ttnn.uint32, ttnn.int32, ttnn.uint32)
    ]
    tokens, parents, uniforms = rows
    target, draft = (empty([users, nodes, vocab], ttnn.bfloat16, ttnn.TILE_LAYOUT) for _ in range(2))
    return tuple(speculative_sampling(tokens, parents, target, draft, uniforms).outcome.shape)


KINDS = ("flat", "sharp", "equal", "masked", "disjoint", "points")


def random_batch(
    seed: int, users: int, nodes: int, vocab: int, kind: str, with_replacement: bool = False
) -> Batch:
    """Trees, logits and drafted tokens of `users`. kind: flat or sharp rows; draft equal to the target; either with
    tokens at -inf; target and draft without a token in common; no draft at all."""
    generator = torch.Generator().manual_seed(seed)

    def logits(scale: float) -> torch.Tensor:
        return (scale * torch.randn(users, nodes, vocab, generator=generator)).bfloat16()

    scale = 6.0 if kind == "sharp" else 1.5
    target, draft = logits(scale), logits(scale)
    if kind == "equal":
        draft = target.clone()
    if kind in ("masked", "disjoint"):
        chosen = torch.rand(users, nodes, vocab, generator=generator) < 0.5
        chosen[..., 0], chosen[..., 1 % vocab] = True, False
        target[~chosen] = -torch.inf
        if kind == "disjoint":
            draft[chosen] = -torch.inf
        else:
            draft[torch.rand(users, nodes, vocab, generator=generator) < 0.3] = -torch.inf
            draft[..., 0] = 0.0
    parents = torch.full((users, nodes), -1)
    tokens = torch.randint(0, vocab, (users, nodes), generator=generator)
    for user in range(users):
        shape = seed + user
        for node in range(1, nodes):
            lowest = max(0, node - 1 - shape % 3)  # a chain for a third of the users
            parents[user, node] = int(torch.randint(lowest, node, (1,), generator=generator))
        for node in range(nodes):
            children = (parents[user] == node).nonzero().flatten()
            if not len(children):
                continue
            mass = torch.softmax(draft[user, node].float(), 0)
            count, most = len(children), int((mass > 0).sum())
            repeat = with_replacement or kind == "points" or most < count
            tokens[user, children] = torch.multinomial(mass, count, repeat, generator=generator)
    words = torch.randint(0, 2**32, (users, nodes), generator=generator)
    words[torch.rand(users, nodes, generator=generator) < 0.05] = 0
    return Batch(tokens, parents, target, None if kind == "points" else draft, words)
