# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The guess between two simulated chips of which one is silent, late or elsewhere, or whose cable is cut.

Every call ends with the status of the fault on each chip. All of the op's are here but 5 (both priorities are 0), which
only device_exchange gives: this op takes its priorities from there, and rank 0 sends on any tie. A late
acknowledgement (8) is in test_speculative_flash_decode_fabric.py.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_faults import Held, Step, steps_body
from tests.tt_kernels.speculative_flash_decode.flash_decode_mesh import GRID
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import Case
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, UNKNOWN, YIELDED
from tt_kernels.speculative_flash_decode.reference import speculative_flash_decode_reference

pytestmark = pytest.mark.sim

LIMIT_S = 600
CASE = Case(2, 1, 64, 96, 32, users=1, workers=1, grid=(2, 2))
BEFORE = HOLDS_EXACT_UNVERIFIED  # no rank writes it at this position
HIT = 100.0  # threshold
PATIENCE_S, IMPATIENCE_S, SHORT_S = 1e-4, 2e-5, 4e-6  # the last is longer than chips start apart
ROWS = {0: [[HOLDS_EXACT], [YIELDED]], 1: [[YIELDED], [HOLDS_EXACT]]}  # by who sends
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


def step(sender: int = 0, *patience_s: float, **changes) -> Step:
    """patience_s: of both chips, or of each."""
    each = (*patience_s, *patience_s) if len(patience_s) < 2 else patience_s
    whole = Step(([95], [95]), (ROWS[sender], ROWS[sender]), HIT, each or (PATIENCE_S, PATIENCE_S))
    return replace(whole, **changes)


def run(worker, *steps: Step) -> list[Held]:
    return worker.run(steps_body, CASE, *CASE.random(7), BEFORE, list(steps), timeout=LIMIT_S)


@dataclass(frozen=True)
class Ending:
    """What a call ends in. statuses, priorities: of both chips; calls: that gave up; exact: chips with their own
    results; guess: the chip that has its peer's guess."""

    statuses: tuple[int, int]
    priorities: tuple[int, int]
    exact: tuple[int, ...]
    guess: int | None = None
    calls: tuple[int, int] = (1, 1)


WHOLE = {
    0: Ending((0, 0), (YIELDED, HOLDS_GUESS), (0,), 1),
    1: Ending((0, 0), (HOLDS_GUESS, YIELDED), (1,), 0),
}


def check(found: Held, ends: Ending) -> None:
    failed = [
        f"chip ({chip}, 0) gave up in call {ends.calls[chip]}: {REASONS[status]}"
        for chip, status in enumerate(ends.statuses)
        if status
    ]
    assert found.message == ("; ".join(failed) or None)
    assert found.statuses == list(ends.statuses)
    assert found.priorities == [[priority] for priority in ends.priorities]
    reference = speculative_flash_decode_reference(*CASE.random(7), [95], chunk_size=CASE.chunk_size)
    for chip in ends.exact:
        for name in ("exact", "guess"):
            held, right = found.outputs[chip][name].double(), getattr(reference, name)
            torch.testing.assert_close(held, right, atol=0.03, rtol=0.02, msg=f"chip {chip} {name}")
    if ends.guess is not None:
        for name in ("exact", "guess"):
            assert torch.equal(found.outputs[ends.guess][name], found.outputs[1 - ends.guess]["guess"]), (
                "the receiver holds the guess, bit by bit"
            )


NOT_MET = Ending((1, 1), (HOLDS_EXACT, YIELDED), (0,))  # chip 0 sends

# What a call ends in by what a rank does; a short patience ends the wait of the other. The step before is whole.
MEMBERS = {
    "silent receiver": (
        step(0, IMPATIENCE_S, running=(0,)),
        Ending((1, 0), (HOLDS_EXACT, BEFORE), (0,)),
    ),
    "silent sender": (
        step(1, IMPATIENCE_S, running=(0,)),
        Ending((1, 0), (YIELDED, BEFORE), ()),
    ),
    "receiver that does not wait": (  # its sender hears that it arrived, and no more
        step(0, 5e-5, SHORT_S),
        Ending((8, 2), (HOLDS_EXACT, YIELDED), (0,)),
    ),
    "peer that began anew": (
        step(0, reset=False, forget=1),
        Ending((4, 4), (HOLDS_EXACT, YIELDED), (0,), calls=(2, 1)),
    ),
    "two senders": (step(gathered=(ROWS[0], ROWS[1])), Ending((6, 6), (HOLDS_EXACT, HOLDS_EXACT), (0, 1))),
    "two receivers": (step(gathered=(ROWS[1], ROWS[0])), Ending((6, 6), (YIELDED, YIELDED), ())),
    "other users": (step(positions=([95], [-1])), Ending((7, 7), (HOLDS_EXACT, YIELDED), (0,))),
    "sender whose exchange failed": (
        step(0, IMPATIENCE_S, gathered=([[HOLDS_EXACT], [UNKNOWN]], ROWS[0])),
        Ending((9, 1), (HOLDS_EXACT, YIELDED), (0,), calls=(0, 1)),
    ),
    "receiver whose exchange failed": (
        step(1, IMPATIENCE_S, gathered=([[YIELDED], [UNKNOWN]], ROWS[1])),
        Ending((9, 1), (YIELDED, HOLDS_EXACT), (1,), calls=(0, 1)),
    ),
}


