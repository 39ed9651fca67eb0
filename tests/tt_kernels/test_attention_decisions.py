# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which guesses the attention ops accept: hits, misses, bypassed and skipped users, NaN in keys, a closed gate."""

import pytest
import torch
from loguru import logger

from tests.support.run_op import Make, priorities, run_ops, set_bits
from tests.tt_kernels.attention import CHIP, SHORT, Case, check_numbers, padded, random_tree, wanted
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, YIELDED

pytestmark = pytest.mark.sim


def crafted(case: Case, hits: list[bool]) -> list[torch.Tensor]:
    """Return caches whose middle has no weight for the users that are to hit, and nearly all of it for the others."""
    q, k, v = case.random(3)
    by_user = q.float().view(case.heads, case.users, case.nodes, -1)
    direction = by_user[:, :, 0].mean(0).sign()  # [users, head_dim]
    for user, hit in enumerate(hits):
        middle = slice(32, case.max_tokens - 64)
        k[user, :, middle] = (direction[user] * (-2 if hit else 2)).bfloat16()
        if hit:
            v[user, :, middle] = 0
    q = (direction[None, :, None] + 0.1 * by_user).bfloat16().view(q.shape)
    return [q, k, v]


@pytest.mark.parametrize("nodes", [1, 16])
def test_mixed_outcomes_of_several_users(sim_device, nodes):
    """A hit, a miss, a bypassed and a skipped user in one call; threshold 0 accepts nothing, a large one all."""
    case = Case(nodes, 2, 1, 64, 160, users=4, key_chunk=32, grid=(2, 1))
    parts = crafted(case, [True, False, True, True])
    last = case.max_tokens - max(nodes, 2)  # whose guess has the last two tiles
    at = [last, last, 62, -1]
    inputs = case.inputs(*parts)
    expected = {
        0.1: [YIELDED, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, YIELDED],
        0.0: [HOLDS_EXACT, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, YIELDED],
        100.0: [YIELDED, YIELDED, HOLDS_EXACT_UNVERIFIED, YIELDED],
    }
    calls = [case.call("speculate", inputs, at, threshold=each, priority=priorities(HOLDS_EXACT)) for each in expected]
    results = run_ops(sim_device(CHIP), calls)
    for (threshold, held), found in zip(expected.items(), results, strict=True):
        right = wanted(case, *parts, at, threshold=threshold)
        ratios = (right.distance_sq / right.norm_sq).sqrt()
        assert ratios[0] < 0.09 and ratios[1] > 0.11, "the cases must lie clear of the band around the threshold"
        assert found["priority"].flatten().tolist() == held + [0] * 28
        assert right.priorities == held
        check_numbers(case, found, right)
        assert torch.equal(found["exact"], results[0]["exact"]), "the threshold changes decisions only"
        for name in ("exact", "guess"):
            assert not case.rows(found[name])[:, 3 * nodes :].any(), "a skipped user's rows are zeros"


@pytest.mark.parametrize("nodes", [1, 8])
def test_decisions_follow_thresholds_close_to_the_ratio(sim_device, nodes):
    """Where the squared distance is a little below its bound a guess is accepted, a little above it is not: within 1 %
    of the bound for one token, and 2 % of the ratio for a tree, the decision may differ from the reference's."""
    near = 0.006 if nodes == 1 else 0.02
    case, at = Case(nodes, 4, 1, 64, 128, users=3, key_chunk=32, grid=(3, 1)), [95, 80, 64]
    q, k, v = case.random(7)
    # The narrower the values spread around one they have in common, the better the guess.
    common = torch.randn(1, 1, 1, case.head_dim, generator=torch.Generator().manual_seed(0))
    v = (common + torch.tensor([0.6, 1.5, 6.0]).view(-1, 1, 1, 1) * v).bfloat16()
    # Padding nodes, which see only themselves, do not count.
    parents = [padded(random_tree(max(1, nodes - 2), user, 0.0), nodes) for user in range(3)]
    right = wanted(case, q, k, v, at, parents, guess_range=SHORT)
    ratios = (right.distance_sq / right.norm_sq).sqrt().tolist()
    logger.info(f"ratios {ratios}")
    assert 0 < ratios[0] < ratios[1] / 1.5 < ratios[2] / 2.25, "each clear of the others' bands"
    thresholds = [factor * ratio for ratio in ratios for factor in (1 - near, 1 + near)]
    inputs = case.inputs(q, k, v)
    calls = [
        case.call("speculate", inputs, at, parents, threshold=each, priority=priorities(HOLDS_EXACT), guess_range=SHORT)
        for each in thresholds
    ]
    results = run_ops(sim_device(CHIP), calls)
    for threshold, found in zip(thresholds, results, strict=True):
        expected = [YIELDED if ratio < threshold else HOLDS_EXACT for ratio in ratios]
        assert found["priority"].flatten()[:3].tolist() == expected, (threshold, ratios)
    check_numbers(case, results[0], right)


