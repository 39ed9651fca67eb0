# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of the speculative sampling tests that run in a worker with a device, and random cases for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tests.support.bfloat16_bits import set_bits
from tests.support.mesh_tensors import on_chips


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


def sampling_body(device, batches, options: dict, layout: str = "ROW_MAJOR_LAYOUT", op: str = "speculative_sampling"):
    """Return each batch's rows of results. op: name of a function of the op's module."""
    import ttnn

    from tt_kernels.speculative_sampling import op as module

    found = []
    for batch in batches:
        verified = getattr(module, op)(
            upload(device, batch.tokens, "uint32"),
            upload(device, batch.parents, "int32"),
            upload(device, batch.target, "bfloat16", layout),
            None if batch.draft is None else upload(device, batch.draft, "bfloat16", layout),
            upload(device, batch.words, "uint32"),
            **options,
        )
        found.append(ttnn.to_torch(verified.result).to(torch.int64))
    return found


def greedy_body(device, tokens, parents, choices, vocab: int):
    """The rows of results of greedy verification."""
    import ttnn

    from tt_kernels.speculative_sampling.op import greedy_verification

    words = [
        upload(device, tokens, "uint32"),
        upload(device, parents, "int32"),
        upload(device, choices, "uint32"),
    ]
    return ttnn.to_torch(greedy_verification(*words, vocab).result).to(torch.int64)


def build_body(
    mesh, users: int, nodes: int, vocab: int, split: bool = False, op: str = "speculative_sampling", **options
):
    """Build a call on tensors without contents; return the shape of its result. split: over the chips of a TP group."""
    import ttnn

    from tt_kernels.speculative_sampling import op as module

    def empty(shape, dtype, layout):
        return ttnn.empty(shape, dtype, layout, mesh, ttnn.DRAM_MEMORY_CONFIG)

    rows = [empty([users, nodes], dtype, ttnn.ROW_MAJOR_LAYOUT) for dtype in (ttnn.uint32, ttnn.int32, ttnn.uint32)]
    tokens, parents, uniforms = rows
    target, draft = (empty([users, nodes, vocab], ttnn.bfloat16, ttnn.TILE_LAYOUT) for _ in range(2))
    if split:
        options["tp_group"] = module.VocabTpGroup(mesh)
    verified = getattr(module, op)(tokens, parents, target, draft, uniforms, **options)
    return tuple(verified.result.shape)


@dataclass(frozen=True)
class GroupFound:
    """rows: the rows of results of each chip of a TP group. group_error, error: those of check() of the group and of
    Verified."""

    rows: list[torch.Tensor]
    group_error: str | None
    error: str | None


def tp_body(
    mesh, batches, options: dict, timeout_s: float, core=(0, 0), op: str = "speculative_sampling"
) -> list[GroupFound]:
    """Run as sampling_body does, the vocabulary split over the chips of a mesh of one row, in TILE layout."""
    import ttnn

    from tt_kernels.speculative_sampling import op as module

    shape = tuple(mesh.shape)
    tp_group = module.VocabTpGroup(mesh, 1, core, timeout_s=timeout_s)

    def put(values, dtype, layout="ROW_MAJOR_LAYOUT", dim=None):
        mapper = ttnn.ShardTensor2dMesh(mesh, dims=(None, dim), mesh_shape=shape)
        if dtype != "bfloat16":
            values = (values & 0xFFFFFFFF).to(torch.uint32) if dtype == "uint32" else values.to(torch.int32)
        return on_chips(mesh, values, getattr(ttnn, dtype), getattr(ttnn, layout), mapper)

    def error_of(check):
        try:
            check()
        except RuntimeError as error:
            return str(error)
        return None

    found = []
    for batch in batches:
        logits = [
            None if rows is None else put(rows, "bfloat16", "TILE_LAYOUT", 2) for rows in (batch.target, batch.draft)
        ]
        verified = getattr(module, op)(
            put(batch.tokens, "uint32"),
            put(batch.parents, "int32"),
            *logits,
            put(batch.words, "uint32"),
            tp_group=tp_group,
            **options,
        )
        parts = [ttnn.to_torch(part).to(torch.int64) for part in ttnn.get_device_tensors(verified.result)]
        found.append(GroupFound(parts, error_of(tp_group.check), error_of(verified.check)))
    return found


KINDS = ("flat", "sharp", "close", "equal", "masked", "disjoint", "points")


def random_batch(seed: int, users: int, nodes: int, vocab: int, kind: str, with_replacement: bool = False) -> Batch:
    """Trees, logits and drafted tokens of `users`. kind: flat or sharp rows; draft close or equal to the target;
    either with tokens at -inf; target and draft without a token in common; no draft at all."""
    generator = torch.Generator().manual_seed(seed)

    def logits(scale: float) -> torch.Tensor:
        return (scale * torch.randn(users, nodes, vocab, generator=generator)).bfloat16()

    scale = 6.0 if kind == "sharp" else 1.5
    target, draft = logits(scale), logits(scale)
    if kind == "equal":
        draft = target.clone()
    if kind == "close":
        draft = (target + 0.3 * draft).bfloat16()
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


