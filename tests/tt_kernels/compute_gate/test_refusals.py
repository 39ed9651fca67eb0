# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the compute gate and the exchange refuse, and whether the error names it."""

from typing import Any

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, check_refused, priorities, refusals, words

pytestmark = pytest.mark.sim

OP, REGION, NOTHING = "tt_kernels.compute_gate.op", "tt_kernels.compute_gate.region", "tests.support.run_op:nothing"
EXCHANGE = "perf.lib.virtual_pair:CorePairExchange"


def row(value: int = 2, **options) -> In:
    return In(priorities(value).values, "uint32", **options)


def one_page(value: int = 5) -> In:
    return words(torch.full((1, 1, 1, 64), value), "uint32")


ROW, CORES = row(), Make("perf.lib.virtual_pair:CorePair", device=True)


def gate(priority: Any = ROW, **options) -> Make:
    """Return a region of the gate."""
    return Make(f"{OP}:skip_compute", priority, **options)


def enter(*given, **options) -> Call:
    """Return a call that enters a region and does nothing in it."""
    return Call(NOTHING, inside=gate(*given, **options))


def within(what: str, *arguments, **options) -> Call:
    """Return a call inside a region of an open gate whose chips along axis 1 share it."""
    return Call(what, *arguments, inside=gate(users=1, shared_gate_axis=1), **options)


def exchange(tensors: Any, rows: Any = (row(2), row(1)), *more, **options) -> Call:
    return Call(Make(EXCHANGE, CORES, users=1), tensors, list(rows), *more, **options)


PAIR, LOG = [one_page(5), one_page(6)], Make(f"{OP}:OutcomeLog", layers=2, users=1, device=True)
HOST, GONE, EMPTY = row(memory="HOST"), row(gone=True), In(torch.zeros(1, 1, 0, 64), "uint32")
VALUES = {
    # the gate's arguments
    "priority must be a ttnn.Tensor, it is a NoneType": enter(None),
    "priority must be a ttnn.Tensor, it is a Tensor": enter(Make("torch:zeros", 1, 1, 1, 32)),
    "priority must be a ttnn.Tensor, it is a list": enter([row()]),
    "priority must be UINT32 ROW_MAJOR (1, 1, 1, 32)": enter(one_page()),
    "it is UINT32 ROW_MAJOR (1, 1, 1, 32), interleaved in host memory": enter(HOST),
    "from 1 to 32, not 33": enter(users=33),
    "layer=0 is given without a log": enter(layer=0),
    "a log needs the layer": enter(log=LOG),
    "from 0 to 1, not 2": enter(log=LOG, layer=2),
    "counts 1 users, the gate 2": enter(users=2, log=LOG, layer=1),
    "OutcomeLog, not 3": enter(log=3, layer=1),
    "mesh of shape (1, 1), not 9": enter(shared_gate_axis=9),
    # the exchange
    "pairs is a ChipPairs, not None": Call("tt_kernels.device_exchange.op:DeviceExchange", None, users=1),
    "finite number of seconds, not 0": Call(EXCHANGE, CORES, users=1, timeout_s=0),
    "takes up to 4 tensors, not 5": exchange(PAIR, (row(2), row(1)), *[PAIR] * 4),
    "the tensor is empty, of shape": exchange([EMPTY, EMPTY]),
    "tensor has been deallocated": exchange([GONE, row()]),
    "priority has been deallocated": exchange(PAIR, [GONE, row()]),
    "must be on the device": exchange([HOST, HOST]),
    "priority must be UINT32 ROW_MAJOR": exchange(PAIR, [row(), PAIR[1]]),
    "(x, y) of integers, not (0.0, 0)": Call("perf.lib.virtual_pair:CorePair", ((0.0, 0), (1, 0)), device=True),
}
IN_REGION = {
    "regions do not nest": within(f"{__name__}:enter_again", row()),
    "set_compute_gate inside": within(f"{OP}:set_compute_gate", row()),
    "clear_compute_gate inside": within(f"{OP}:clear_compute_gate", device=True),
    "ttnn.experimental.all_gather_async": within("ttnn:experimental.all_gather_async", row()),
    "ours (cluster_axis=0) is a cross-chip op": within(f"{REGION}:refuse_in_region", "ours", 0),
    "device_exchange (cluster_axis=None)": exchange(PAIR, inside=gate(users=1)),
}


def enter_again(priority) -> None:
    """Enter a region, in the worker."""
    from tt_kernels.compute_gate.op import skip_compute

    with skip_compute(priority, users=1):
        pass


def test_what_cannot_work_is_refused_by_name(sim_device):
    device = sim_device("2x1", overlays=sgdc.overlays())
    check_refused(device, VALUES)
    check_refused(device, IN_REGION, "GatedRegionError")
    allowed = within(f"{REGION}:refuse_in_region", "ours", 1)
    left = Call(f"{__name__}:no_region")
    assert refusals(device, {"": allowed, "left": left}) == {"": "nothing", "left": "nothing"}


def no_region() -> None:
    from tt_kernels.compute_gate.region import active_region

    assert active_region() is None, "a refusal left its region open"
