# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ops between the steps of a round, in a worker (see sim_worker.py)."""

from __future__ import annotations

USERS, NODES = 3, 5


def rounds(device, decided: dict, choices: list, chosen: list[list], outcome: list) -> dict:
    """Each op once, or once a drafted token, on tensors that hold other numbers before: all of them afterwards."""
    import torch
    import ttnn

    from tt_kernels.draft_round.op import Chain, Decided, DraftStep, append_token, begin_chain, take_outcome

    def put(values, dtype):
        tensor = torch.tensor(values, dtype=torch.int32)
        return ttnn.from_torch(tensor, dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)

    def read(tensors):
        return {name: ttnn.to_torch(tensor).tolist() for name, tensor in tensors._asdict().items()}

    flat, row = [[77] * (USERS * NODES)], [[77] * USERS]
    before = Decided(
        put([decided["tokens"]], ttnn.uint32), put(decided["cached"], ttnn.int32), put(flat, ttnn.uint32),
        put(decided["last"], ttnn.int32),
    )  # fmt: skip
    step = DraftStep(put(row, ttnn.uint32), put(row[0], ttnn.int32), put(row, ttnn.uint32))
    chain = Chain(
        put(flat, ttnn.uint32), put(row[0], ttnn.int32), put(flat, ttnn.uint32),
        put([[77] * NODES] * USERS, ttnn.uint32),
    )  # fmt: skip
    begin_chain(before, put([choices], ttnn.uint32), step, chain)
    told = {"step": read(step)}
    for node, tokens in enumerate(chosen, start=2):
        append_token(put([tokens], ttnn.uint32), node, chain)
    told["chain"] = read(chain)
    take_outcome(put(outcome, ttnn.int32), before)
    return told | {"decided": read(before)}