def likely_rejections(seed: int, users: int, nodes: int, vocab: int) -> Batch:
    """Uniforms close to 1: what the draft likes more than the target is rejected."""
    batch = random_batch(seed, users, nodes, vocab, "sharp", True)
    batch.words[:, 1:] |= 0xF0000000
    return batch


# Bits of bfloat16 logits that are no numbers: NaNs of either sign, of the least and the largest payload, and infinity.
SPOILED_BITS = (0x7FC0, 0xFFC0, 0xFF81, 0xFFFF, 0x7F80)


def spoiled_batch(vocab: int) -> tuple[Batch, list[int]]:
    """Users with one node below the root whose row, token or parent is wrong, each in a way, and one that is well; and
    the statuses of the former. The wrong logit is that of the drafted token, the last id, which no mode overlooks."""
    from tt_kernels.speculative_sampling.reference import BAD_DRAFT, BAD_TARGET, BAD_TREE

    count = len(SPOILED_BITS)
    statuses = [*count * [BAD_TARGET], *count * [BAD_DRAFT], BAD_TREE, BAD_TREE]
    batch = random_batch(0, len(statuses) + 1, 2, vocab, "flat")
    last = vocab - 1
    batch.tokens[: 2 * count, 1] = last
    for i, bits in enumerate(SPOILED_BITS):
        set_bits(batch.target, (i, 0, last), bits)
        set_bits(batch.draft, (count + i, 0, last), bits)
    batch.tokens[-3, 1], batch.parents[-2, 1] = vocab, 1
    return batch, statuses


def spoiled_beside_the_draft(vocab: int) -> tuple[Batch, list[int]]:
    """Users whose drafted token is 0 and has no chance, so that all of the rows of their root is looked at; in one of
    which the last id's logit is a NaN. And the statuses; the last user, whose rows hold -infinity alone, is well."""
    from tt_kernels.speculative_sampling.reference import BAD_DRAFT, BAD_TARGET, FINE_STATUS

    nans = (0xFFC0, 0xFF81, 0xFFFF)
    statuses = [*len(nans) * [BAD_TARGET], *len(nans) * [BAD_DRAFT], FINE_STATUS]
    batch = random_batch(0, len(statuses), 2, vocab, "flat")
    batch.tokens[:, 1], batch.words[:, 1] = 0, 2**32 - 1
    batch.target[:, 0, 0], batch.draft[:, 0, 0] = -math.inf, 3.0
    for i, bits in enumerate(nans):
        set_bits(batch.target, (i, 0, vocab - 1), bits)
        set_bits(batch.draft, (len(nans) + i, 0, vocab - 1), bits)
    return batch, statuses


@dataclass(frozen=True)
class Call:
    """One launch. op: name of the function; options: its own, as of the torch model."""

    batch: Batch
    op: str
    options: dict
    layout: str


def random_calls(seed: int, cases: int) -> list[Call]:
    """Launches of `cases` users in all: vocabularies of 32 to 4096, most of them small, since a simulated chip takes a
    second for 64 ids and ten for 4096; one node, a few, and chains of depth 8; all KINDS; siblings with and without
    replacement; every seventh launch the sigmoid approximation."""
    generator = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    calls: list[Call] = []
    while cases > 0:
        number, share = len(calls), pick(0, 99)
        vocab = pick(32, 128) if share < 88 else pick(129, 600) if share < 97 else pick(1000, 4096)
        users = min(cases, pick(12, 20) if vocab <= 128 else 4 if vocab <= 600 else 1)
        nodes = 1 if share % 10 == 0 else 9 if share % 10 == 1 else pick(2, 5)
        sigmoid = number % 7 == 6
        kinds = KINDS[:-1] if sigmoid else KINDS
        kind, repeat = "close" if nodes == 9 else kinds[pick(0, len(kinds) - 1)], bool(pick(0, 1))
        temperature = (1.0, 0.7, 1.4)[pick(0, 2)]
        batch = random_batch(pick(0, 2**30), users, nodes, vocab, kind, repeat)
        if nodes == 9:  # drafts of depth 8, likely to be accepted for a while
            batch.parents[:] = torch.arange(-1, nodes - 1)
            draw = torch.softmax((batch.target if kind == "points" else batch.draft).float() / temperature, -1)
            for node in range(nodes - 1):
                batch.tokens[:, node + 1] = torch.multinomial(draw[:, node], 1, generator=generator).flatten()
        if sigmoid:
            scale = (20.0, 1e3, 1e4)[pick(0, 2)]
            op, options = "lossy_sigmoid_sampling", {"alpha": -scale, "beta": scale}
        else:
            op = "speculative_sampling"
            options = {
                "draft_temperature": temperature * (1.0, 1.25)[pick(0, 1)],
                "with_replacement": repeat and kind != "points",
            }
        layout = ("TILE_LAYOUT", "ROW_MAJOR_LAYOUT")[pick(0, 1)]
        calls.append(Call(batch, op, options | {"temperature": temperature}, layout))
        cases -= users
    return calls


PARTS = 20


def part_of_two_thousand(part: int) -> list[Call]:
    """The cases of test_sampling_random.py in PARTS parts: for a chip and for the torch model."""
    return random_calls(1000 + part, 2000 // PARTS)


def calls_body(device, calls: list[Call]):
    """Return each call's rows of results."""
    return [sampling_body(device, [call.batch], call.options, call.layout, call.op)[0] for call in calls]
