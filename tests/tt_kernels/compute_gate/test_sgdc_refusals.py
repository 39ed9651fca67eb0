# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the compute gate and the exchange refuse, and whether the error names it."""

from __future__ import annotations

from functools import cached_property

import pytest
import torch

from runtime_patches import sgdc

pytestmark = pytest.mark.sim


class World:
    """What the calls below are given; in the worker."""

    def __init__(self, device):
        self.device = device
        self.priority = self.row(2)

    def row(self, values):
        from tests.tt_kernels.compute_gate import sgdc_programs

        return sgdc_programs.priorities(self.device, values)

    @cached_property
    def words(self):
        from tests.tt_kernels.compute_gate import sgdc_programs

        return [sgdc_programs.words(self.device, 1, value) for value in (5, 6)]

    @cached_property
    def log(self):
        """A log of one user and two layers."""
        from tt_kernels.compute_gate.op import OutcomeLog

        return OutcomeLog(self.device, layers=2, users=1)

    def enter(self, priority, call=lambda: None, **options):
        from tt_kernels.compute_gate.op import skip_compute

        with skip_compute(priority, **options):
            call()

    def inside(self, call, **options):
        """`call` in a region of an open gate."""
        self.enter(self.priority, call, users=1, **options)

    def core_pair(self, *cores):
        from tt_kernels.common.core_pair import CorePair

        return CorePair(self.device, cores or ((0, 0), (1, 0)))

    def exchange(self, tensor, priority, *more):
        from tt_kernels.device_exchange.virtual_pair import CorePairExchange

        return CorePairExchange(self.core_pair(), users=1)(tensor, priority, *more)

    def deallocated(self):
        import ttnn

        tensors = [self.row(0) for _ in range(2)]
        ttnn.deallocate(tensors[0])
        return tensors

    def empty(self):
        import ttnn

        return [
            ttnn.empty([1, 1, 0, 64], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, self.device, ttnn.DRAM_MEMORY_CONFIG)
            for _ in range(2)
        ]

    def timeout(self, seconds):
        from tt_kernels.device_exchange.virtual_pair import CorePairExchange

        CorePairExchange(self.core_pair(), users=1, timeout_s=seconds)

    def all_gather(self, name="all_gather", **options):
        import ttnn

        call = getattr(ttnn, name, None) or getattr(ttnn.experimental, name)  # as `from ttnn import` binds it
        self.inside(lambda: call(self.priority, **options), shared_gate_axis=1)

    def ours(self, axis):
        from tt_kernels.compute_gate.region import refuse_in_region

        self.inside(lambda: refuse_in_region("ours", axis), shared_gate_axis=1)

    def gate(self, name, *arguments):
        from tt_kernels.compute_gate import op

        getattr(op, name)(*arguments)

    def without_pairs(self):
        from tt_kernels.device_exchange.op import DeviceExchange

        DeviceExchange(None, users=1)

    def host_row(self):
        import ttnn

        return ttnn.from_torch(torch.zeros(1, 1, 1, 32, dtype=torch.int32), dtype=ttnn.uint32)

    def other_words(self):
        return [self.words[0], self.row(0)]


def two(w):
    return [w.row(2), w.row(1)]


