# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A pair of simulated chips: the guess over the fabric, and what cables do to it."""

from __future__ import annotations

import pytest
import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_mesh import (
    GRID,
    TOKEN,
    MeshCall,
    MeshFound,
    mesh_body,
)
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import Case
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED
from tt_kernels.speculative_flash_decode.reference import speculative_flash_decode_reference
from tt_kernels.token_guard.op import FAILED

pytestmark = pytest.mark.sim

LIMIT_S = 900
CASE = Case(2, 2, 64, 96, 32, users=2, workers=1, grid=(2, 2))
POSITIONS = [95, 40]  # the last is bypassed
HIT = 100.0
PATIENCE_S, IMPATIENCE_S = 2e-3, 3e-5
KEPT, GIVEN = [HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED], [YIELDED, HOLDS_EXACT_UNVERIFIED]


def call(sender: int = 0, threshold: float = HIT, reset: bool = False) -> MeshCall:
    rows = [[HOLDS_GUESS] * CASE.users, [HOLDS_GUESS] * CASE.users]
    rows[sender] = [HOLDS_EXACT] * CASE.users
    return MeshCall(POSITIONS, threshold, {(0, 0): rows, (1, 0): rows}, reset)


def check_results(found: MeshFound, sender: int) -> None:
    """The sender's results are the reference's, and the receiver has its guess."""
    reference = speculative_flash_decode_reference(*CASE.random(7), POSITIONS, chunk_size=CASE.chunk_size)
    sent, received = found.outputs[sender, 0], found.outputs[1 - sender, 0]
    for name in ("exact", "guess"):
        torch.testing.assert_close(sent[name].double(), getattr(reference, name), atol=0.03, rtol=0.02)
        assert torch.equal(received[name], sent["guess"])


def test_either_chip_sends(sim_mesh):
    calls = [call(0), call(1), call(1, threshold=0.0), call(0)]
    results = sim_mesh((2, 1), GRID).run(mesh_body, CASE, *CASE.random(7), calls, PATIENCE_S, timeout=LIMIT_S)
    for found, sender, outcome in zip(results, (0, 1, 1, 0), (GIVEN, GIVEN, KEPT, GIVEN), strict=True):
        assert found.messages == (None, None)
        check_results(found, sender)
        assert found.priorities[sender, 0] == outcome
        assert found.priorities[1 - sender, 0] == [HOLDS_GUESS] * CASE.users
        assert all(tokens == [TOKEN] * CASE.users for tokens in found.tokens.values())


@pytest.mark.parametrize("sender", [0, 1])
def test_a_cut_cable_leaves_the_layer_to_the_sender(sim_mesh, sender):
    worker = sim_mesh((2, 1), GRID)
    try:
        worker.run(mesh_body, CASE, *CASE.random(7), [call(0)], PATIENCE_S, timeout=LIMIT_S)  # compiles
        worker.links.cut()
        calls = [call(sender), call(sender)]
        results = worker.run(mesh_body, CASE, *CASE.random(7), calls, IMPATIENCE_S, timeout=LIMIT_S)
    finally:
        worker.kill()
    for found in results:
        pairs, _ = found.messages
        assert "chip (0, 0) gave up in call 1" in pairs and "chip (1, 0) gave up in call 1" in pairs
        assert found.priorities[sender, 0] == KEPT
        assert found.priorities[1 - sender, 0] == [YIELDED] * CASE.users
        assert all(tokens == [FAILED] * CASE.users for tokens in found.tokens.values()), "no token leaves"


def test_a_late_acknowledgement_costs_a_hit_and_not_agreement(sim_mesh):
    """Cables so slow that the guess arrives in time and its acknowledgement does not: the receiver goes on with the
    guess, but both rows say that the sender holds the layer, and check() tells."""
    latency, patience_s = 30_000, 45e-6
    worker = sim_mesh((2, 1), GRID)
    try:
        worker.run(mesh_body, CASE, *CASE.random(7), [call(0)], PATIENCE_S, timeout=LIMIT_S)  # compiles
        worker.links.delay(latency)
        (found,) = worker.run(mesh_body, CASE, *CASE.random(7), [call(0)], patience_s, timeout=LIMIT_S)
    finally:
        worker.kill()
    assert found.messages[0] == "chip (0, 0) gave up in call 1: the peer did not acknowledge the data"
    check_results(found, 0)
    assert found.priorities == {(0, 0): KEPT, (1, 0): [HOLDS_GUESS] * CASE.users}
    assert found.tokens == {(0, 0): [FAILED] * CASE.users, (1, 0): [TOKEN] * CASE.users}
