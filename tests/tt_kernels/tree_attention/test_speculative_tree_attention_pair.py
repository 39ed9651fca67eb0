# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tree attention with a guess between simulated chips: the receiver goes on with the guess, the rows decide alike, and
cables that are cut are told."""

from __future__ import annotations

import pytest
import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_mesh import GRID, TOKEN, MeshFound
from tests.tt_kernels.tree_attention.tree_mesh import TreeCall, mesh_body
from tests.tt_kernels.tree_attention.tree_programs import Case, binary, chain, padded, star
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.token_guard.op import FAILED
from tt_kernels.tree_attention.reference import speculative_tree_attention_reference

pytestmark = pytest.mark.sim

LIMIT_S = 900
GUESS = GuessRange.both_ends(32)
# Two workers beside the deciding core and the exchange core; 40 rows are two tiles.
CASE = Case(2, 1, 64, 192, 20, users=2, grid=(2, 2), workers=2)
PATIENCE_S, IMPATIENCE_S = 2e-3, 3e-5


def call(sender: int, threshold: float, prefix: list[int], parents: list[list[int]], **options) -> TreeCall:
    rows = [[HOLDS_GUESS] * CASE.users, [HOLDS_GUESS] * CASE.users]
    rows[sender] = [HOLDS_EXACT] * CASE.users
    return TreeCall(prefix, parents, threshold, rows, **options)


TREES = [chain(20), padded(binary(15), 20)]


def check_results(case: Case, found: MeshFound, sent: TreeCall, sender: int) -> None:
    """The sender's results and decisions are the reference's, and the receiver has its guess bit by bit."""
    q, k, v = case.random(7)
    wanted = speculative_tree_attention_reference(q, k, v, sent.prefix, sent.parents, GUESS, sent.threshold)
    columns = sorted({column for _, column in found.outputs})
    heads, rows = case.heads // len(columns), case.users * case.nodes
    for column in columns:
        mine, other = found.outputs[sender, column], found.outputs[1 - sender, column]
        for name in ("exact", "guess"):
            right = getattr(wanted, name)[:, column * heads : (column + 1) * heads]
            torch.testing.assert_close(mine[name][:, :, :rows].double(), right, atol=0.03, rtol=0.02)
        assert torch.equal(other["exact"], mine["guess"])
        torch.testing.assert_close(mine["norm_sq"].flatten().double(), wanted.norm_sq, rtol=0.01, atol=0)
        assert not other["norm_sq"].any() and not other["distance_sq"].any()
        expected = [
            YIELDED if accepted or prefix < 0 else HOLDS_EXACT_UNVERIFIED if bypassed else HOLDS_EXACT
            for prefix, accepted, bypassed in zip(sent.prefix, wanted.accepted, wanted.bypassed, strict=True)
        ]
        assert found.priorities[sender, column] == expected
        received = [YIELDED if prefix < 0 else HOLDS_GUESS for prefix in sent.prefix]
        assert found.priorities[1 - sender, column] == received


def test_either_chip_sends(sim_mesh):
    """Hits, a miss, a bypassed and a skipped user, in an order in which the sender changes."""
    calls = [
        call(0, 100.0, [150, 40], TREES),
        call(1, 0.0, [150, 97], TREES),
        call(1, 100.0, [-1, 150], [star(20), chain(20)]),
    ]
    results = sim_mesh((2, 1), GRID).run(mesh_body, CASE, *CASE.random(7), calls, GUESS, PATIENCE_S, timeout=LIMIT_S)
    for found, made, sender in zip(results, calls, (0, 1, 1), strict=True):
        assert found.messages == (None, None)
        check_results(CASE, found, made, sender)
        assert all(tokens == [TOKEN] * CASE.users for tokens in found.tokens.values())


@pytest.mark.slow
def test_two_groups_of_two_chips(sim_mesh):
    """A head on each chip of a TP group: decided by the norms over both."""
    case = Case(2, 2, 64, 192, 20, users=2, grid=(2, 2), workers=2)
    q, k, v = case.random(7)
    reference = speculative_tree_attention_reference(q, k, v, [150, 97], TREES, GUESS, 0.0)
    ratio = (reference.distance_sq[0] / reference.norm_sq[0]).sqrt().item()
    calls = [call(0, 1.03 * ratio, [150, 97], TREES), call(1, 0.97 * ratio, [150, 97], TREES)]
    results = sim_mesh((2, 2), GRID).run(mesh_body, case, q, k, v, calls, GUESS, PATIENCE_S, timeout=LIMIT_S)
    for found, made, sender in zip(results, calls, (0, 1), strict=True):
        assert found.messages == (None, None)
        check_results(case, found, made, sender)
    assert [found.priorities[sender, 0][0] for found, sender in zip(results, (0, 1), strict=True)] == [0, 2]


def test_a_cut_cable_leaves_the_layer_to_the_sender(sim_mesh):
    worker = sim_mesh((2, 1), GRID)
    whole, cut = call(1, 100.0, [150, 40], TREES), ("cut", {})
    broken = call(1, 100.0, [150, 40], TREES, links=[cut])
    try:
        (before,) = worker.run(mesh_body, CASE, *CASE.random(7), [whole], GUESS, PATIENCE_S, timeout=LIMIT_S)
        (found,) = worker.run(mesh_body, CASE, *CASE.random(7), [broken], GUESS, IMPATIENCE_S, timeout=LIMIT_S)
    finally:
        worker.kill()
    check_results(CASE, before, whole, 1)
    assert all(f"chip ({row}, 0) gave up in call 1" in found.messages[0] for row in (0, 1))
    assert found.priorities == {(0, 0): [YIELDED] * 2, (1, 0): [HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED]}
    assert all(tokens == [FAILED] * CASE.users for tokens in found.tokens.values()), "no token leaves"