# For one user after the other the bits of elements of keys, by token and element. The guess reads tokens 3 and 205 and
# not 100.
NO_NUMBERS = [
    {(3, 5): 0x7FC0},
    {(205, 63): 0xFFC0},
    {(100, 31): 0xFF81},
    {(100, 32): 0xFF80},
    {(205, 0): 0x7F80, (205, 32): 0xFF80},  # which do not cancel
    {(100, element): 0xFFFF for element in range(64)},
    {},
    {(211, 7): 0x7FC0},  # behind the position
]


@pytest.mark.parametrize(
    "heads, kv_heads, workers, cache",
    [
        (4, 1, 1, "bfloat8_b"),
        (32, 1, 2, "bfloat16"),
        pytest.param(8, 2, 3, "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_a_visible_key_that_is_no_number_is_never_accepted(sim_device, heads, kv_heads, workers, cache):
    """At a threshold that everything else passes; the guess and the exact result say so, and other users are well."""
    case = Case(1, heads, kv_heads, 64, 256, users=8, cache=cache, workers=workers, grid=(4, 2))
    q, k, v = case.random(3)
    for user, elements in enumerate(NO_NUMBERS):
        for place, bits in elements.items():
            set_bits(k, (user, kv_heads - 1, *place), bits)
    inputs, at = case.inputs(q, k, v), [210] * 8
    found, exact = run_ops(
        sim_device(CHIP),
        [
            case.call("speculate", inputs, at, threshold=1e3, priority=priorities(HOLDS_EXACT)),
            case.call("exact", inputs, at),
        ],
    )
    well = [user for user, elements in enumerate(NO_NUMBERS) if all(token > 210 for token, _ in elements)]
    assert found["priority"].flatten()[:8].tolist() == [YIELDED if u in well else HOLDS_EXACT for u in range(8)]
    of_guess = [0, 1, 4]
    for user in range(8):
        assert bool(found["norm_sq"].flatten()[user].isfinite()) == (user in well)
        for name, result in (("exact", found["exact"]), ("guess", found["guess"]), ("exact alone", exact["out"])):
            spoiled = user not in well and (name != "guess" or user in of_guess)
            assert bool(result[0, user].isfinite().all()) != spoiled, (user, name)


def test_a_closed_gate_does_not_stop_it(sim_device):
    """Closed before open: what a closed gate stopped cannot be hidden by results that another call left in memory."""
    case = Case(1, 2, 1, 64, 96)
    inputs = case.inputs(*case.random(7))
    calls = []
    for value in (YIELDED, HOLDS_EXACT):
        gate = Make("tt_kernels.compute_gate.op:skip_compute", priorities(value, None), users=1)
        calls.append(case.call("speculate", inputs, [95], threshold=0.0, priority=priorities(YIELDED), inside=gate))
    gate_closed, gate_open = run_ops(sim_device(CHIP), calls)
    assert gate_closed["exact"].any() and not torch.equal(gate_closed["exact"], gate_closed["guess"])
    for name in ("exact", "guess", "distance_sq", "norm_sq", "priority"):
        assert torch.equal(gate_open[name], gate_closed[name]), name
    assert gate_open["priority"].flatten()[0] == HOLDS_EXACT
