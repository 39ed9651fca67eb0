# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a call whose peer is silent, late, elsewhere, or of another mind: on a virtual pair of one chip,
whose faults are cheap, and between two simulated chips.

Every call ends with the status of the fault on each rank. All of the op's are here but 5 (both priorities are 0), which
only device_exchange gives: this op takes its priorities from there, and rank 0 sends on any tie.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import torch

from tests.support.run_op import Call, Make, gathered, priorities, run_ops, words
from tests.tt_kernels.attention import CHIP, EXCHANGE, FLASH, GRID, HIT, SHORT, Case, wanted
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, UNKNOWN, YIELDED

pytestmark = pytest.mark.sim

CASE = Case(1, 2, 1, 64, 96, users=2, workers=1)
CORES = ((3, 0), (3, 1))  # the exchange cores
# The clock of a simulated rank runs on while the other computes; a silent peer must not cost a real second. The last is
# longer than ranks start apart, and shorter than a guess takes.
PATIENCE_S, IMPATIENCE_S, SHORT_S = 2e-3, 1e-5, 4e-6
BEFORE = HOLDS_EXACT_UNVERIFIED  # what no rank writes at these positions
REASONS = {
    1: "the peer did not arrive",
    2: "the peer arrived but its data did not",
    3: "the fabric link took no packet",
    4: "the peer is in another call",
    6: "both ranks took the same role: they disagree on the gathered priorities",
    7: "the ranks skip different users",
    8: "the peer did not acknowledge the data",
    9: "the exchange before this call failed on this rank",
}


def pair_call(parts, pairs, at, told, patience_s=(PATIENCE_S,) * 2, running=(0, 1)) -> Call:
    """Return a call of a virtual pair on the rows of the chip, which accepts every guess. at, told: what each rank is
    given; told: the priorities of both ranks."""
    pair = "perf.lib.virtual_pair"
    ranks = []
    for rank in (0, 1):
        own = priorities(BEFORE, f"priority {rank}")
        config = Make(f"{FLASH}:ProgramConfig", (4, 1), (0, rank), workers_per_head=1)
        given = (*parts, words(at[rank]), own, gathered(*told[rank]), config, patience_s[rank])
        ranks.append(Make(f"{pair}:RankInputs", *given))
    options = {"chunk_size": 32, "guess_range": SHORT, "threshold": HIT, "running": running}
    return Call(f"{pair}:speculative_flash_decode_pair", ranks, pairs, **options)


def core_pair() -> Make:
    return Make("perf.lib.virtual_pair:CorePair", CORES, device=True)


def rows_after(found: dict[str, Any]) -> list[list[int]]:
    return [found[f"priority {rank}"].flatten()[: CASE.users].tolist() for rank in (0, 1)]


# ------------------------------------------------------------------------------ faults of a virtual pair

BOTH = [64, -1]
ROWS = {0: [[HOLDS_EXACT] * 2, [YIELDED] * 2], 1: [[YIELDED] * 2, [HOLDS_EXACT] * 2]}  # by who sends
SENDS, RECEIVES = 1, 2  # peer::Role
KEPT, NOTHING = [HOLDS_EXACT, YIELDED], [YIELDED, YIELDED]


class Fault(NamedTuple):
    """at, told: of each rank. heard: call, role and users that rank 0 finds of rank 1 in its mailbox. ends: of each
    rank (status, call), its priorities (None: nothing is said of them), and whether it has its own results."""

    told: tuple[list, list]
    ends: tuple[tuple, tuple]
    at: tuple[list[int], list[int]] = (BOTH, BOTH)
    running: tuple[int, ...] = (0, 1)
    patience_s: tuple[float, float] = (PATIENCE_S, PATIENCE_S)
    heard: tuple[int, int, int] | None = None