VALUE, REGION = "ValueError", "GatedRegionError"
CALLS = {
    # the gate's arguments
    "gate of None": (lambda w: w.enter(None), VALUE, "not builtins.NoneType"),
    "gate of a torch tensor": (lambda w: w.enter(torch.zeros(1, 1, 1, 32)), VALUE, "not torch.Tensor"),
    "gate of a list": (lambda w: w.enter([w.priority]), VALUE, "a ttnn.Tensor, not builtins.list"),
    "gate of a wrong row": (lambda w: w.enter(w.words[0]), VALUE, "priority must be uint32"),
    "gate of a row on the host": (lambda w: w.enter(w.host_row()), VALUE, "interleaved on device"),
    "33 users": (lambda w: w.enter(w.priority, users=33), VALUE, "from 1 to 32, not 33"),
    "True users": (lambda w: w.enter(w.priority, users=True), VALUE, "from 1 to 32, not True"),
    "layer without log": (lambda w: w.enter(w.priority, layer=0), VALUE, "layer=0 is given without a log"),
    "log without layer": (lambda w: w.enter(w.priority, log=w.log), VALUE, "a log needs the layer"),
    "layer outside": (lambda w: w.enter(w.priority, log=w.log, layer=2), VALUE, "from 0 to 1, not 2"),
    "layer True": (lambda w: w.enter(w.priority, log=w.log, layer=True), VALUE, "from 0 to 1, not True"),
    "log of other users": (
        lambda w: w.enter(w.priority, users=2, log=w.log, layer=1), VALUE, "counts 1 users, the gate 2",
    ),
    "log that is none": (lambda w: w.enter(w.priority, log=3, layer=1), VALUE, "OutcomeLog, not builtins.int"),
    "axis outside": (lambda w: w.inside(list, shared_gate_axis=9), VALUE, "mesh of shape (1, 1), not 9"),
    "axis True": (lambda w: w.inside(list, shared_gate_axis=True), VALUE, "mesh of shape (1, 1), not True"),
    # inside a region
    "a region in a region": (lambda w: w.inside(lambda: w.inside(list)), REGION, "regions do not nest"),
    "setting the gate": (
        lambda w: w.inside(lambda: w.gate("set_compute_gate", w.priority)), REGION, "set_compute_gate inside",
    ),
    "clearing the gate": (
        lambda w: w.inside(lambda: w.gate("clear_compute_gate", w.device)), REGION, "clear_compute_gate inside",
    ),
    "all_gather": (
        lambda w: w.all_gather(dim=3, cluster_axis=0), REGION, "ttnn.all_gather (cluster_axis=0)",
    ),
    "all_gather_async": (
        lambda w: w.all_gather("all_gather_async"), REGION, "ttnn.experimental.all_gather_async",
    ),
    "an op of ours": (lambda w: w.ours(0), REGION, "ours (cluster_axis=0) is a cross-chip op"),
    "an op of ours along the permitted axis": (lambda w: w.ours(1), "nothing", ""),
    "the exchange": (
        lambda w: w.inside(lambda: w.exchange(w.words, two(w))), REGION, "device_exchange (cluster_axis=None)",
    ),
    # the exchange
    "no pairs": (lambda w: w.without_pairs(), VALUE, "pairs is a ChipPairs, not None"),
    "no time": (lambda w: w.timeout(0), VALUE, "finite number of seconds, not 0"),
    "endless time": (lambda w: w.timeout(float("inf")), VALUE, "finite number of seconds, not inf"),
    "no number of time": (lambda w: w.timeout(float("nan")), VALUE, "finite number of seconds, not nan"),
    "time as text": (lambda w: w.timeout("2"), VALUE, "finite number of seconds, not '2'"),
    "exchange of None": (lambda w: w.exchange(None, two(w)), VALUE, "a list of two tensors, not a NoneType"),
    "exchange of one": (lambda w: w.exchange(w.words[0], two(w)), VALUE, "a list of two tensors, not a Tensor"),
    "exchange of the same": (lambda w: w.exchange([w.words[0]] * 2, two(w)), VALUE, "same one was given twice"),
    "exchange of five parts": (
        lambda w: w.exchange(w.words, two(w), *[w.words] * 4), VALUE, "takes up to 4 tensors, not 5",
    ),
    "exchange with one priority": (
        lambda w: w.exchange(w.words, [w.priority] * 2), VALUE, "need a priority each; the same one was given twice",
    ),
    "exchange of nothing": (lambda w: w.exchange(w.empty(), two(w)), VALUE, "the tensor is empty, of shape"),
    "exchange of what is gone": (lambda w: w.exchange(w.deallocated(), two(w)), VALUE, "tensor has been deallocated"),
    "priorities that are gone": (lambda w: w.exchange(w.words, w.deallocated()), VALUE, "priority has been deallo"),
    "exchange of unlike ones": (lambda w: w.exchange(w.other_words(), two(w)), VALUE, "tensors differ"),
    "exchange on the host": (
        lambda w: w.exchange([w.host_row()] * 2, two(w)), VALUE, "must be on the device",
    ),
    "exchange by a wrong row": (
        lambda w: w.exchange(w.words, [w.priority, w.words[1]]), VALUE, "priority must be uint32",
    ),
    "a core outside": (lambda w: w.core_pair((0, 0), (2, 0)), VALUE, "outside the grid of 2x1"),
    "cores in disorder": (lambda w: w.core_pair((1, 0), (0, 0)), VALUE, "rank 0 comes first"),
    "a core of floats": (lambda w: w.core_pair((0.0, 0), (1, 0)), VALUE, "(x, y) of integers, not (0.0, 0)"),
}  # fmt: skip


def attempt_body(device, name):
    from tt_kernels.compute_gate.op import clear_compute_gate
    from tt_kernels.compute_gate.region import GatedRegionError, active_region

    clear_compute_gate(device)
    try:
        CALLS[name][0](World(device))
    except (ValueError, GatedRegionError) as error:
        found = type(error).__name__, str(error)
    else:
        found = "nothing", ""
    return *found, active_region()


@pytest.mark.parametrize("name", CALLS)
def test_what_cannot_work_is_refused_by_name(sim_device, name):
    kind, message, region = sim_device("2x1", overlays=sgdc.overlays()).run(attempt_body, name)
    _, wanted, part = CALLS[name]
    assert (kind, region) == (wanted, None) and part in message, f"{kind}: {message}"
