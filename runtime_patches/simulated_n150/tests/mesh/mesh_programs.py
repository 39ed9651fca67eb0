# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies that run on a simulated mesh, in its worker."""

from __future__ import annotations

from runtime_patches.simulated_n150.testing.tensors import on_chips


def gather_body(mesh, x, dim, axis):
    """`x`, cut along `dim` over the chips of `axis` and equal along the other, gathered: what each chip holds."""
    import ttnn

    shape = tuple(mesh.shape)
    dims = tuple(dim if a == axis else None for a in (0, 1))
    mapper = ttnn.ShardTensor2dMesh(mesh, dims=dims, mesh_shape=shape)
    shards = on_chips(mesh, x, ttnn.bfloat16, ttnn.TILE_LAYOUT, mapper)
    gathered = ttnn.all_gather(shards, dim=dim, cluster_axis=axis)
    return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(gathered)]


def _async_arguments(mesh, name):
    """The semaphores, counts of them by ttnn 0.81.1, and the rest that the async collective `name` wants."""
    import ttnn

    size = mesh.compute_with_storage_grid_size()
    last = ttnn.CoreCoord(size.x - 1, size.y - 1)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), last)])

    def semaphores(count):
        return [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(count)]

    common = {"num_links": 1, "topology": ttnn.Topology.Linear}
    if name == "all_reduce_async":
        groups = {"barrier_semaphores": 2, "rs_global_semaphores": 3, "ag_global_semaphores": 2}
        own = {key: semaphores(count) for key, count in groups.items()}
        return common | own | {"mesh_device": mesh, "math_op": ttnn.ReduceType.Sum}
    counted = {"all_gather_async": 2, "reduce_scatter_minimal_async": 3}[name]
    own = {"multi_device_global_semaphore": semaphores(counted), "barrier_semaphore": semaphores(1)[0]}
    return common | own


def collective_body(mesh, name, x, dtype, memory, arguments):
    """``ttnn.<name>`` of `x`, [chips, 1, rows, columns], a part a chip: what each chip holds afterwards.

    arguments: of the collective; memory: name of a ttnn memory config, or "sharded": a tile column a core, and the
    output in DRAM.
    """
    import ttnn

    if memory == "sharded":
        columns = x.shape[-1] // 32
        row = ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(columns - 1, 0))
        shard = ttnn.ShardSpec(ttnn.CoreRangeSet([row]), [x.shape[-2], 32], ttnn.ShardOrientation.ROW_MAJOR)
        place = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, shard)
        arguments = arguments | {"memory_config": ttnn.DRAM_MEMORY_CONFIG}
    else:
        place = getattr(ttnn, memory)
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    shards = on_chips(mesh, x, getattr(ttnn, dtype), ttnn.TILE_LAYOUT, mapper, place)
    arguments = {
        key: ttnn.MeshCoordinate(*value) if key.endswith(("coord", "coordinate")) else value
        for key, value in arguments.items()
    }
    if name in ("point_to_point", "broadcast"):
        arguments["topology"] = ttnn.Topology.Linear
    module = ttnn
    if name.endswith("_async"):
        module, arguments = ttnn.experimental, arguments | _async_arguments(mesh, name)
    output = getattr(module, name)(shards, **arguments)
    return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(output)]


def long_transfers_body(mesh, x, cycles):
    """Add, then read back again and again for so many cycles, in which no program runs."""
    import os

    import ttnn

    from runtime_patches.simulated_n150.links import Links

    links, mapper = Links(os.getpid()), ttnn.ReplicateTensorToMesh(mesh)
    t = on_chips(mesh, x, ttnn.bfloat16, ttnn.TILE_LAYOUT, mapper)
    total, start = ttnn.add(t, t), links.cycle()
    while links.cycle() < start + cycles:
        parts = [ttnn.to_torch(part) for part in ttnn.get_device_tensors(total)]
    return parts


def first_writes_body(mesh):
    """Cycles that go by while every chip's last core is written for the first time."""
    import os

    import torch
    import ttnn

    from runtime_patches.simulated_n150.links import Links

    size = mesh.compute_with_storage_grid_size()
    last = ttnn.CoreCoord(size.x - 1, size.y - 1)
    shard = ttnn.ShardSpec(ttnn.CoreRangeSet([ttnn.CoreRange(last, last)]), [1, 64], ttnn.ShardOrientation.ROW_MAJOR)
    links = Links(os.getpid())
    start = links.cycle()
    ttnn.from_torch(
        torch.ones(1, 1, 1, 64, dtype=torch.int32),
        dtype=ttnn.uint32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        device=mesh,
        memory_config=ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shard),
        mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
    )
    return links.cycle() - start
