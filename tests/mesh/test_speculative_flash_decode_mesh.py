# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The fabric variant at Llama 3.1 8B shapes on mock meshes: it validates, fits L1 and compiles; nothing
executes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.mock_mesh

# (mesh, axis of the pairs); the other axis is tensor parallel, and the heads are split over it.
MESHES = [((1, 2), 1), ((2, 2), 0), ((2, 4), 0)]
HEAD_DIM, GROUP = 128, 4
EXCHANGE = (7, 7)


def llama_body(mesh, pair_axis: int, cases: list[tuple[int, int, int]]) -> dict:
    """Build the op for cases of (kv_heads a chip, context, chunk_size); what it placed where."""
    import torch
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import MAX_USERS, REJECTED, priority_row
    from tt_kernels.speculative_flash_decode.op import Peer, speculative_flash_decode

    def device_tensor(shape, dtype, layout=ttnn.TILE_LAYOUT):
        return ttnn.empty(list(shape), dtype, layout, mesh, ttnn.DRAM_MEMORY_CONFIG)

    def words(values):
        mapper = ttnn.ReplicateTensorToMesh(mesh)
        return ttnn.from_torch(
            values, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, mesh_mapper=mapper
        )

    pairs = ChipPairs(mesh, pair_axis, EXCHANGE)
    gathered = words(torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32))
    priority = words(priority_row(REJECTED))
    positions = device_tensor((1,), ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)
    before = mesh.num_program_cache_entries()
    shapes = []
    for kv_heads, context, chunk_size in cases:
        q = device_tensor((1, 1, kv_heads * GROUP, HEAD_DIM), ttnn.bfloat16)
        k, v = (device_tensor((1, kv_heads, context, HEAD_DIM), ttnn.bfloat8_b) for _ in range(2))
        outputs = speculative_flash_decode(
            q, k, v, positions, chunk_size=chunk_size, priority=priority, peer=Peer(pairs, gathered)
        )
        shapes.append([tuple(tensor.shape) for tensor in outputs])
        for tensor in (q, k, v, *outputs):
            ttnn.deallocate(tensor)
    return {"programs": mesh.num_program_cache_entries() - before, "shapes": shapes}


@pytest.mark.parametrize("mesh, pair_axis", MESHES, ids=["1x2", "2x2", "2x4"])
def test_llama_shapes_build_on_every_pair(mock_mesh, mesh, pair_axis):
    tensor_parallel = mesh[0] * mesh[1] // 2
    kv_heads = 8 // tensor_parallel
    cases = [(kv_heads, context, chunk) for context in (1024, 32768, 131072) for chunk in (128, 256, 512)]
    found = mock_mesh(mesh).run(llama_body, pair_axis, cases, timeout=900)
    assert 3 <= found["programs"] <= len(cases)  # buffers depend on the chunk, contexts may share a program
    row, numbers = (1, 1, kv_heads * GROUP, HEAD_DIM), (1, 1, 1, 1)
    assert found["shapes"] == len(cases) * [[row, row, numbers, numbers]]


def refusals_body(mesh) -> list[str]:
    """Messages of calls with a peer that must not be launched."""
    import torch
    import ttnn

    from tt_kernels.common.peer import ChipPairs, CorePair
    from tt_kernels.common.priority import MAX_USERS, REJECTED, priority_row
    from tt_kernels.compute_gate.region import GatedRegionError, gated_region
    from tt_kernels.speculative_flash_decode.op import Peer, speculative_flash_decode

    def words(values):
        mapper = ttnn.ReplicateTensorToMesh(mesh)
        return ttnn.from_torch(
            values, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, mesh_mapper=mapper
        )

    def empty(shape, dtype, layout=ttnn.TILE_LAYOUT):
        return ttnn.empty(list(shape), dtype, layout, mesh, ttnn.DRAM_MEMORY_CONFIG)

    pairs = ChipPairs(mesh, 1, EXCHANGE)
    gathered, row = words(torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32)), words(priority_row(REJECTED))
    q, (k, v) = (
        empty((1, 1, 32, 128), ttnn.bfloat16),
        (empty((1, 8, 512, 128), ttnn.bfloat8_b) for _ in range(2)),
    )
    positions = empty((1,), ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)

    def call(**options):
        try:
            speculative_flash_decode(q, k, v, positions, chunk_size=128, **options)
        except (ValueError, GatedRegionError) as error:
            return str(error)
        return "nothing was refused"

    messages = [
        call(peer=Peer(pairs, gathered)),
        call(peer=Peer(pairs, row), priority=row),
        call(peer=Peer(CorePair(mesh), [gathered, gathered]), priority=row),
    ]
    with gated_region():
        messages.append(call(peer=Peer(pairs, gathered), priority=row))
    return messages


def test_calls_that_would_hang_a_pair_are_refused(mock_mesh):
    without_priority, wrong_gathered, virtual, gated = mock_mesh((1, 2)).run(refusals_body)
    assert "give priority=" in without_priority
    assert "(1, 1, 2, 32), interleaved, on device; it is UINT32 ROW_MAJOR (1, 1, 1, 32)" in wrong_gathered
    assert "CorePair: a virtual pair is run by speculative_flash_decode_pair" in virtual
    assert "speculative_flash_decode (cluster_axis=1) is a cross-chip op" in gated
