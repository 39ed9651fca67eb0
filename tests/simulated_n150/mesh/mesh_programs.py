# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies that run on a simulated mesh, in its worker."""

from __future__ import annotations


def gather_body(mesh, x, dim, axis):
    """`x`, cut along `dim` over the chips of `axis` and equal along the other, gathered: what each chip holds."""
    import ttnn

    shape = tuple(mesh.shape)
    dims = tuple(dim if a == axis else None for a in (0, 1))
    shards = ttnn.from_torch(
        x,
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, dims=dims, mesh_shape=shape),
    )
    gathered = ttnn.all_gather(shards, dim=dim, cluster_axis=axis)
    return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(gathered)]


def collective_body(mesh, name, x, dtype, memory, arguments):
    """``ttnn.<name>`` of `x`, [chips, 1, rows, columns], a part a chip: what each chip holds afterwards.

    arguments: of the collective; memory: name of a ttnn memory config.
    """
    import ttnn

    shards = ttnn.from_torch(
        x,
        dtype=getattr(ttnn, dtype),
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        memory_config=getattr(ttnn, memory),
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
    )
    arguments = {
        key: ttnn.MeshCoordinate(*value) if key.endswith(("coord", "coordinate")) else value
        for key, value in arguments.items()
    }
    if name in ("point_to_point", "broadcast"):
        arguments["topology"] = ttnn.Topology.Linear
    output = getattr(ttnn, name)(shards, **arguments)
    return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(output)]


def large_tensor_body(mesh, x):
    """Upload, add, read back: long transfers during which no program runs."""
    import ttnn

    t = ttnn.from_torch(
        x,
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
    )
    return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(ttnn.add(t, t))]
