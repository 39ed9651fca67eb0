# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of the speculative tree attention on a mesh of two rows, which may share the heads, in a worker with a
device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tests.support.mesh_tensors import on_chips
from tests.tt_kernels.speculative_flash_decode.flash_decode_mesh import (
    EXCHANGE,
    OUTPUT,
    PAIR_AXIS,
    TOKEN,
    TP_AXIS,
    MeshFound,
    found_of,
)
from tests.tt_kernels.speculative_flash_decode.flash_decode_pair import gathered_words
from tests.tt_kernels.tree_attention.tree_programs import Case, config_of, intervals_of


@dataclass(frozen=True)
class TreeCall:
    """One call. prefix, parents: of each user. gathered: the priority rows of both ranks. links: calls (method, keyword
    arguments) of Links just before the launch."""

    prefix: list[int]
    parents: list[list[int]]
    threshold: float
    gathered: list
    links: Sequence[tuple[str, dict]] = ()


def mesh_body(mesh, case: Case, q, k, v, calls: list[TreeCall], guess, patience_s: float) -> list[MeshFound]:
    """Run `calls`; the heads of q, k and v are split over the row, and alike on all rows."""
    import os

    import ttnn

    from runtime_patches.simulated_n150.links import Links
    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import HOLDS_EXACT_UNVERIFIED, priority_row
    from tt_kernels.common.tp_group import TpGroup
    from tt_kernels.token_guard.op import guard_tokens
    from tt_kernels.tree_attention.speculative import Peer, speculative_tree_attention

    shape = tuple(mesh.shape)
    places = [(row, column) for row in range(shape[0]) for column in range(shape[1])]

    def put(values, dtype, layout, dims=(None, None)):
        mapper = ttnn.ShardTensor2dMesh(mesh, dims=dims, mesh_shape=shape)
        return on_chips(mesh, values, getattr(ttnn, dtype), getattr(ttnn, layout), mapper)

    def words(values):
        return put(torch.tensor(values, dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT")

    def parts(tensor, padded=False):
        tensors = ttnn.get_device_tensors(tensor)
        convert = (lambda part: part.cpu().to_torch_with_padded_shape()) if padded else ttnn.to_torch
        return dict(zip(places, map(convert, tensors), strict=True))

    tensors = [put(q, "bfloat16", "TILE_LAYOUT", (None, 1))]
    tensors += [put(part, case.cache, "TILE_LAYOUT", (None, 1)) for part in (k, v)]
    pairs = ChipPairs(mesh, PAIR_AXIS, EXCHANGE)
    tp_group = TpGroup(mesh, TP_AXIS, OUTPUT, timeout_s=patience_s) if shape[1] > 1 else None
    states = [state for state in (pairs, tp_group) if state is not None]
    found = []
    for call in calls:
        gathered = put(gathered_words(call.gathered), "uint32", "ROW_MAJOR_LAYOUT")
        priority = put(priority_row(HOLDS_EXACT_UNVERIFIED), "uint32", "ROW_MAJOR_LAYOUT")
        trees = words(call.prefix), words([intervals_of(parents) for parents in call.parents])
        ttnn.synchronize_device(mesh)
        for method, arguments in call.links:
            getattr(Links(os.getpid()), method)(**arguments)
        outputs = speculative_tree_attention(
            *tensors,
            *trees,
            chunk_size=32,
            guess_range=guess,
            threshold=call.threshold,
            priority=priority,
            peer=Peer(pairs, gathered, patience_s),
            tp_group=tp_group,
            program_config=config_of(case),
        )
        tokens = put(torch.full((1, case.users), TOKEN, dtype=torch.int32), "uint32", "ROW_MAJOR_LAYOUT")
        guard_tokens(tokens, states)
        held = {name: parts(value, padded=name in ("exact", "guess")) for name, value in outputs._asdict().items()}
        found.append(found_of(held, parts(priority), (pairs, tp_group), parts(tokens), case.users))
    return found
