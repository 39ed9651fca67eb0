# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a call whose peer is silent, late, elsewhere, or of another mind: on a virtual pair of one chip,
whose faults are cheap, and between two simulated chips.

Every call ends with the status of the fault on each rank. All of the op's are here but 5 (both priorities are 0), which
only device_exchange gives: this op takes its priorities from there, and rank 0 sends on any tie.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch

from tests.support.run_op import Call, Make, gathered, priorities, run_ops, words
from tests.tt_kernels.attention import CHIP, EXCHANGE, FLASH, GRID, HIT, SHORT, Case, check_near, wanted
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
        known = {"priority": own, "gathered": gathered(*told[rank])}
        tensors = Make("tt_kernels.common.attention_program:Tensors", *parts, words(at[rank]), **known)
        ranks.append(Make(f"{pair}:RankInputs", tensors, config, patience_s[rank]))
    options = {"chunk_size": 32, "guess_range": SHORT, "threshold": HIT, "running": running}
    return Call(f"{pair}:speculative_flash_decode_pair", ranks, pairs, **options)


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


def alone(rows: list, end: tuple, heard: tuple[int, int, int] | None = None) -> Fault:
    """Return a fault of rank 0 whose peer takes no part."""
    return Fault((rows, rows), (end, SILENT), running=(0,), patience_s=IMPATIENT, heard=heard)


