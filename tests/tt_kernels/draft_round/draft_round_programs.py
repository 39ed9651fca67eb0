# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ops between the steps of a round, in a worker (see sim_worker.py)."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tt_kernels.draft_round import reference


class Round(NamedTuple):
    """decided: before the round. choices, chosen (by node from the second on), result: what its steps yield."""

    decided: reference.Decided
    choices: torch.Tensor
    chosen: list[torch.Tensor]
    result: torch.Tensor


def rounds(device, cases: list[Round]) -> list[tuple]:
    """Return each case's (DraftStep, Chain, Decided) after its round, on tensors that held other numbers before."""
    import ttnn

    from tt_kernels.draft_round.op import Chain, Decided, DraftStep, append_token, begin_chain, take_result

    def put(values, dtype):
        return ttnn.from_torch(values.int(), dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)

    def read(tensors):
        return type(tensors)(*(ttnn.to_torch(tensor).long() for tensor in tensors))

    told = []
    for case in cases:
        users, nodes = case.result.shape[0], len(case.chosen) + 2
        flat, row = torch.full((1, users * nodes), 77), torch.full((1, users), 77)
        decided = Decided(
            *(
                put(values, dtype)
                for values, dtype in zip(
                    case.decided, (ttnn.uint32, ttnn.int32, ttnn.uint32, ttnn.int32, ttnn.uint32), strict=True
                )
            )
        )
        step = DraftStep(put(row, ttnn.uint32), put(row[0], ttnn.int32), put(row, ttnn.uint32))
        chain = Chain(
            put(flat, ttnn.uint32),
            put(row[0], ttnn.int32),
            put(flat, ttnn.uint32),
            put(flat.view(users, nodes), ttnn.uint32),
        )
        begin_chain(decided, put(case.choices, ttnn.uint32), step, chain)
        for node, tokens in enumerate(case.chosen, start=2):
            append_token(put(tokens, ttnn.uint32), node, chain)
        take_result(put(case.result, ttnn.int32), decided)
        told.append(tuple(tuple(read(tensors)) for tensors in (step, chain, decided)))
    return told
