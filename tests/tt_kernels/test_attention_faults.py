# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The two ranks of a pair layer after layer, and what becomes of a call whose peer is silent, late, elsewhere, or of
another mind: on a virtual pair of one chip, whose faults are cheap, and between two simulated chips.

Every call ends with the status of the fault on each rank. All of the op's are here but 5 (both priorities are 0), which
only device_exchange gives: this op takes its priorities from there, and rank 0 sends on any tie.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch

from tests.support.run_op import Call, In, Make, gathered, gathered_words, priorities, refusals, run_ops, words
from tests.tt_kernels.attention import CHIP, EXCHANGE, FLASH, GRID, HIT, SHORT, Case, wanted
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, UNKNOWN, YIELDED
from tt_kernels.common.reference import sender as who_sends
from tt_kernels.speculative_flash_decode.reference import receiver_priorities

pytestmark = pytest.mark.sim

CASE = Case(1, 2, 1, 64, 96, users=2, workers=1)
CORES = ((3, 0), (3, 1))  # the exchange cores
MISS = 0.0
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


def pair_call(parts, pairs, at, told, threshold, rows=None, patience_s=(PATIENCE_S,) * 2, workers=1, **options) -> Call:
    """Return a call of a virtual pair on the rows of the chip. at, told: what each rank is given; told: the priorities
    of both ranks. rows: the ranks' own priorities, In."""
    rows = rows or [priorities(BEFORE, f"priority {rank}") for rank in (0, 1)]
    pair = "perf.lib.virtual_pair"
    ranks = []
    for rank in (0, 1):
        config = Make(f"{FLASH}:ProgramConfig", (4, 1), (0, rank), workers_per_head=workers)
        given = (*parts, words(at[rank]), rows[rank], gathered(*told[rank]), config, patience_s[rank])
        ranks.append(Make(f"{pair}:RankInputs", *given))
    options = {"chunk_size": 32, "guess_range": SHORT, "threshold": threshold} | options
    return Call(f"{pair}:speculative_flash_decode_pair", ranks, pairs, **options)


def core_pair() -> Make:
    return Make("perf.lib.virtual_pair:CorePair", CORES, device=True)


def rows_after(found: dict[str, Any]) -> list[list[int]]:
    return [found[f"priority {rank}"].flatten()[: CASE.users].tolist() for rank in (0, 1)]


# ------------------------------------------------------------------------------ layers


def check_layers(worker, layers, initial, workers: int = 1, at_once: bool = False) -> list[int]:
    """Run layers (threshold, positions) on one pair, whose priorities carry over, against the oracle; return how many
    layers each rank sent. at_once: all are launched before the host reads anything, or knows of any outcome."""
    q, k, v = CASE.random(5)
    pairs, rows = core_pair(), [priorities(row, f"priority {rank}") for rank, row in enumerate(initial)]
    calls, expected, told = [], [], [list(row) for row in initial]
    for index, (threshold, at) in enumerate(layers):
        # Each layer's caches are rolled by its index, so that no two layers have the same outputs.
        parts = [q, k.roll(index, 2), v.roll(index, 2)]
        sender = who_sends(told, CASE.users)
        right = wanted(CASE, *parts, at, guess_range=SHORT, threshold=threshold)
        after = [receiver_priorities(at)] * 2
        after[sender] = right.priorities
        inputs = CASE.inputs(*parts)
        calls.append(pair_call(inputs, pairs, [at] * 2, [told] * 2, threshold, rows, workers=workers))
        expected.append((sender, right, after))
        told = after
    results = run_ops(worker, calls, at_once=at_once)
    for index, ((sender, right, after), found) in enumerate(zip(expected, results, strict=True)):
        mine, theirs = found["ranks"][sender], found["ranks"][1 - sender]
        for name in ("exact", "guess"):
            torch.testing.assert_close(CASE.rows(mine[name]).double(), getattr(right, name), atol=0.03, rtol=0.02)
        assert torch.equal(theirs["exact"], mine["guess"]), f"layer {index}: the receiver holds the guess, bit by bit"
        assert not theirs["distance_sq"].any() and not theirs["norm_sq"].any()
        if not at_once or index == len(layers) - 1:
            assert rows_after(found) == after, f"layer {index}, rank {sender} sent"
        assert found["errors"] == {"CorePair": None}
    sent = [[sender for sender, *_ in expected].count(rank) for rank in (0, 1)]
    assert [(state.calls, state.sent) for state in results[-1]["states"]["CorePair"]] == [
        (len(layers), n) for n in sent
    ]
    assert results[-1]["entries"] == results[1]["entries"], "all roles and outcomes run from one program"
    return sent


