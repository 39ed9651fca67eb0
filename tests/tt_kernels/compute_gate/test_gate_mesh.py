# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Gate and exchange over FABRIC_1D on full-size mock meshes: validated, allocated and compiled, not executed."""

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, priorities, refusals, run_ops, shards
from tt_kernels.common.priority import INITIAL

pytestmark = pytest.mark.mock_mesh

HIDDEN = 4096  # Llama 3.1 8B
LAYERS, USERS = 32, 8
OP, PAIRS = "tt_kernels.compute_gate.op", "tt_kernels.common.peer:ChipPairs"


@pytest.fixture(scope="module")
def gated(mock_mesh):
    return lambda shape, **options: mock_mesh(shape, overlays=sgdc.overlays(), **options)


def exchange_of(axis: int, users: int) -> Make:
    return Make("tt_kernels.device_exchange.op:DeviceExchange", Make(PAIRS, axis, device=True), users=users)


def row(value: int = 2) -> In:
    return priorities(value, None)


def layer(exchange, priority, log, residual, number: int):
    """Do a layer's exchange, gate and gated op."""
    import ttnn

    from tt_kernels.compute_gate.op import skip_compute

    gathered = exchange(residual, priority)
    with skip_compute(priority, users=USERS, log=log, layer=number):
        ttnn.add(residual, residual, output_tensor=residual)
    return gathered


@pytest.mark.parametrize(("shape", "axis"), [((1, 2), 1), ((2, 2), 0), ((2, 4), 0)], ids=["1x2", "2x2", "2x4"])
def test_a_layer_builds_at_llama_shapes_once_for_all_layers(gated, shape, axis):
    exchange, priority = exchange_of(axis, USERS), row(INITIAL[0])
    log, zeros = Make(f"{OP}:OutcomeLog", layers=LAYERS, users=USERS, device=True), torch.zeros(1, 1, 32, HIDDEN)
    forms = [In(zeros), In(zeros, memory=shards(32, HIDDEN // 32)), In(zeros, "bfloat8_b")]
    calls = [
        Call(f"{__name__}:layer", exchange, priority, log, form, number) for number in (0, LAYERS - 1) for form in forms
    ]
    results = run_ops(gated(shape), calls)
    assert results[2]["entries"] == results[5]["entries"], "the second layer was compiled again"
    for found in results:
        assert [tuple(part.shape) for part in found["out"].values()] == [(1, 1, 2, 32)] * (shape[0] * shape[1])


def region(axis: int = 1) -> Make:
    return Make(f"{OP}:skip_compute", row(), users=1, shared_gate_axis=axis)


def test_in_a_region_only_the_axis_that_shares_a_gate_may_communicate(gated):
    tensor, exchange = In(torch.zeros(1, 1, 32, 128)), exchange_of(0, 1)

    def gather(**options) -> Call:
        return Call("ttnn:all_gather", tensor, dim=3, inside=region(), **options)

    (found,) = run_ops(gated((2, 2)), [gather(cluster_axis=1)])
    assert found["out"][0, 0].shape == (1, 1, 32, 256)
    calls = {"ttnn.all_gather (cluster_axis=0)": gather(cluster_axis=0), "ttnn.all_gather (": gather()}
    calls["device_exchange"] = Call(exchange, tensor, row(), inside=region())
    for said, message in refusals(gated((2, 2)), calls).items():
        assert message.startswith(f"GatedRegionError: {said}") and "only cluster_axis=1 is permitted" in message
    assert "axis 2" in refusals(gated((2, 2)), {"": Call(PAIRS, 2, device=True)})[""]
    across = refusals(gated((2, 2)), {"": Call("tests.support.run_op:nothing", exchange, inside=region(0))})[""]
    assert "shared_gate_axis=0: the chips along that axis are the two ranks of a pair" in across


@pytest.mark.parametrize("fabric", ["FABRIC_2D", None])
def test_only_fabric_1d_connects_pairs_of_chips(gated, fabric):
    message = refusals(gated((1, 2), fabric=fabric), {"": Call(PAIRS, 1, device=True)})[""]
    assert f"need FABRIC_1D, the fabric is {fabric or 'DISABLED'}" in message
    assert "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)" in message


def of_another_mesh(mesh) -> list[str]:
    """Return the messages of calls with what lies on a submesh."""
    import ttnn

    from tests.support.run_op import World
    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.compute_gate.op import OutcomeLog, skip_compute
    from tt_kernels.device_exchange.op import DeviceExchange

    part, found = mesh.create_submesh(ttnn.MeshShape(2, 1)), []
    (priority, tensor), (there, elsewhere) = (
        [World(place).put(each) for each in (row(), In(torch.zeros(1, 1, 32, 32)))] for place in (mesh, part)
    )
    exchange, log = DeviceExchange(ChipPairs(mesh, 0), users=1), OutcomeLog(part, layers=1, users=1)
    for call in (
        lambda: exchange(elsewhere, priority),
        lambda: exchange(tensor, there),
        lambda: skip_compute(priority, log=log, layer=0).__enter__(),
        lambda: exchange(tensor, priority, tensor),
    ):
        try:
            call()
            found.append("nothing")
        except ValueError as error:
            found.append(str(error))
    return found


def test_tensors_of_another_mesh_and_the_same_twice_are_refused(gated):
    *found, twice = gated((2, 2)).run(of_another_mesh)
    for message, name in zip(found, ("tensor", "priority", "the log"), strict=True):
        assert message.startswith(f"{name} is on mesh ") and "of shape (2, 1), not on mesh" in message
    assert twice.endswith("the same one was given twice")