# Those that the fabric has a part in; the others depend on what the virtual pair shares (test_..._pair.py).
BY_THE_FABRIC = ["silent receiver", "silent sender", "receiver that does not wait", "peer that began anew"]


@pytest.mark.parametrize(
    "names",
    [
        BY_THE_FABRIC,
        pytest.param([name for name in MEMBERS if name not in BY_THE_FABRIC], marks=pytest.mark.slow),
    ],
    ids=["fabric", "roles"],
)
def test_a_member_that_fails_is_told_and_the_next_step_is_right(sim_mesh, names):
    said, steps, ends = ["the first"], [step(0)], [WHOLE[0]]
    for number, name in enumerate(names, start=1):
        fault, end = MEMBERS[name]
        said += [name, f"after {name}"]
        steps += [fault, step(number % 2)]
        ends += [end, WHOLE[number % 2]]
    for name, found, end in zip(said, run(sim_mesh((2, 1), GRID), *steps), ends, strict=True):
        try:
            check(found, end)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@contextmanager
def whole_again(worker):
    """Afterwards the mesh closes and opens again, and carries a guess."""
    try:
        yield
        worker.links.mend()
        worker.reopen()
        check(run(worker, step(1))[0], WHOLE[1])
    except BaseException:
        worker.kill()
        raise


LATENCY = 6000  # of a cable so slow that each packet can be met on its way


@pytest.fixture(scope="module")
def landings(sim_mesh) -> tuple[int, int, int]:
    """Cycles from the launch until the two have arrived, the guess is there, and its acknowledgement."""
    worker = sim_mesh((2, 1), GRID)
    (found,) = run(worker, step(links=[("delay", {"latency": LATENCY}), ("record", {})]))
    worker.links.mend()
    check(found, WHOLE[0])
    guess = [packet.cycle for packet in found.deliveries if packet.bytes > 2048]
    arrivals = [packet.cycle for packet in found.deliveries if packet.cycle < guess[0]]
    assert len(arrivals) == 4 and len(guess) == 2 and found.deliveries[-1].source.startswith("chip 1")
    return max(arrivals) - found.start, guess[0] - found.start, found.deliveries[-1].cycle - found.start


@pytest.mark.parametrize(
    ("landing", "ends"),
    [
        pytest.param(0, NOT_MET, marks=pytest.mark.slow),
        (1, Ending((8, 2), (HOLDS_EXACT, YIELDED), (0,))),
        (2, Ending((8, 0), (HOLDS_EXACT, HOLDS_GUESS), (0,), 1)),
    ],
    ids=["arrivals", "guess", "acknowledgement"],
)
def test_a_cut_loses_what_is_on_its_way(sim_mesh, landings, landing, ends):
    worker = sim_mesh((2, 1), GRID)
    cut = ("cut", {"in_cycles": landings[landing] - LATENCY // 2})
    with whole_again(worker):
        (found,) = run(worker, step(0, 3e-5, links=[("delay", {"latency": LATENCY}), cut]))
        check(found, ends)
        assert any(state.lost for state in worker.links.states())


def test_a_cut_after_a_call_is_for_the_next_which_ends_until_the_link_takes_no_more(sim_mesh):
    """Before each of these calls the cable is cut already. What is lost is never taken back, so that in the end the
    router has no room."""
    worker = sim_mesh((2, 1), GRID)
    with whole_again(worker):
        cut = [step(0, IMPATIENCE_S, links=[("cut", {})], reset=False)]
        later = [step(0, IMPATIENCE_S)] * 5
        first, *others = run(worker, step(0), *cut, *later)
        check(first, WHOLE[0])
        check(others[0], replace(NOT_MET, calls=(2, 2)))
        statuses = [max(found.statuses) for found in others]
        assert statuses == sorted(statuses) and {*statuses} == {1, 3}
        for found, status in zip(others[1:], statuses[1:], strict=True):
            check(found, replace(NOT_MET, statuses=(status, status)))


@pytest.mark.parametrize(
    ("landing", "ends"),
    [
        pytest.param(0, NOT_MET, marks=pytest.mark.slow),
        (1, Ending((8, 2), (HOLDS_EXACT, YIELDED), (0,))),
    ],
    ids=["arrivals", "guess"],
)
def test_a_peer_later_than_the_patience_is_told(sim_mesh, landings, landing, ends):
    """From before it sends that on its packets take 60,000 cycles, and the others wait for 30,000."""
    worker = sim_mesh((2, 1), GRID)
    # The guess leaves a cable's time before it lands; it may well be later than the arrivals have come.
    start = 0 if landing == 0 else landings[1] - LATENCY - LATENCY // 2
    late = ("delay", {"latency": 60_000, "in_cycles": start})
    with whole_again(worker):
        (found,) = run(worker, step(0, 3e-5, links=[("delay", {"latency": LATENCY}), late]))
        check(found, ends)