def test_roles_and_outcomes_alternate_over_layers(sim_device):
    """Accepted: the receiver is the next sender. Rejected: the sender stays. Bypassed and skipped users beside it."""
    full = [64, -1]
    layers = [
        (HIT, full),
        (HIT, full),
        (MISS, full),
        (HIT, [95, 65]),
        (MISS, [40, 90]),
        (HIT, [40, 95]),
        (HIT, full),
        (MISS, full),
        (HIT, [-1, 80]),
        (HIT, full),
    ]
    assert min(check_layers(sim_device(CHIP), layers, [[HOLDS_EXACT] * 2, [YIELDED] * 2])) >= 3


def test_layers_with_two_workers_a_head_follow_each_other_without_a_look(sim_device):
    layers = [(HIT, [64, -1]), (HIT, [95, 65]), (MISS, [40, 90]), (HIT, [33, 70])]
    sent = check_layers(sim_device(CHIP), layers, [[HOLDS_EXACT] * 2, [YIELDED] * 2], workers=2, at_once=True)
    assert min(sent) >= 1


def test_on_a_tie_the_first_member_sends(sim_device):
    layers = [(HIT, [70, -1]), (HIT, [70, -1])]
    assert check_layers(sim_device(CHIP), layers, [[HOLDS_EXACT, 0], [HOLDS_EXACT, 0]]) == [1, 1]


# ------------------------------------------------------------------------------ faults of a virtual pair

# With HIT every guess would be accepted.
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


def put_into_mailbox(pairs, call: int, role: int, users: int) -> None:
    """Write what rank 0 finds once rank 1 has arrived: words of peer::State."""
    import ttnn

    state = ttnn.to_torch(pairs.state).to(torch.int32)
    state[0, 0, 0, 0] = 1  # arrivals
    state[0, 0, 0, 104:107] = torch.tensor([call, role, users], dtype=torch.int32)
    host = ttnn.from_torch(state, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, pairs.state)


def check_own_results(ranks, rank: int, at: Sequence[int]) -> None:
    """Assert that the rank has its own exact result and guess, whatever its peer did."""
    right = wanted(CASE, *CASE.random(6), at, guess_range=SHORT)
    for name in ("exact", "guess"):
        mine = CASE.rows(ranks[rank][name]).double()
        torch.testing.assert_close(mine, getattr(right, name), atol=0.03, rtol=0.02, msg=f"{rank} {name}")


def test_a_fault_of_a_member_is_told_and_leaves_the_layer_to_one_rank(sim_device):
    """After a silent peer a call gives up at once, as the state says that there is none; then all is well after a
    reset."""
    inputs, here = CASE.inputs(*CASE.random(6)), "tests.tt_kernels.test_attention_faults"
    calls: list[Call] = []
    expected: list[tuple[str, Fault | None]] = []
    for name, fault in FAULTS.items():
        pairs = core_pair()
        if fault.heard:
            calls.append(Call(f"{here}:put_into_mailbox", pairs, *fault.heard))
            expected.append((name, None))
        silent = len(fault.running) < 2 and not fault.heard
        for _ in range(1 + silent):
            options = {"running": fault.running, "patience_s": fault.patience_s}
            calls.append(pair_call(inputs, pairs, fault.at, fault.told, HIT, **options))
            expected.append((name, fault))
        if silent:
            calls.append(pair_call(inputs, pairs, (BOTH, BOTH), (ROWS[0], ROWS[0]), HIT))
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


