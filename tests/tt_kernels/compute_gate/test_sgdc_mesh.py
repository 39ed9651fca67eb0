# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Gate and exchange over FABRIC_1D on full-size mock meshes: validated, allocated and compiled, not
executed."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from runtime_patches import sgdc
from tests.support.mesh_tensors import on_chips

pytestmark = pytest.mark.mock_mesh

HIDDEN = 4096  # Llama 3.1 8B
LAYERS = 32


def on_mesh(mesh, values, dtype, layout, memory=None):
    """The same values on every chip."""
    import ttnn

    return on_chips(mesh, values, dtype, layout, ttnn.ReplicateTensorToMesh(mesh), memory)


def decode_shard(columns: int):
    """The residual stream in decode: its columns over 32 cores."""
    import ttnn

    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 3))])
    spec = ttnn.ShardSpec(cores, [32, columns // 32], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, spec)


def layer_body(mesh, pair_axis, users):
    """A layer's exchange, gate and gated ops for each form of the residual; twice, to see the program
    cache."""
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import INITIAL, priority_row
    from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate, skip_compute
    from tt_kernels.device_exchange.op import DeviceExchange

    clear_compute_gate(mesh)
    exchange = DeviceExchange(ChipPairs(mesh, pair_axis), users=users)
    log = OutcomeLog(mesh, layers=LAYERS, users=users)
    priority = on_mesh(mesh, priority_row(INITIAL[0]), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    residual = torch.zeros(1, 1, 32, HIDDEN)
    forms = {
        "bf16 DRAM": on_mesh(mesh, residual, ttnn.bfloat16, ttnn.TILE_LAYOUT),
        "bf16 width sharded": on_mesh(mesh, residual, ttnn.bfloat16, ttnn.TILE_LAYOUT, decode_shard(HIDDEN)),
        "bfloat8_b DRAM": on_mesh(mesh, residual, ttnn.bfloat8_b, ttnn.TILE_LAYOUT),
    }
    entries = []
    for layer in (0, LAYERS - 1):
        for tensor in forms.values():
            gathered = exchange(tensor, priority)
            with skip_compute(priority, users=users, log=log, layer=layer):
                ttnn.add(tensor, tensor, output_tensor=tensor)
        entries.append(mesh.num_program_cache_entries())
    addresses = {part.buffer_address() for part in ttnn.get_device_tensors(gathered)}
    return entries, tuple(gathered.shape), len(addresses), exchange.pairs.names()


@pytest.mark.parametrize(("shape", "pair_axis"), [((1, 2), 1), ((2, 2), 0), ((2, 4), 0)], ids=["1x2", "2x2", "2x4"])
def test_a_layer_builds_at_llama_shapes(mock_mesh, shape, pair_axis):
    mesh = mock_mesh(shape, overlays=sgdc.overlays())
    entries, gathered, addresses, names = mesh.run(layer_body, pair_axis, 8)
    assert entries[0] == entries[1], f"the second layer was compiled again: {entries}"
    assert gathered == (1, 1, 2, 32) and addresses == 1
    assert len(names) == shape[0] * shape[1]


def fabric_body(mesh):
    """The programs of a 2x2 mesh: what each chip's exchange core is told about its peer."""
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import priority_row
    from tt_kernels.device_exchange.op import DeviceExchange

    pairs = ChipPairs(mesh, 0, core=(3, 2))
    exchange = DeviceExchange(pairs, users=1)
    priority = on_mesh(mesh, priority_row(2), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    tensor = on_mesh(mesh, torch.zeros(1, 1, 32, HIDDEN), ttnn.bfloat16, ttnn.TILE_LAYOUT)
    exchange(tensor, priority)
    core = mesh.worker_core_from_logical_core(ttnn.CoreCoord(3, 2))
    facts = {place: (pairs.sp_rank(place), pairs.peer(place)) for place in pairs.coordinates()}
    arguments = {}
    for place in pairs.coordinates():
        program = ttnn.ProgramDescriptor(kernels=[], semaphores=[], cbs=[])
        arguments[place] = (pairs.link_args(place, program), len(program.semaphores))
    refused = []
    for axis in (0, 1, 2):
        try:
            ChipPairs(mesh, axis)
            refused.append(None)
        except ValueError as error:
            refused.append(str(error))
    return facts, arguments, (core.x, core.y), refused


def test_every_chip_is_connected_to_its_partner_along_the_pair_axis(mock_mesh):
    mesh = mock_mesh((2, 2), overlays=sgdc.overlays())
    facts, arguments, core, refused = mesh.run(fabric_body)
    assert facts == {
        (0, 0): (0, (1, 0)),
        (0, 1): (0, (1, 1)),
        (1, 0): (1, (0, 0)),
        (1, 1): (1, (0, 1)),
    }
    for link, semaphores in arguments.values():
        assert link[:3] == [*core, 1] and len(link) > 3 and semaphores > 0
    assert refused[0] is None and refused[1] is None and "axis 2" in refused[2]


def refusal_body(mesh):
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import priority_row
    from tt_kernels.compute_gate.op import skip_compute
    from tt_kernels.compute_gate.region import GatedRegionError
    from tt_kernels.device_exchange.op import DeviceExchange

    priority = on_mesh(mesh, priority_row(2), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    tensor = on_mesh(mesh, torch.zeros(1, 1, 32, 128), ttnn.bfloat16, ttnn.TILE_LAYOUT)
    exchange = DeviceExchange(ChipPairs(mesh, 0), users=1)
    found = []
    with skip_compute(priority, users=1, shared_gate_axis=1):
        shape = tuple(ttnn.all_gather(tensor, dim=3, cluster_axis=1).shape)
        for call in (
            lambda: ttnn.all_gather(tensor, dim=3, cluster_axis=0),
            lambda: ttnn.all_gather(tensor, dim=3),
            lambda: exchange(tensor, priority),
        ):
            try:
                call()
                found.append(None)
            except GatedRegionError as error:
                found.append(str(error))
    across = "not refused"
    try:
        with skip_compute(priority, users=1, shared_gate_axis=0):
            across = "entered"
    except ValueError as error:
        across = str(error)
    return shape, found, across


def test_in_a_region_only_the_axis_that_shares_a_gate_may_communicate(mock_mesh):
    shape, found, across = mock_mesh((2, 2), overlays=sgdc.overlays()).run(refusal_body)
    assert shape == (1, 1, 32, 256)
    assert "shared_gate_axis=0: the chips along that axis are the two ranks of a pair" in across
    for message, name in zip(found, ("ttnn.all_gather", "ttnn.all_gather", "device_exchange"), strict=True):
        assert message.startswith(name) and "only cluster_axis=1 is permitted" in message


def fabric_refusal_body(mesh):
    from tt_kernels.common.peer import ChipPairs

    try:
        ChipPairs(mesh, 1)
    except ValueError as error:
        return str(error)
    return "not refused"


@pytest.mark.parametrize("fabric", ["FABRIC_2D", None])
def test_only_fabric_1d_connects_pairs_of_chips(mock_mesh, fabric):
    message = mock_mesh((1, 2), fabric=fabric, overlays=sgdc.overlays()).run(fabric_refusal_body)
    assert f"need FABRIC_1D, the fabric is {fabric or 'DISABLED'}" in message
    assert "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)" in message


def other_mesh_body(mesh):
    """Messages of calls with a tensor that lies on a submesh, or with one that does on the whole mesh."""
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import priority_row
    from tt_kernels.compute_gate.op import OutcomeLog, skip_compute
    from tt_kernels.device_exchange.op import DeviceExchange

    part = mesh.create_submesh(ttnn.MeshShape(2, 1))
    priority, there = (on_mesh(place, priority_row(2), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT) for place in (mesh, part))
    tensor, elsewhere = (
        on_mesh(place, torch.zeros(1, 1, 32, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT) for place in (mesh, part)
    )
    exchange = DeviceExchange(ChipPairs(mesh, 0), users=1)

    def gate():
        with skip_compute(priority, log=OutcomeLog(part, layers=1, users=1), layer=0):
            pass

    found = []
    twice = partial(exchange, tensor, priority, tensor)
    for call in (partial(exchange, elsewhere, priority), partial(exchange, tensor, there), gate, twice):
        try:
            call()
            found.append("not refused")
        except ValueError as error:
            found.append(str(error))
    return found


def test_tensors_of_another_mesh_and_the_same_twice_are_refused(mock_mesh):
    *found, twice = mock_mesh((2, 2), overlays=sgdc.overlays()).run(other_mesh_body)
    for message, name in zip(found, ("tensor", "priority", "the log"), strict=True):
        assert message.startswith(f"{name} is on mesh ") and "of shape (2, 1), not on mesh" in message
    assert twice.endswith("the same one was given twice")