IMPATIENT = (IMPATIENCE_S,) * 2
SILENT = ((0, 0), None, False)
FAULTS = {
    "two senders leave each other alone": Fault((ROWS[0], ROWS[1]), (((6, 1), KEPT, True), ((6, 1), KEPT, True))),
    "two receivers end at once": Fault((ROWS[1], ROWS[0]), (((6, 1), NOTHING, False), ((6, 1), NOTHING, False))),
    # They agree on who sends, which only the gathered rows decide, but the guess would be of other users.
    "members that skip different users": Fault(
        (ROWS[0], ROWS[0]), (((7, 1), KEPT, True), ((7, 1), NOTHING, False)), at=([70, -1], [-1, 70])
    ),
    "a silent receiver": Fault((ROWS[0], ROWS[0]), (((1, 1), KEPT, True), SILENT), running=(0,), patience_s=IMPATIENT),
    "a silent sender": Fault(
        (ROWS[0], ROWS[0]), (SILENT, ((1, 1), NOTHING, False)), running=(1,), patience_s=IMPATIENT
    ),
    "a sender that sends no data": Fault(
        (ROWS[1], ROWS[1]), (((2, 1), NOTHING, False), SILENT), running=(0,), patience_s=IMPATIENT, heard=(1, SENDS, 1)
    ),
    "a sender in another call": Fault(
        (ROWS[1], ROWS[1]), (((4, 1), NOTHING, False), SILENT), running=(0,), patience_s=IMPATIENT, heard=(3, SENDS, 1)
    ),
    "a receiver in another call": Fault(
        (ROWS[0], ROWS[0]), (((4, 1), KEPT, False), SILENT), running=(0,), patience_s=IMPATIENT, heard=(3, RECEIVES, 1)
    ),
    "a receiver that does not acknowledge": Fault(
        (ROWS[0], ROWS[0]), (((8, 1), KEPT, False), SILENT), running=(0,), patience_s=IMPATIENT, heard=(1, RECEIVES, 1)
    ),
    # The sender has written and confirmed its guess to a receiver that had given up on it: no acknowledgement, no hit.
    # Both rows say that the sender holds the layer.
    "a receiver out of patience": Fault(
        (ROWS[0], ROWS[0]), (((8, 1), KEPT, True), ((2, 1), NOTHING, False)), patience_s=(PATIENCE_S, SHORT_S)
    ),
    # The peer, which knows nothing of that, gives up on it.
    "a member that goes on alone after a failed exchange": Fault(
        ([[HOLDS_EXACT] * 2, [UNKNOWN] * 2], ROWS[1]),
        (((9, 0), KEPT, True), ((1, 1), None, False)),
        patience_s=IMPATIENT,
    ),
    "a member that holds nothing after a failed exchange": Fault(
        ([[YIELDED] * 2, [UNKNOWN] * 2], ROWS[1]),
        (((9, 0), NOTHING, False), ((1, 1), KEPT, True)),
        patience_s=IMPATIENT,
    ),
}


def check_own_results(ranks, rank: int, at: Sequence[int]) -> None:
    """Assert that the rank has its own exact result and guess, whatever its peer did."""
    right = wanted(CASE, *CASE.random(6), at, guess_range=SHORT)
    for name in ("exact", "guess"):
        mine = CASE.rows(ranks[rank][name]).double()
        torch.testing.assert_close(mine, getattr(right, name), atol=0.03, rtol=0.02, msg=f"{rank} {name}")


def test_a_fault_of_a_member_is_told_and_leaves_the_layer_to_one_rank(sim_device):
    """After a silent peer a call gives up at once, as the state says that there is none; then all is well after a
    reset."""
    inputs, put = CASE.inputs(*CASE.random(6)), "tests.tt_kernels.compute_gate.programs:put_into_mailbox"
    calls: list[Call] = []
    expected: list[tuple[str, Fault | None]] = []
    for name, fault in FAULTS.items():
        pairs = core_pair()
        if fault.heard:
            calls.append(Call(put, pairs, *fault.heard))
            expected.append((name, None))
        silent = len(fault.running) < 2 and not fault.heard
        for _ in range(1 + silent):
            calls.append(pair_call(inputs, pairs, fault.at, fault.told, fault.patience_s, fault.running))
            expected.append((name, fault))
        if silent:
            calls.append(pair_call(inputs, pairs, (BOTH, BOTH), (ROWS[0], ROWS[0])))
            calls[-1].reset = True
            expected.append((f"after {name}", None))
    for (name, fault), found in zip(expected, run_ops(sim_device(CHIP), calls), strict=True):
        if fault is not None:
            told = [
                f"rank {rank} (core (3, {rank})) gave up in call {call}: {REASONS[status]}"
                for rank, ((status, call), *_) in enumerate(fault.ends)
                if status
            ]
            assert found["errors"] == {"CorePair": "; ".join(told)}, name
            for rank, (_, held, own) in enumerate(fault.ends):
                assert held is None or rows_after(found)[rank] == held, (name, rank)
                if own:
                    check_own_results(found["ranks"], rank, fault.at[rank])
        elif "ranks" in found:
            assert found["errors"] == {"CorePair": None} and rows_after(found) == [NOTHING, [HOLDS_GUESS, YIELDED]], (
                name
            )
            assert torch.equal(found["ranks"][1]["exact"], found["ranks"][0]["guess"]), name


