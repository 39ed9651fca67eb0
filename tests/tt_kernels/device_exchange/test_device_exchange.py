# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The exchange between the two ranks of a virtual pair on the simulated N150, against its torch reference."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, priorities, run_ops, shards
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, UNKNOWN, YIELDED
from tt_kernels.device_exchange import reference

pytestmark = pytest.mark.sim

PROGRAMS, GATE = "tests.tt_kernels.compute_gate.programs", "tt_kernels.compute_gate.op"
NAMES = itertools.count()
TURNS = [([2], [1]), ([0], [2]), ([1], [1])]


@pytest.fixture(scope="module")
def chip(sim_device):
    """The same chip of two cores as the gate's tests, so that both share one process."""
    return lambda grid="2x1": sim_device(grid, overlays=sgdc.overlays())


def sharded(kind: str, layout: str, shape: Sequence[int]) -> Make:
    """Return the memory of halves of the columns or the rows on each of two cores."""
    rows_of_page = 32 if layout == "TILE" else 1
    rows, columns = math.prod(shape[:-2]) * -(-shape[-2] // rows_of_page) * rows_of_page, shape[-1]
    rows, columns = (rows, columns // 2) if kind == "WIDTH" else (rows // 2, columns)
    return shards(2, columns, f"{kind}_SHARDED", rows=rows)


def pair(memory: str, shape: Sequence[int], dtype: str = "bfloat16", layout: str = "TILE", values=None) -> list[In]:
    """Return a tensor for each rank, random but for `values`."""
    if values is not None:
        parts = [torch.full(shape, value) for value in values]
    elif "int" in dtype:
        low = -(1 << 31) if dtype == "int32" else 0
        parts = [torch.randint(low, (1 << 31) - 1, shape, dtype=torch.int32) for _ in range(2)]
    else:
        parts = [torch.randn(shape) for _ in range(2)]
    place = memory if memory in ("DRAM", "L1") else sharded(memory, layout, shape)
    return [In(part, dtype, layout=layout, memory=place, read=f"{next(NAMES)}") for part in parts]


def core_pair() -> Make:
    return Make("perf.lib.virtual_pair:CorePair", device=True)


def exchange_of(users: int = 1, timeout_s: float = 2.0, pairs: Make | None = None) -> Make:
    return Make("perf.lib.virtual_pair:CorePairExchange", pairs or core_pair(), users=users, timeout_s=timeout_s)


def rows_of(rows) -> list[In]:
    return [priorities(row, None) for row in rows]


def held(found: dict[str, Any], tensors: list[In]) -> list[torch.Tensor]:
    return [found[tensor.read] for tensor in tensors]


def told(found: dict[str, Any]) -> list[list[int]]:
    """Return the priorities of the first user as each rank gathered them."""
    return [rank["out"][0, 0, :, 0].tolist() for rank in found["ranks"]]


def check_exchanges(worker, calls, users: int = 1) -> list[dict[str, Any]]:
    """Make calls (exchange, the ranks' priorities, pairs of tensors) and hold what both ranks have to the reference;
    return their results."""
    made = []
    for exchange, rows, (first, *more) in calls:
        made.append(Call("tests.support.run_op:nothing", [first, *more]))  # what is stored, read back
        made.append(Call(exchange, first, rows_of(rows), *more))
    results = run_ops(worker, made)
    for (_, rows, parts), before, found in zip(calls, results[::2], results[1::2], strict=True):
        assert found["errors"]["CorePair"] is None
        for tensors in parts:
            stored = held(before, tensors)
            assert not torch.equal(*stored), "nothing to exchange"
            expected, gathered = reference.device_exchange(stored, rows, users)
            for rank in (0, 1):
                place = f"rank {rank} of {tensors[0].values.shape} {tensors[0].dtype} at {rows}"
                assert torch.equal(held(found, tensors)[rank], expected[rank]), place
                assert torch.equal(found["ranks"][rank]["out"][0, 0].int(), gathered), place
    return results[1::2]


def test_every_role_order_and_ties(chip):
    values, exchange = (0, HOLDS_GUESS, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED), exchange_of()
    rows = [([a], [b]) for a in values for b in values if (a, b) != (0, 0)]
    results = check_exchanges(chip(), [(exchange, each, [pair("DRAM", (1, 1, 32, 64))]) for each in rows])
    entries = {found["entries"] for found in results}
    assert len(entries) == 1, f"the program cache grew: {entries}"
    states = results[-1]["states"]["CorePair"]
    ties = sum(a == b for a, b in rows)
    assert [state.ties for state in states] == [ties, ties]
    assert sum(state.sent for state in states) == len(rows)
    assert [state.calls for state in states] == [len(rows)] * 2


FORMATS = [
    ("L1", (1, 1, 32, 96)),
    ("L1", (1, 3, 16, 64)),  # half tiles
    ("DRAM", (1, 1, 17, 64)),
    ("DRAM", (1, 1, 1, 800)),  # packed rows: 25 tiles in 12 banks
    ("L1", (1, 3, 2, 64)),
    ("WIDTH", (1, 1, 8, 192)),
    ("HEIGHT", (1, 4, 7, 64)),
    ("DRAM", (1, 3, 8, 2048)),  # more than one packet, and than the landing buffer takes
    ("DRAM", (1, 1, 8, 1024)),  # two packets of packed rows
    ("WIDTH", (1, 1, 32, 128)),
    ("HEIGHT", (1, 1, 64, 64)),
    ("DRAM", (1, 2, 32, 64), "bfloat8_b"),
    ("WIDTH", (1, 1, 32, 64), "bfloat8_b"),
    ("DRAM", (1, 1, 32, 32), "int32"),
    ("WIDTH", (1, 1, 32, 64), "int32"),
    ("DRAM", (1, 1, 3, 72), "uint32", "ROW_MAJOR"),
    ("HEIGHT", (1, 1, 6, 8), "uint32", "ROW_MAJOR"),
    ("DRAM", (1, 1, 2, 9000), "bfloat16", "ROW_MAJOR"),  # pages longer than a packet
]


def test_formats_and_places_with_several_users(chip):
    torch.manual_seed(3)
    turns, exchange = [([0, 0, 2], [1, 1, 1]), ([1, 1, 1], [0, 0, 2]), ([0, 0, 0, 3], [1, 1, 1])], exchange_of(3)
    check_exchanges(chip(), [(exchange, rows, [pair(*form)]) for form in FORMATS for rows in turns], 3)


def test_several_tensors_go_the_same_way_in_one_call(chip):
    """As a layer has them: more than a batch and fewer, packed rows beside whole tiles, in two kinds of L1."""
    torch.manual_seed(4)
    exchange = exchange_of()
    forms = [("L1", (1, 1, 32, 352)), ("HEIGHT", (1, 2, 8, 64)), ("WIDTH", (1, 1, 32, 64)), ("L1", (1, 1, 4, 96))]
    *_, last = check_exchanges(chip(), [(exchange, rows, [pair(*form) for form in forms]) for rows in TURNS])
    states = last["states"]["CorePair"]
    assert [state.calls for state in states] == [3, 3] and [state.sent for state in states] == [2, 1]


@pytest.mark.parametrize("grid", ["4x1", "4x2"])
def test_helpers_pack_and_spread_as_the_exchange_core_alone_does(chip, grid):
    """Two exchange cores with a helper each, or three: runs of unlike length, and a share without a run."""
    forms = [("DRAM", (1, 1, 2, 800)), ("WIDTH", (1, 1, 2, 512)), ("L1", (1, 1, 2, 1600))]
    check_exchanges(chip(grid), [(exchange_of(), rows, [pair(*form)]) for form in forms for rows in TURNS])


# ------------------------------------------------------------------------------ faults of a peer


def alone(exchange, tensors, rows):
    """Run rank 0 alone, in the worker."""
    import ttnn

    program = exchange.core_pair_program([tensors], rows, ranks=(0,))
    ttnn.generic_op([*tensors, *rows, *exchange.gathered], program)
    return exchange.gathered


def words_of(values=(5, 6)) -> list[In]:
    return pair("DRAM", (1, 1, 1, 64), "uint32", "ROW_MAJOR", values)


def values_of(found: dict[str, Any], tensors: list[In]) -> list[list[int]]:
    return [part.unique().tolist() for part in held(found, tensors)]


def test_a_silent_peer_ends_in_an_error_that_names_who_gave_up(chip):
    """The second call returns at once; after a reset all is well."""
    exchange, tensors = exchange_of(timeout_s=2e-5), words_of()
    call = Call(f"{__name__}:alone", exchange, tensors, rows_of([[1], [2]]))
    *silent, after = run_ops(chip(), [call, call, Call(exchange, tensors, rows_of([[1], [2]]), reset=True)])
    for found in silent:
        assert found["errors"]["CorePair"] == "rank 0 (core (0, 0)) gave up in call 1: the peer did not arrive"
        assert [state.calls for state in found["states"]["CorePair"]] == [1, 0]
        assert values_of(found, tensors) == [[5], [6]]
        assert told(found)[0] == [1, UNKNOWN], "what follows knows that it knows nothing of the peer"
    assert after["errors"]["CorePair"] is None
    assert values_of(after, tensors) == [[6], [6]] and told(after)[0] == [1, 2]


@pytest.mark.parametrize(
    ("call", "reason", "own"),
    [
        (1, "the peer arrived but its data did not", YIELDED),  # it holds nothing, and says so
        (3, "the peer is in another call", HOLDS_GUESS),
    ],
    ids=["no data", "another call"],
)
def test_a_peer_that_stops_half_way_or_is_out_of_step_is_told_apart(chip, call, reason, own):
    pairs, tensors = core_pair(), words_of()
    exchange = exchange_of(timeout_s=2e-5, pairs=pairs)
    arrived = Call(f"{PROGRAMS}:put_into_mailbox", pairs, call, 0, 0, row_value=2)
    _, found = run_ops(chip(), [arrived, Call(f"{__name__}:alone", exchange, tensors, rows_of([[1], [2]]))])
    assert found["errors"]["CorePair"] == f"rank 0 (core (0, 0)) gave up in call 1: {reason}"
    assert values_of(found, tensors)[0] == [5] and told(found)[0] == [own, UNKNOWN]


def test_nobody_holds_the_result_and_closed_gates_do_not_stop_the_exchange(chip):
    exchange, tensors = exchange_of(), words_of()
    clear = Call(f"{GATE}:clear_compute_gate", device=True)
    calls = [
        Call(exchange, tensors, rows_of([[0], [0]])),
        clear,
        Call(f"{GATE}:set_compute_gate", priorities(0, None), users=1),
        Call(exchange, tensors, rows_of([[0], [2]]), reset=True),
        clear,
    ]
    nobody, *_, taken, _ = run_ops(chip(), calls)
    assert nobody["errors"]["CorePair"].count("both ranks have priority 0") == 2
    assert [state.ties for state in nobody["states"]["CorePair"]] == [1, 1]
    assert taken["errors"]["CorePair"] is None and values_of(taken, tensors)[0] == [6]
