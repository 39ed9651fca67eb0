# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of the speculative flash decode on a mesh whose rows share the heads, in a worker with a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.support.mesh_tensors import on_chips
from tests.tt_kernels.speculative_flash_decode.flash_decode_pair import gathered_words
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import Case, program_config

# On each chip's grid of 2x2: the output core and the exchange core; workers are on the others.
GRID, OUTPUT, EXCHANGE = "2x2", (0, 1), (1, 1)
PAIR_AXIS, TP_AXIS = 0, 1
TOKEN = 7


@dataclass(frozen=True)
class MeshCall:
    """One call. gathered: of every chip, by its coordinates, the priority rows of both ranks as it was told them, or
    None for calls without a peer. reset: before the call."""

    positions: list[int]
    threshold: float
    gathered: dict[tuple[int, int], list] | None = None
    reset: bool = False


@dataclass(frozen=True)
class MeshFound:
    """What a call left, of every chip by its coordinates. messages: the errors of check() of pairs and rows. tokens:
    what the token guard made of TOKEN."""

    outputs: dict[tuple[int, int], dict[str, torch.Tensor]]
    priorities: dict[tuple[int, int], list[int]]
    messages: tuple[str | None, str | None]
    tokens: dict[tuple[int, int], list[int]]


def mesh_body(mesh, case: Case, q, k, v, calls: list[MeshCall], patience_s: float) -> list[MeshFound]:
    """Run `calls`; the heads of q, k and v are split over the row, and alike on all rows."""
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import HOLDS_EXACT_UNVERIFIED, priority_row
    from tt_kernels.common.tp_group import TpGroup
    from tt_kernels.speculative_flash_decode.op import Peer, speculative_flash_decode
    from tt_kernels.token_guard.op import guard_tokens

    shape = tuple(mesh.shape)
    places = [(row, column) for row in range(shape[0]) for column in range(shape[1])]

    def put(values, dtype, layout, dims=(None, None)):
        mapper = ttnn.ShardTensor2dMesh(mesh, dims=dims, mesh_shape=shape)
        return on_chips(mesh, values, getattr(ttnn, dtype), getattr(ttnn, layout), mapper)

    def parts(tensor):
        return dict(zip(places, map(ttnn.to_torch, ttnn.get_device_tensors(tensor)), strict=True))

    tensors = [put(q, "bfloat16", "TILE_LAYOUT", (None, 2))]
    tensors += [put(part, case.cache, "TILE_LAYOUT", (None, 1)) for part in (k, v)]
    pairs = ChipPairs(mesh, PAIR_AXIS, EXCHANGE) if shape[0] == 2 else None
    tp_group = TpGroup(mesh, TP_AXIS, OUTPUT, timeout_s=patience_s) if shape[1] > 1 else None
    found = []
    for call in calls:
        for state in (pairs, tp_group):
            if call.reset and state is not None:
                state.reset()
        peer = None
        if call.gathered is not None:
            words = torch.cat([gathered_words(call.gathered[place]) for place in places])
            gathered = put(words.view(*shape, 2, -1), "uint32", "ROW_MAJOR_LAYOUT", (0, 1))
            peer = Peer(pairs, gathered, patience_s)
        priority = put(priority_row(HOLDS_EXACT_UNVERIFIED), "uint32", "ROW_MAJOR_LAYOUT")
        outputs = speculative_flash_decode(
            *tensors,
            put(torch.tensor(call.positions, dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT"),
            chunk_size=case.chunk_size,
            threshold=call.threshold,
            priority=priority,
            peer=peer,
            tp_group=tp_group,
            program_config=program_config(case),
        )
        tokens = put(torch.full((1, case.users), TOKEN, dtype=torch.int32), "uint32", "ROW_MAJOR_LAYOUT")
        guard_tokens(tokens, [state for state in (pairs, tp_group) if state is not None])
        held = {name: parts(value) for name, value in outputs._asdict().items()}
        found.append(found_of(held, parts(priority), (pairs, tp_group), parts(tokens), case.users))
    return found


def found_of(held: dict[str, dict], priorities: dict, states: tuple, tokens: dict, users: int) -> MeshFound:
    """Put together what a call left, each part by chip. held: by output; states: of pairs and TP groups, or None."""
    return MeshFound(
        {place: {name: values[place] for name, values in held.items()} for place in priorities},
        {place: row[..., :users].flatten().tolist() for place, row in priorities.items()},
        tuple(None if state is None else _error(state) for state in states),
        {place: values.flatten().tolist() for place, values in tokens.items()},
    )


def _error(state) -> str | None:
    from tt_kernels.common.device_state import PeerError

    try:
        state.check()
    except PeerError as error:
        return str(error)
    return None
