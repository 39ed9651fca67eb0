# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The exchange between the two ranks of a virtual pair on the simulated N150, against its torch reference."""

from __future__ import annotations

import math
import random

import pytest
import torch

from runtime_patches import sgdc
from tt_kernels.common import reference as common_reference
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, UNKNOWN, YIELDED
from tt_kernels.device_exchange import reference

pytestmark = pytest.mark.sim


@pytest.fixture(scope="module")
def chip(sim_device):
    """The same chip of two cores as the gate's tests, so that both share one process."""
    return lambda: sim_device("2x1", overlays=sgdc.overlays())


def memory_config(name: str, layout: str, shape: tuple[int, ...]):
    import ttnn

    if name == "DRAM":
        return ttnn.DRAM_MEMORY_CONFIG
    if name == "L1":
        return ttnn.L1_MEMORY_CONFIG
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 0))])
    rows_of_page = 32 if layout == "TILE_LAYOUT" else 1
    rows, columns = math.prod(shape[:-2]) * -(-shape[-2] // rows_of_page) * rows_of_page, shape[-1]
    shards = {
        "width sharded": (ttnn.TensorMemoryLayout.WIDTH_SHARDED, [rows, columns // 2]),
        "height sharded": (ttnn.TensorMemoryLayout.HEIGHT_SHARDED, [rows // 2, columns]),
    }
    kind, shard = shards[name]
    spec = ttnn.ShardSpec(cores, shard, ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(kind, ttnn.BufferType.L1, spec)


def to_torch(tensor) -> torch.Tensor:
    """Its contents; unsigned words as int64, since torch cannot pickle uint32."""
    import ttnn

    found = ttnn.to_torch(tensor)
    return found if found.is_floating_point() else found.to(torch.int64)


def exchange_body(device, dtype, layout, memory, tensors, calls, users):
    """What both ranks and their gathered priorities hold after each of `calls`, and the cache entries."""
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.device_exchange.virtual_pair import CorePairExchange

    exchange = CorePairExchange(CorePair(device), users=users)
    config = memory_config(memory, layout, tuple(tensors[0].shape))
    held = [
        ttnn.from_torch(
            t, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout), device=device, memory_config=config
        )
        for t in tensors
    ]
    hosts = [ttnn.from_torch(t, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout)) for t in tensors]
    results, entries = [], set()
    for rows in calls:
        for host, tensor in zip(hosts, held, strict=True):
            ttnn.copy_host_to_device_tensor(host, tensor)
        gathered = exchange(held, [programs.priorities(device, row) for row in rows])
        entries.add(device.num_program_cache_entries())
        results.append(([to_torch(t) for t in held], [to_torch(g)[0, 0] for g in gathered]))
    exchange.check()
    return results, [to_torch(host) for host in hosts], entries, exchange.pairs.states()


def check_results(results, stored, calls, users):
    for (held, gathered), rows in zip(results, calls, strict=True):
        expected, expected_gathered = reference.device_exchange(stored, rows, users)
        for rank in range(2):
            assert torch.equal(held[rank], expected[rank]), f"rank {rank} at priorities {rows}"
            assert torch.equal(gathered[rank].to(torch.int32), expected_gathered)


def test_every_role_order_and_ties(chip):
    values = (0, HOLDS_GUESS, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED)
    calls = [([a], [b]) for a in values for b in values if (a, b) != (0, 0)]
    tensors = [torch.randn(1, 1, 32, 64).bfloat16() for _ in range(2)]
    body = ("bfloat16", "TILE_LAYOUT", "DRAM", tensors, calls, 1)
    results, stored, entries, states = chip().run(exchange_body, *body)
    check_results(results, stored, calls, 1)
    assert len(entries) == 1, f"the program cache grew: {entries}"
    ties = sum(a == b for a, b in calls)
    assert [state.ties for state in states] == [ties, ties]
    assert sum(state.sent for state in states) == len(calls)
    assert [state.calls for state in states] == [len(calls)] * 2


SPECIFICATIONS = [
    ("bfloat16", "TILE_LAYOUT", "L1", (1, 1, 32, 96)),
    ("bfloat16", "TILE_LAYOUT", "L1", (1, 3, 16, 64)),  # half tiles
    ("bfloat16", "TILE_LAYOUT", "DRAM", (1, 1, 17, 64)),
    ("bfloat16", "TILE_LAYOUT", "DRAM", (1, 1, 1, 800)),  # packed rows: 25 tiles in 12 banks
    ("bfloat16", "TILE_LAYOUT", "L1", (1, 3, 2, 64)),
    ("bfloat16", "TILE_LAYOUT", "width sharded", (1, 1, 8, 192)),
    ("bfloat16", "TILE_LAYOUT", "height sharded", (1, 4, 7, 64)),
    ("bfloat16", "TILE_LAYOUT", "DRAM", (1, 3, 8, 2048)),  # more than one packet, and than the landing buffer takes
    ("bfloat16", "TILE_LAYOUT", "DRAM", (1, 1, 8, 1024)),  # two packets of packed rows
    ("bfloat16", "TILE_LAYOUT", "width sharded", (1, 1, 32, 128)),
    ("bfloat16", "TILE_LAYOUT", "height sharded", (1, 1, 64, 64)),
    ("bfloat8_b", "TILE_LAYOUT", "DRAM", (1, 2, 32, 64)),
    ("bfloat8_b", "TILE_LAYOUT", "width sharded", (1, 1, 32, 64)),
    ("int32", "TILE_LAYOUT", "DRAM", (1, 1, 32, 32)),
    ("int32", "TILE_LAYOUT", "width sharded", (1, 1, 32, 64)),
    ("uint32", "ROW_MAJOR_LAYOUT", "DRAM", (1, 1, 3, 72)),
    ("uint32", "ROW_MAJOR_LAYOUT", "height sharded", (1, 1, 6, 8)),
    ("bfloat16", "ROW_MAJOR_LAYOUT", "DRAM", (1, 1, 2, 9000)),  # pages longer than a packet
]


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=lambda s: "-".join(map(str, s)))
def test_formats_and_places_with_several_users(chip, specification):
    dtype, layout, memory, shape = specification
    torch.manual_seed(3)
    if dtype in ("int32", "uint32"):
        low = -(1 << 31) if dtype == "int32" else 0
        tensors = [torch.randint(low, (1 << 31) - 1, shape, dtype=torch.int32) for _ in range(2)]
    else:
        tensors = [torch.randn(shape).bfloat16() for _ in range(2)]
    calls = [([0, 0, 2], [1, 1, 1]), ([1, 1, 1], [0, 0, 2]), ([0, 0, 0, 3], [1, 1, 1])]
    results, stored, _, _ = chip().run(exchange_body, dtype, layout, memory, tensors, calls, 3)
    check_results(results, stored, calls, 3)


def several_body(device, calls, parts):
    """What both ranks hold of several tensors after each call."""
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.device_exchange.virtual_pair import CorePairExchange

    exchange = CorePairExchange(CorePair(device), users=1)
    given = [
        [
            ttnn.from_torch(
                tensor,
                dtype=getattr(ttnn, dtype),
                layout=getattr(ttnn, layout),
                device=device,
                memory_config=memory_config(memory, layout, tuple(tensor.shape)),
            )
            for tensor in tensors
        ]
        for dtype, layout, memory, tensors in parts
    ]
    found = []
    for rows in calls:
        before = [[to_torch(tensor) for tensor in pair] for pair in given]
        exchange(given[0], [programs.priorities(device, row) for row in rows], *given[1:])
        found.append((before, [[to_torch(tensor) for tensor in pair] for pair in given]))
        for pair in given:  # so that the next call has something to do
            for number, tensor in enumerate(pair):
                ttnn.copy(ttnn.multiply(tensor, 2 + number), tensor)
    exchange.check()
    return found, exchange.pairs.states()


MANY_USERS = {
    "L1": (1, 1, 32, 352),
    "height sharded": (1, 1, 64, 64),
    "DRAM": (1, 1, 32, 32),
    "width sharded": (1, 1, 32, 64),
}
ONE_USER = {
    "width sharded": (1, 1, 1, 512),
    "height sharded": (1, 2, 8, 64),
    "DRAM": (1, 1, 32, 32),
    "L1": (1, 1, 4, 96),
}


@pytest.mark.parametrize("shapes", [MANY_USERS, ONE_USER], ids=["many rows", "packed rows beside whole tiles"])
def test_several_tensors_go_the_same_way_in_one_call(chip, shapes):
    """A residual, and queries, keys and values as a layer has them: more than a batch and fewer, in two kinds of L1."""
    torch.manual_seed(4)
    parts = [
        ("bfloat16", "TILE_LAYOUT", memory, [torch.randn(shape).bfloat16() for _ in range(2)])
        for memory, shape in shapes.items()
    ]
    calls = [([2], [1]), ([0], [2]), ([1], [1])]
    found, states = chip().run(several_body, calls, parts)
    for (before, after), rows in zip(found, calls, strict=True):
        for part, (held, now) in enumerate(zip(before, after, strict=True)):
            expected, _ = reference.device_exchange(held, rows, 1)
            assert not torch.equal(*held), "nothing to exchange"
            for rank in range(2):
                assert torch.equal(now[rank], expected[rank]), f"part {part} of rank {rank} at {rows}"
    assert [state.calls for state in states] == [3, 3] and [state.sent for state in states] == [2, 1]


@pytest.mark.parametrize("memory, columns", [("DRAM", 800), ("width sharded", 512), ("L1", 1600)])
def test_helpers_pack_and_spread_as_the_exchange_core_alone_does(sim_device, memory, columns):
    """Two exchange cores with a helper each, or three: runs of unlike length, and a share without a run."""
    tensors = [torch.randn(1, 1, 2, columns).bfloat16() for _ in range(2)]
    calls = [([2], [1]), ([0], [2]), ([1], [1])]
    body = ("bfloat16", "TILE_LAYOUT", memory, tensors, calls, 1)
    for grid in ("4x1", "4x2"):
        results, stored, entries, states = sim_device(grid, overlays=sgdc.overlays()).run(exchange_body, *body)
        check_results(results, stored, calls, 1)
        assert [state.calls for state in states] == [len(calls)] * 2


def layers_body(device, layers):
    """One exchange a layer; `layers` holds the priorities and each rank's new row of values before it."""
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.device_exchange.virtual_pair import CorePairExchange

    exchange = CorePairExchange(CorePair(device), users=2)
    tensors = [programs.words(device, 1) for _ in range(2)]
    priorities = [programs.priorities(device, 0) for _ in range(2)]
    found = []
    for rows, values in layers:
        for rank in range(2):
            programs.write_priorities(priorities[rank], rows[rank])
            host = torch.full((1, 1, 1, programs.PAGE_WORDS), values[rank], dtype=torch.int32)
            ttnn.copy_host_to_device_tensor(
                ttnn.from_torch(host, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT), tensors[rank]
            )
        exchange(tensors, priorities)
        found.append([ttnn.to_torch(tensor).unique().tolist() for tensor in tensors])
    exchange.check()
    return found, exchange.pairs.states()


def test_roles_alternate_over_a_hundred_layers(chip):
    draw = random.Random(5)
    rows, layers, expected, senders = [[2, 2], [0, 0]], [], [], []
    for layer in range(100):
        values = (2 * layer, 2 * layer + 1)
        layers.append((rows, values))
        senders.append(common_reference.sender(rows, 2))
        expected.append([[values[senders[-1]]]] * 2)
        rows = common_reference.after_verification(rows, 2, [draw.random() < 0.7, draw.random() < 0.7])
    found, states = chip().run(layers_body, layers)
    assert found == expected
    assert [state.sent for state in states] == [senders.count(0), senders.count(1)]
    assert senders.count(0) > 20 and senders.count(1) > 20


def gathered_by(exchange) -> list[int]:
    """The priorities of the first user as rank 0 gathered them."""
    return [int(value) for value in to_torch(exchange.gathered[0])[0, 0, :, 0]]


def silent_body(device, timeout_s):
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.peer import PeerError
    from tt_kernels.device_exchange.virtual_pair import CorePairExchange

    exchange = CorePairExchange(CorePair(device), users=1, timeout_s=timeout_s)
    tensors = [programs.words(device, 1, value) for value in (5, 6)]
    priorities = [programs.priorities(device, value) for value in (1, 2)]
    alone = exchange.core_pair_program([tensors], priorities, ranks=(0,))
    for _ in range(2):  # the second call returns at once
        ttnn.generic_op([*tensors, *priorities, *exchange.gathered], alone)
    states, message = exchange.pairs.states(), None
    try:
        exchange.check()
    except PeerError as error:
        message = str(error)
    before = [ttnn.to_torch(tensor).unique().tolist() for tensor in tensors]
    told = gathered_by(exchange)
    exchange.pairs.reset()
    exchange(tensors, priorities)
    exchange.check()
    after = [ttnn.to_torch(tensor).unique().tolist() for tensor in tensors]
    return states, message, before, told, after, gathered_by(exchange)


def test_a_silent_peer_ends_in_an_error_that_names_who_gave_up(chip):
    states, message, before, told, after, told_after = chip().run(silent_body, 2e-5)
    assert message == "rank 0 (core (0, 0)) gave up in call 1: the peer did not arrive"
    assert [state.calls for state in states] == [1, 0]
    assert before == [[5], [6]]
    assert told == [1, UNKNOWN], "what follows knows that it knows nothing of the peer"
    assert after == [[6], [6]] and told_after == [1, 2]


def half_peer_body(device, case):
    """Rank 0 runs the op; rank 1 is a kernel that arrives and then ends, in the same call or in
    another."""
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.peer import PeerError
    from tt_kernels.device_exchange.virtual_pair import CorePairExchange

    exchange = CorePairExchange(CorePair(device), users=1, timeout_s=2e-5)
    tensors = [programs.words(device, 1, value) for value in (5, 6)]
    priorities = [programs.priorities(device, value) for value in (1, 2)]
    program = exchange.core_pair_program([tensors], priorities, ranks=(0,))
    skipped = {"same call": 0, "another call": 1}[case]
    programs.add_half_peer(program, exchange.pairs, exchange.pairs.link_args(1), row_value=2, skipped=skipped)
    ttnn.generic_op([*tensors, *priorities, *exchange.gathered], program)
    try:
        exchange.check()
    except PeerError as error:
        return str(error), ttnn.to_torch(tensors[0]).unique().tolist(), gathered_by(exchange)
    return None


@pytest.mark.parametrize(
    ("case", "reason", "own"),
    [
        ("same call", "the peer arrived but its data did not", YIELDED),  # it holds nothing, and says so
        ("another call", "the peer is in another call", HOLDS_GUESS),
    ],
)
def test_a_peer_that_stops_half_way_or_is_out_of_step_is_told_apart(chip, case, reason, own):
    message, kept, told = chip().run(half_peer_body, case)
    assert message == f"rank 0 (core (0, 0)) gave up in call 1: {reason}"
    assert kept == [5] and told == [own, UNKNOWN]


def stress_body(device, calls):
    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.core_pair import CorePair

    return programs.stress_sessions(device, CorePair(device), calls)


def test_back_to_back_calls_never_mix(chip):
    """Both ranks run many calls in one kernel with uneven delays; each checks every message and payload."""
    calls = 60
    reports = chip().run(stress_body, calls)
    for rank, (done, wrong_rows, wrong_payloads, status) in enumerate(reports):
        assert (done, wrong_rows, wrong_payloads, status) == (calls, 0, 0, 0), f"rank {rank}"


def nobody_body(device):
    """The error of two priorities of 0; what a rank takes while both gates are closed; and the error of
    kernels without their define."""
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.peer import PeerError
    from tt_kernels.compute_gate.op import clear_compute_gate, set_compute_gate
    from tt_kernels.device_exchange.virtual_pair import CorePairExchange

    pair = CorePair(device)
    exchange = CorePairExchange(pair, users=1)
    tensors = [programs.words(device, 1, value) for value in (5, 6)]
    priorities = [programs.priorities(device, 0) for _ in range(2)]
    exchange(tensors, priorities)
    nobody = define = "not refused"
    try:
        exchange.check()
    except PeerError as error:
        nobody = str(error)
    ties = [state.ties for state in pair.states()]
    pair.reset()

    clear_compute_gate(device)
    set_compute_gate(priorities[0], users=1)
    programs.write_priorities(priorities[1], 2)
    exchange(tensors, priorities)
    exchange.check()
    clear_compute_gate(device)
    taken = ttnn.to_torch(tensors[0]).unique().tolist()

    for kernel in (program := exchange.core_pair_program([tensors], priorities)).kernels:
        kernel.defines = [define for define in kernel.defines if define[0] != "SGDC_UNGATED"]
    try:
        ttnn.generic_op([*tensors, *priorities, *exchange.gathered], program)
    except RuntimeError as error:
        define = str(error)
    return nobody, ties, taken, define


def test_nobody_holds_the_result_and_closed_gates_do_not_stop_the_exchange(chip):
    nobody, ties, taken, define = chip().run(nobody_body)
    assert nobody.count("both ranks have priority 0") == 2 and ties == [1, 1]
    assert taken == [6]
    assert "must be compiled with SGDC_UNGATED" in define
