# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What TP groups are given and what they must find: for simulated meshes and boards."""

from __future__ import annotations

import torch
from loguru import logger

from tests.tt_kernels.speculative_flash_decode.flash_decode_mesh import MeshCall, MeshFound
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import Case
from tt_kernels.common.priority import HOLDS_GUESS
from tt_kernels.speculative_flash_decode.reference import sender_priorities, speculative_flash_decode_reference

# A head of its own a chip, on one worker.
CASE = Case(2, 2, 64, 96, 32, users=3, workers=1, grid=(2, 2))
POSITIONS = [95, 70, 40]  # the last is bypassed
PATIENCE_S, IMPATIENCE_S = 2e-3, 3e-5
PLACES = [(0, 0), (0, 1), (1, 0), (1, 1)]


def inputs(case: Case = CASE):
    """Values of the first chip's head that lie close together, of the second's far apart: by its own head alone the
    first would accept what the second rejects."""
    q, k, v = case.random(7)
    half = case.kv_heads // 2
    v[:, :half] = (2 + 0.1 * v[:, :half]).bfloat16()
    return q, k, v


def reference_of(case: Case, positions: list[int]):
    return speculative_flash_decode_reference(*inputs(case), positions, chunk_size=case.chunk_size)


def thresholds_between(case: Case, positions: list[int]) -> list[float]:
    """Around the ratio of the first user over all heads, clear of the tolerance."""
    reference = reference_of(case, positions)
    ratio = float((reference.distance_sq[0] / reference.norm_sq[0]).sqrt())
    heads = (reference.guess - reference.exact)[0, 0].norm(dim=-1) / reference.exact[0, 0].norm(dim=-1)
    first, last = heads[0], heads[-1]
    logger.info(f"ratio {ratio}, of heads {heads.tolist()}")
    assert first < 0.8 * ratio and last > 1.2 * ratio, "the heads of a user must disagree"
    return [0.97 * ratio, 1.03 * ratio]


def check_sender_group(found: MeshFound, row: int, case: Case, call: MeshCall, columns: int = 2) -> list[int]:
    """Every chip of the group has its heads' results, the numbers of all heads and the same priorities: the
    reference's."""
    reference = reference_of(case, call.positions)
    expected = sender_priorities(
        reference.distance_sq,
        reference.norm_sq,
        call.positions,
        chunk_size=case.chunk_size,
        threshold=call.threshold,
    )
    heads = case.heads // columns
    numbers = []
    for column in range(columns):
        outputs = found.outputs[row, column]
        mine = slice(column * heads, (column + 1) * heads)
        for name in ("exact", "guess"):
            torch.testing.assert_close(
                outputs[name].double(), getattr(reference, name)[:, :, mine], atol=0.03, rtol=0.02
            )
        numbers.append(torch.stack([outputs[name].flatten() for name in ("distance_sq", "norm_sq")]))
        torch.testing.assert_close(outputs["norm_sq"].flatten().double(), reference.norm_sq, rtol=0.01, atol=0)
        assert found.priorities[row, column] == expected, f"chip {row, column} at threshold {call.threshold}"
    assert all(torch.equal(each, numbers[0]) for each in numbers), "bit by bit the same sums on every chip"
    return expected


def priorities_told(first: int, second: int, users: int = CASE.users) -> dict:
    return {place: [[first] * users, [second] * users] for place in PLACES}


def check_both_groups(found: MeshFound, call: MeshCall, sender: int) -> list[int]:
    assert found.messages == (None, None)
    decided = check_sender_group(found, sender, CASE, call)
    for column in (0, 1):
        sent, received = found.outputs[sender, column], found.outputs[1 - sender, column]
        assert torch.equal(received["exact"], sent["guess"]) and torch.equal(received["guess"], sent["guess"])
        assert found.priorities[1 - sender, column] == [HOLDS_GUESS] * CASE.users
    return decided