# ------------------------------------------------------------------------------ faults between chips

LINKED = Case(1, 2, 1, 64, 96, workers=1, grid=(2, 2))


def linked_call(pairs: Make, sender: int = 0, patience_s: float = 1e-4, links=(), reset: bool = True) -> Call:
    """Return a call of two chips that a chip sends, which accepts every guess."""
    known = gathered(*([HOLDS_EXACT if row == sender else YIELDED] for row in (0, 1)))
    peer = Make("tt_kernels.common.speculative_chips:Peer", pairs, known, patience_s)
    options = {"threshold": HIT, "priority": priorities(BEFORE), "peer": peer}
    call = LINKED.call("speculate", LINKED.inputs(*LINKED.random(7)), [95], **options)
    call.links, call.reset = links, reset
    return call


def chip_pairs() -> Make:
    return Make("tt_kernels.common.peer:ChipPairs", 0, EXCHANGE, device=True)


def check_linked(found: dict[str, Any], sender: int = 0, status: int = 0, call: int = 1) -> None:
    """Assert that the receiver has the sender's guess; or with a status that both gave up with it in that call, and
    the sender keeps its own results."""
    told = [f"chip ({chip}, 0) gave up in call {call}: {REASONS[status]}" for chip in (0, 1) if status]
    assert found["errors"] == {"ChipPairs": "; ".join(told) or None}
    held = [int(found["priority"][chip, 0].flatten()[0]) for chip in (sender, 1 - sender)]
    assert held == ([HOLDS_EXACT, YIELDED] if status else [YIELDED, HOLDS_GUESS])
    right = wanted(LINKED, *LINKED.random(7), [95])
    for part in ("exact", "guess"):
        mine = LINKED.rows(found[part][sender, 0]).double()
        torch.testing.assert_close(mine, getattr(right, part), atol=0.03, rtol=0.02, msg=part)
    if not status:
        assert torch.equal(found["exact"][1 - sender, 0], found["guess"][sender, 0])


def test_a_cut_after_a_call_is_for_the_next_which_ends_until_the_link_takes_no_more(sim_mesh):
    """Before each of these calls the cable is cut already. What is lost is never taken back, so that in the end the
    router has no room. Afterwards the mesh closes and opens again, and carries a guess."""
    worker, pairs, soon_s = sim_mesh((2, 1), GRID), chip_pairs(), 2e-5
    cut = linked_call(pairs, patience_s=soon_s, links=[("cut", {})], reset=False)
    try:
        calls = [linked_call(pairs), cut, *(linked_call(pairs, patience_s=soon_s) for _ in range(10))]
        first, *others = run_ops(worker, calls)
        check_linked(first)
        statuses = [max(state.status for state in found["states"]["ChipPairs"]) for found in others]
        assert statuses == sorted(statuses) and statuses[0] == 1 and {*statuses} == {1, 3}
        for number, (found, status) in enumerate(zip(others, statuses, strict=True)):
            check_linked(found, status=status, call=1 if number else 2)
        worker.links.mend()
        worker.reopen()
        check_linked(run_ops(worker, [linked_call(chip_pairs(), 1)])[0], 1)
    except BaseException:
        worker.kill()
        raise