def test_ranks_that_could_not_agree_are_refused(sim_device):
    """By what the second rank is given in the place of its input of that number."""
    region = Make("tt_kernels.compute_gate.region:gated_region")

    def config(row: int = 1, **changes) -> Make:
        return Make(f"{FLASH}:ProgramConfig", (4, 1), (0, row), workers_per_head=1, **changes)

    row, changes = (
        priorities(BEFORE),
        {
            "both ranks were given the same priority tensor": {},
            "program_config must be a ProgramConfig, it is a NoneType": {6: None},
            "math_fidelity HiFi3 and HiFi2: they must be equal": {6: config(math_fidelity="HiFi2")},
            "a key_chunk of 32 and 64: they must be equal": {6: config(key_chunk=64)},
            "core (0, 0) belongs to both ranks of the pair": {6: config(row=0)},
            "a timeout is a positive, finite number of seconds, not 0": {7: 0},
            "speculative_flash_decode_pair (cluster_axis=None) is a cross-chip op": {},
        },
    )
    calls = {}
    for said, change in changes.items():
        rows = [row, row] if "same priority" in said else None
        calls[said] = pair_call(CASE.inputs(*CASE.random()), core_pair(), [BOTH] * 2, [ROWS[0]] * 2, HIT, rows)
        second = calls[said].arguments[0][1]
        second.arguments = tuple(change.get(index, given) for index, given in enumerate(second.arguments))
        calls[said].inside = region if "cross-chip" in said else None
    for said, message in refusals(sim_device(CHIP), calls).items():
        kind = "GatedRegionError" if "cross-chip" in said else "UnsupportedError"
        assert message.startswith(kind) and said in message, (said, message)


# ------------------------------------------------------------------------------ faults between chips

LINKED = Case(1, 2, 1, 64, 96, workers=1, grid=(2, 2))
ONE = {0: [[HOLDS_EXACT], [YIELDED]], 1: [[YIELDED], [HOLDS_EXACT]]}  # by who sends
REGISTERS = 0xFFB00000  # from here on packets are the routers' own credits
LATENCY = 6000  # of a cable so slow that each packet can be met on its way


@contextmanager
def faulty(pairs, running: Sequence[int], patience_s: Sequence[float]) -> Iterator[None]:
    """Let only some chips take part, each with a patience of its own; a launch asks for the chips in order."""
    from tt_kernels.common import speculative_chips

    given, patiences = speculative_chips.peer_args, [patience_s[rank] for rank in running]
    everywhere = pairs.coordinates()
    pairs.coordinates = lambda: [everywhere[rank] for rank in running]

    def each_own(pairs, peer_exact, timeout_s, link):
        return given(pairs, peer_exact, patiences.pop(0), link)

    with mock.patch.object(speculative_chips, "peer_args", each_own):
        yield
    del pairs.coordinates


def forget(pairs, rank: int) -> None:
    """Set the state of one chip back to zeros."""
    import ttnn

    parts = [ttnn.to_torch(part).to(torch.int64).to(torch.int32) for part in ttnn.get_device_tensors(pairs.state)]
    parts[rank] = torch.zeros_like(parts[rank])
    mapper = ttnn.ShardTensorToMesh(pairs.device, dim=0)
    host = ttnn.from_torch(torch.cat(parts), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, mesh_mapper=mapper)
    ttnn.copy_host_to_device_tensor(host, pairs.state)


class Step(NamedTuple):
    """One call. at, told, patience_s: of each chip. forget: the chip whose state is set back to zeros alone before."""

    sender: int = 0
    patience_s: tuple[float, float] = (1e-4, 1e-4)
    at: tuple[int, int] = (95, 95)
    told: tuple[list, list] | None = None
    running: tuple[int, ...] = (0, 1)
    reset: bool = True
    forget: int | None = None
    links: Sequence[tuple[str, dict]] = ()