FAULTS = {
    "two senders leave each other alone": Fault((ROWS[0], ROWS[1]), (((6, 1), KEPT, True), ((6, 1), KEPT, True))),
    "two receivers end at once": Fault((ROWS[1], ROWS[0]), (((6, 1), NOTHING, False), ((6, 1), NOTHING, False))),
    # They agree on who sends, which only the gathered rows decide, but the guess would be of other users.
    "members that skip different users": Fault(
        (ROWS[0], ROWS[0]), (((7, 1), KEPT, True), ((7, 1), NOTHING, False)), at=([70, -1], [-1, 70])
    ),
    "a silent receiver": alone(ROWS[0], ((1, 1), KEPT, True)),
    "a silent sender": Fault(
        (ROWS[0], ROWS[0]), (SILENT, ((1, 1), NOTHING, False)), running=(1,), patience_s=IMPATIENT
    ),
    "a sender that sends no data": alone(ROWS[1], ((2, 1), NOTHING, False), (1, SENDS, 1)),
    "a sender in another call": alone(ROWS[1], ((4, 1), NOTHING, False), (3, SENDS, 1)),
    "a receiver in another call": alone(ROWS[0], ((4, 1), KEPT, False), (3, RECEIVES, 1)),
    "a receiver that does not acknowledge": alone(ROWS[0], ((8, 1), KEPT, False), (1, RECEIVES, 1)),
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


def test_a_fault_of_a_member_is_told_and_leaves_the_layer_to_one_rank(sim_device):
    """After a silent peer a call gives up at once, as the state says that there is none; then all is well after a
    reset."""
    inputs, put = CASE.inputs(*CASE.random(6)), "tests.tt_kernels.compute_gate.programs:put_into_mailbox"
    calls: list[Call] = []
    expected: list[tuple[str, Fault | None]] = []
    for name, fault in FAULTS.items():
        pairs = Make("perf.lib.virtual_pair:CorePair", CORES, device=True)
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
                if own:  # whatever its peer did
                    right = wanted(CASE, *CASE.random(6), fault.at[rank], guess_range=SHORT)
                    check_near(CASE, found["ranks"][rank], right)
        elif "ranks" in found:
            assert found["errors"] == {"CorePair": None} and rows_after(found) == [NOTHING, [HOLDS_GUESS, YIELDED]], (
                name
            )
            assert torch.equal(found["ranks"][1]["exact"], found["ranks"][0]["guess"]), name


# ------------------------------------------------------------------------------ faults between chips

LINKED = Case(1, 2, 1, 64, 96, workers=1, grid=(2, 2))
ONE = {0: [[HOLDS_EXACT], [YIELDED]], 1: [[YIELDED], [HOLDS_EXACT]]}  # by who sends
SOON_S = 2e-5
REGISTERS = 0xFFB00000  # from here on packets are the routers' own credits
LATENCY = 6000  # of a cable so slow that each packet can be met on its way


class Step(NamedTuple):
    """One call."""

    sender: int = 0
    patience_s: float = 1e-4
    reset: bool = True
    links: Sequence[tuple[str, dict]] = ()


def run_steps(worker, *steps: Step) -> list[dict[str, Any]]:
    """Run steps on one pair, whatever becomes of them."""
    inputs, pairs = LINKED.inputs(*LINKED.random(7)), Make("tt_kernels.common.peer:ChipPairs", 0, EXCHANGE, device=True)
    calls = []
    for step in steps:
        peer = Make("tt_kernels.common.speculative_chips:Peer", pairs, gathered(*ONE[step.sender]), step.patience_s)
        options: dict[str, Any] = {"peer": peer, "links": step.links, "reset": step.reset}
        calls.append(LINKED.call("speculate", inputs, [95], threshold=HIT, priority=priorities(BEFORE), **options))
    return run_ops(worker, calls)


class Ending(NamedTuple):
    """What a call ends in. statuses, priorities: of both chips; calls: that gave up; exact: chips with their own
    results; guess: the chip that has its peer's guess."""

    statuses: tuple[int, int]
    priorities: tuple[int, int]
    exact: tuple[int, ...]
    guess: int | None = None
    calls: tuple[int, int] = (1, 1)


WHOLE = {0: Ending((0, 0), (YIELDED, HOLDS_GUESS), (0,), 1), 1: Ending((0, 0), (HOLDS_GUESS, YIELDED), (1,), 0)}
NOT_MET = Ending((1, 1), (HOLDS_EXACT, YIELDED), (0,))  # chip 0 sends
LATE = Ending((8, 2), (HOLDS_EXACT, YIELDED), (0,))


def check_ending(found: dict[str, Any], ends: Ending) -> None:
    told = [
        f"chip ({chip}, 0) gave up in call {ends.calls[chip]}: {REASONS[status]}"
        for chip, status in enumerate(ends.statuses)
        if status
    ]
    assert found["errors"] == {"ChipPairs": "; ".join(told) or None}
    held = [found["priority"][chip, 0].flatten()[0] for chip in (0, 1)]
    assert held == list(ends.priorities)
    right = wanted(LINKED, *LINKED.random(7), [95])
    for chip in ends.exact:
        check_near(LINKED, found, right, (chip, 0))
    if ends.guess is not None:
        assert torch.equal(found["exact"][ends.guess, 0], found["guess"][1 - ends.guess, 0])


@contextmanager
def whole_again(worker) -> Iterator[None]:
    """Afterwards the mesh closes and opens again, and carries a guess."""
    try:
        yield
        worker.links.mend()
        worker.reopen()
        check_ending(run_steps(worker, Step(1))[0], WHOLE[1])
    except BaseException:
        worker.kill()
        raise


@pytest.fixture(scope="module")
def landings(sim_mesh) -> tuple[int, int, int]:
    """Return the cycles from the launch until the two have arrived, the guess is there, and its acknowledgement."""
    worker = sim_mesh((2, 1), GRID)
    (found,) = run_steps(worker, Step(links=[("delay", {"latency": LATENCY}), ("record", {})]))
    worker.links.mend()
    check_ending(found, WHOLE[0])
    packets = [packet for packet in found["deliveries"] if packet.address < REGISTERS]
    guess = [packet.cycle for packet in packets if packet.bytes > 2048]
    arrivals = [packet.cycle for packet in packets if packet.cycle < guess[0]]
    assert len(arrivals) == 2 and len(guess) == 1 and packets[-1].source.startswith("chip 1")
    return tuple(cycle - found["start"] for cycle in (max(arrivals), guess[0], packets[-1].cycle))


@pytest.mark.parametrize(
    ("landing", "late", "ends"),
    [
        pytest.param(0, False, NOT_MET, marks=pytest.mark.slow),
        (1, False, LATE),
        (2, False, Ending((8, 0), (HOLDS_EXACT, HOLDS_GUESS), (0,), 1)),
        pytest.param(0, True, NOT_MET, marks=pytest.mark.slow),
        (1, True, LATE),
    ],
    ids=["arrivals lost", "guess lost", "acknowledgement lost", "arrivals late", "guess late"],
)
def test_what_is_on_its_way_is_lost_or_late(sim_mesh, landings, landing, late, ends):
    """A cut loses it. Late: from before it is sent on packets take 60,000 cycles, and the others wait for 30,000."""
    worker = sim_mesh((2, 1), GRID)
    if late:
        # The guess leaves a cable's time before it lands; it may well be later than the arrivals have come.
        start = 0 if landing == 0 else landings[1] - LATENCY - LATENCY // 2
        fault = ("delay", {"latency": 60_000, "in_cycles": start})
    else:
        fault = ("cut", {"in_cycles": landings[landing] - LATENCY // 2})
    with whole_again(worker):
        (found,) = run_steps(worker, Step(0, 3e-5, links=[("delay", {"latency": LATENCY}), fault]))
        check_ending(found, ends)
        assert late or any(state.lost for state in worker.links.states())


def test_a_cut_after_a_call_is_for_the_next_which_ends_until_the_link_takes_no_more(sim_mesh):
    """Before each of these calls the cable is cut already. What is lost is never taken back, so that in the end the
    router has no room."""
    worker = sim_mesh((2, 1), GRID)
    with whole_again(worker):
        steps = [Step(0), Step(0, SOON_S, links=[("cut", {})], reset=False), *[Step(0, SOON_S)] * 10]
        first, *others = run_steps(worker, *steps)
        check_ending(first, WHOLE[0])
        check_ending(others[0], NOT_MET._replace(calls=(2, 2)))
        statuses = [max(state.status for state in found["states"]["ChipPairs"]) for found in others]
        assert statuses == sorted(statuses) and {*statuses} == {1, 3}
        for found, status in zip(others[1:], statuses[1:], strict=True):
            check_ending(found, NOT_MET._replace(statuses=(status, status)))
