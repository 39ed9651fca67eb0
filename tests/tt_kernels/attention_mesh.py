# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of the attention ops on a mesh, simulated or of boards: two rows are the ranks of pairs, the chips of a row
share the heads."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from loguru import logger

from tests.support.run_op import Call, In, Make, gathered, gathered_words, priorities, run_ops, words
from tests.tt_kernels.attention import Case, Wanted, wanted
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED

# On each chip's grid of 2x2: the core that decides and the exchange core; workers are on the others.
GRID, OUTPUT, EXCHANGE = "2x2", (0, 1), (1, 1)
TOKEN = 7
PATIENCE_S, IMPATIENCE_S = 2e-3, 3e-5
HIT = 100.0  # a threshold that accepts all


class MeshCall(NamedTuple):
    """told: the priorities of both ranks, as all chips know them or by chip; None for calls without a peer."""

    at: Sequence[int]
    threshold: float
    told: Sequence[Sequence[int]] | Mapping[tuple[int, int], Sequence[Sequence[int]]] | None = None
    parents: list[list[int]] | None = None
    reset: bool = False
    links: Sequence[tuple[str, dict]] = ()


def sent_by(rank: int, users: int) -> list[list[int]]:
    """Return priorities by which a rank sends."""
    return [[HOLDS_EXACT if row == rank else HOLDS_GUESS] * users for row in (0, 1)]


def run_mesh(
    worker, shape: tuple[int, int], case: Case, parts, calls: Sequence[MeshCall], patience_s: float = PATIENCE_S
) -> list[dict[str, Any]]:
    """Return each call's results by chip, with "tokens": what the token guard makes of TOKEN after it."""
    inputs = case.inputs(*parts, split=True)
    pairs = Make("tt_kernels.common.peer:ChipPairs", 0, EXCHANGE, device=True)
    group = Make("tt_kernels.common.tp_group:TpGroup", 1, OUTPUT, timeout_s=patience_s, device=True)
    states = [pairs] * (shape[0] == 2) + [group] * (shape[1] > 1)
    both = []
    for call in calls:
        options: dict[str, Any] = {"threshold": call.threshold, "priority": priorities(HOLDS_EXACT_UNVERIFIED)}
        if call.told is not None:
            if isinstance(call.told, Mapping):
                rows = torch.cat([gathered_words(call.told[row, column]) for row, column in sorted(call.told)])
                known = In(rows.view(*shape, 2, -1), "uint32", split=(0, 1))
            else:
                known = gathered(*call.told)
            options["peer"] = Make("tt_kernels.common.speculative_chips:Peer", pairs, known, patience_s)
        if shape[1] > 1:
            options["tp_group"] = group
        made = case.call("speculate", inputs, call.at, call.parents, **options)
        made.reset, made.links = call.reset, call.links
        tokens = words([[TOKEN] * case.users], "uint32", read="tokens")
        both += [made, Call("tt_kernels.token_guard.op:guard_tokens", tokens, states)]
    results = run_ops(worker, both)
    return [found | {"tokens": after["tokens"]} for found, after in zip(results[::2], results[1::2], strict=True)]


def held(case: Case, found: dict[str, Any]) -> dict[tuple[int, int], list[int]]:
    """Return the users' priorities by chip."""
    return {place: row.flatten()[: case.users].tolist() for place, row in found["priority"].items()}


def check_senders(case: Case, found: dict[str, Any], row: int, right: Wanted, columns: int = 1) -> None:
    """Assert that every chip of a row has its heads' results, bit by bit the numbers of all heads, and the oracle's
    priorities."""
    heads = case.heads // columns
    numbers = []
    for column in range(columns):
        for name in ("exact", "guess"):
            mine = case.rows(found[name][row, column]).double()
            expected = getattr(right, name)[column * heads : (column + 1) * heads]
            torch.testing.assert_close(mine, expected, atol=0.03, rtol=0.02)
        numbers.append(torch.stack([found[name][row, column].flatten() for name in ("distance_sq", "norm_sq")]))
        torch.testing.assert_close(numbers[-1][1].double(), right.norm_sq, rtol=0.01, atol=0)
        assert held(case, found)[row, column] == right.priorities, f"chip {row, column}"
    assert all(torch.equal(each, numbers[0]) for each in numbers)


def check_both(case: Case, found: dict[str, Any], parts, call: MeshCall, sender: int, columns: int = 1) -> list[int]:
    """Assert a call that went well: the sender's results and decisions, and that the receiver has its guess bit by bit.
    Returns the sender's priorities."""
    assert not any(found["errors"].values())
    right = wanted(case, *parts, call.at, call.parents, threshold=call.threshold)
    check_senders(case, found, sender, right, columns)
    for column in range(columns):
        sent, received = (sender, column), (1 - sender, column)
        assert torch.equal(found["exact"][received], found["guess"][sent])
        assert case.trees or torch.equal(found["guess"][received], found["guess"][sent])
        assert not found["norm_sq"][received].any() and not found["distance_sq"][received].any()
        assert held(case, found)[received] == [YIELDED if position < 0 else HOLDS_GUESS for position in call.at]
    assert all((tokens == TOKEN).all() for tokens in found["tokens"].values())
    return right.priorities


# Chips of a row, on one worker each, with a head of their own.
ROW = Case(1, 2, 2, 64, 96, users=3, grid=(2, 2))
ROW_AT = [95, 70, 40]  # the last is bypassed


def row_parts(case: Case = ROW) -> list[torch.Tensor]:
    """Return values of the first chips' heads that lie close together, of the others' far apart: by its own head alone
    the first would accept what the second rejects."""
    q, k, v = case.random(7)
    v[:, : case.kv_heads // 2] = (2 + 0.1 * v[:, : case.kv_heads // 2]).bfloat16()
    return [q, k, v]


def thresholds_between(case: Case, parts, at: Sequence[int], parents=None) -> list[float]:
    """Return thresholds around the ratio of the first user over all heads, clear of the tolerance."""
    right = wanted(case, *parts, at, parents)
    ratio = float((right.distance_sq[0] / right.norm_sq[0]).sqrt())
    heads = [part[:, : case.nodes].flatten(1).norm(dim=1) for part in (right.guess - right.exact, right.exact)]
    first, *_, last = (heads[0] / heads[1]).tolist()
    logger.info(f"ratio {ratio}, of the first and the last head {first}, {last}")
    assert first < 0.8 * ratio and last > 1.2 * ratio, "the heads of a user must disagree"
    return [0.97 * ratio, 1.03 * ratio]


def check_two_rows(worker) -> None:
    """Two rows of two chips decide as the oracle over all heads, whichever row sends: on simulated chips and boards."""
    parts = row_parts()
    low, high = thresholds_between(ROW, parts, ROW_AT)
    calls = [
        MeshCall(ROW_AT, high, [[HOLDS_EXACT] * 3, [YIELDED] * 3]),
        MeshCall(ROW_AT, low, [[YIELDED] * 3, [HOLDS_GUESS] * 3]),
        MeshCall(ROW_AT, high, [[HOLDS_GUESS] * 3, [HOLDS_EXACT] * 3]),
    ]
    results = run_mesh(worker, (2, 2), ROW, parts, calls)
    decided = [
        check_both(ROW, found, parts, call, sender, 2)[0]
        for call, found, sender in zip(calls, results, (0, 1, 1), strict=True)
    ]
    assert decided == [YIELDED, HOLDS_EXACT, YIELDED]