def run_steps(worker, *steps: Step) -> list[dict[str, Any]]:
    """Run steps on one pair, whatever becomes of them."""
    inputs, pairs = LINKED.inputs(*LINKED.random(7)), Make("tt_kernels.common.peer:ChipPairs", 0, EXCHANGE, device=True)
    here, calls, kept = "tests.tt_kernels.test_attention_faults", [], []
    for step in steps:
        told = torch.cat([gathered_words(rows) for rows in step.told or [ONE[step.sender]] * 2])
        known = In(told, "uint32", split=(0, None))
        call = LINKED.call(
            "speculate",
            inputs,
            [0],
            threshold=HIT,
            priority=priorities(BEFORE),
            peer=Make("tt_kernels.common.speculative_chips:Peer", pairs, known),
        )
        call.arguments = (*call.arguments[:3], In(torch.tensor(step.at), "int32", split=(0, None)))
        call.inside = Make(f"{here}:faulty", pairs, step.running, step.patience_s)
        call.links, call.reset = step.links, step.reset
        if step.forget is not None:
            calls.append(Call(f"{here}:forget", pairs, step.forget))
        kept.append(len(calls))
        calls.append(call)
    results = run_ops(worker, calls)
    return [results[index] for index in kept]


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


def check_ending(found: dict[str, Any], ends: Ending, name: str = "") -> None:
    told = [
        f"chip ({chip}, 0) gave up in call {ends.calls[chip]}: {REASONS[status]}"
        for chip, status in enumerate(ends.statuses)
        if status
    ]
    assert found["errors"] == {"ChipPairs": "; ".join(told) or None}, name
    held = [found["priority"][chip, 0].flatten()[0] for chip in (0, 1)]
    assert held == list(ends.priorities), name
    right = wanted(LINKED, *LINKED.random(7), [95])
    for chip in ends.exact:
        for part in ("exact", "guess"):
            mine = LINKED.rows(found[part][chip, 0]).double()
            torch.testing.assert_close(mine, getattr(right, part), atol=0.03, rtol=0.02, msg=f"{name} {chip} {part}")
    if ends.guess is not None:
        assert torch.equal(found["exact"][ends.guess, 0], found["guess"][1 - ends.guess, 0]), name


# What a call ends in by what a chip does, where the fabric has a part in it; a short patience ends the wait of the
# other. The step before is whole.
SOON = (2e-5, 2e-5)
MEMBERS = {
    "silent receiver": (Step(0, SOON, running=(0,)), Ending((1, 0), (HOLDS_EXACT, BEFORE), (0,))),
    "silent sender": (Step(1, SOON, running=(0,)), Ending((1, 0), (YIELDED, BEFORE), ())),
    # Its sender hears that it arrived, and no more.
    "receiver that does not wait": (Step(0, (5e-5, SHORT_S)), LATE),
    "peer that began anew": (
        Step(0, reset=False, forget=1),
        Ending((4, 4), (HOLDS_EXACT, YIELDED), (0,), calls=(2, 1)),
    ),
}


def test_a_chip_that_fails_is_told_and_the_next_step_is_right(sim_mesh):
    said, steps, ends = ["the first"], [Step(0)], [WHOLE[0]]
    for number, (name, (fault, end)) in enumerate(MEMBERS.items(), start=1):
        said += [name, f"after {name}"]
        steps += [fault, Step(number % 2)]
        ends += [end, WHOLE[number % 2]]
    for name, found, end in zip(said, run_steps(sim_mesh((2, 1), GRID), *steps), ends, strict=True):
        check_ending(found, end, name)


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
        (found,) = run_steps(worker, Step(0, (3e-5, 3e-5), links=[("delay", {"latency": LATENCY}), fault]))
        check_ending(found, ends)
        assert late or any(state.lost for state in worker.links.states())


def test_a_cut_after_a_call_is_for_the_next_which_ends_until_the_link_takes_no_more(sim_mesh):
    """Before each of these calls the cable is cut already. What is lost is never taken back, so that in the end the
    router has no room."""
    worker = sim_mesh((2, 1), GRID)
    with whole_again(worker):
        steps = [Step(0), Step(0, SOON, links=[("cut", {})], reset=False), *[Step(0, SOON)] * 10]
        first, *others = run_steps(worker, *steps)
        check_ending(first, WHOLE[0])
        check_ending(others[0], NOT_MET._replace(calls=(2, 2)))
        statuses = [max(state.status for state in found["states"]["ChipPairs"]) for found in others]
        assert statuses == sorted(statuses) and {*statuses} == {1, 3}
        for found, status in zip(others[1:], statuses[1:], strict=True):
            check_ending(found, NOT_MET._replace(statuses=(status, status)))
