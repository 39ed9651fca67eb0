# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the steps of a round tell each other, integer by integer, on a simulated N150."""

from typing import NamedTuple

import pytest
import torch

from tests.support.run_op import Call, In, Make, run_ops, words
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.draft_round.op import Decided
from tt_kernels.draft_round.reference import append_token_reference, begin_chain_reference, take_result_reference

OP = "tt_kernels.draft_round.op"
FIELDS = {
    "DraftStep": ["uint32", "int32", "uint32"],
    "Chain": ["uint32", "int32", "uint32", "uint32"],
    "Decided": ["uint32", "int32", "uint32", "int32", "uint32"],
}


class Round(NamedTuple):
    """decided: before the round. choices, chosen (by node from the second on), result: what its steps yield."""

    decided: Decided
    choices: torch.Tensor
    chosen: list[torch.Tensor]
    result: torch.Tensor


def drawn(seed: int, users: int, nodes: int) -> Round:
    random = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=random)

    result = integers(0, 99, users, 4 + 2 * nodes)
    result[:, 3] = integers(0, nodes + 1, users)
    decided = Decided(
        integers(0, 9999, 1, users * nodes),
        integers(-1, 3, users) * integers(1, 900, users).clamp(max=900),
        integers(0, 99, 1, users * nodes),
        integers(0, nodes, users),
        integers(0, 99, 1, users),
    )
    decided = decided._replace(cached=decided.cached.clamp(min=-1))
    chosen = [integers(0, 9999, 1, users) for _ in range(nodes - 2)]
    return Round(decided, integers(0, 9999, 1, users * nodes), chosen, result)


def tensors(kind: str, values) -> Make:
    """Return a named tuple of the op, whose fields are read under their names."""
    return Make(
        f"{OP}:{kind}",
        *(
            In(each, dtype, read=f"{kind} {i}")
            for i, (each, dtype) in enumerate(zip(values, FIELDS[kind], strict=True))
        ),
    )


def calls_of(case: Round) -> list[Call]:
    """Return the calls of a round, on tensors that held other numbers before."""
    users, nodes = case.result.shape[0], len(case.chosen) + 2
    flat, row = torch.full((1, users * nodes), 77), torch.full((1, users), 77)
    decided, step = tensors("Decided", case.decided), tensors("DraftStep", (row, row[0], row))
    chain = tensors("Chain", (flat, row[0], flat, flat.view(users, nodes)))
    calls = [Call(f"{OP}:begin_chain", decided, words(case.choices, "uint32"), step, chain)]
    for node, tokens in enumerate(case.chosen, start=2):
        calls.append(Call(f"{OP}:append_token", words(tokens, "uint32"), node, chain))
    return [*calls, Call(f"{OP}:take_result", words(case.result), decided)]


@pytest.mark.sim
def test_what_one_step_decides_is_what_the_next_one_reads(sim_device):
    """Rows shorter and longer than what one transfer aligns to, one user and eight, a chain of one drafted token."""
    cases = [drawn(1, 1, 2), drawn(2, 8, 4), drawn(3, 2, 16)]
    assert any((case.decided.cached < 0).any() for case in cases)
    for case in cases:
        told: dict = {}
        for found in run_ops(sim_device("2x1"), calls_of(case)):
            told |= found  # what a later call reads is what an earlier one left
        step, chain = begin_chain_reference(case.decided, case.choices, len(case.chosen) + 2)
        for node, tokens in enumerate(case.chosen, start=2):
            chain = append_token_reference(tokens, node, chain)
        for right in (step, chain, take_result_reference(case.result, case.decided)):
            for index, name in enumerate(right._fields):
                kind = type(right).__name__
                assert torch.equal(told[f"{kind} {index}"], getattr(right, name).long()), (kind, name)


def test_what_is_no_chain_is_refused():
    pytest.importorskip("ttnn")
    from tt_kernels.draft_round.op import Chain, append_token

    rows = torch.zeros(1, 4)
    with pytest.raises(UnsupportedError, match="chain.rows must be a ttnn.Tensor, it is a Tensor"):
        append_token(torch.zeros(1, 1), 2, Chain(rows, rows, rows, rows))
