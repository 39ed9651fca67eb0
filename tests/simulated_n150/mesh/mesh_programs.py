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
