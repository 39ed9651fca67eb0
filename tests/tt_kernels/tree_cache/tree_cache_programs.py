# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a device runs in the tests of the tree's cache ops."""

from __future__ import annotations

import torch


def put_integers(device, rows):
    import ttnn

    return ttnn.from_torch(
        torch.tensor(rows, dtype=torch.int32),
        dtype=ttnn.int32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        device=device,
    )


def put(device, tensor: torch.Tensor, dtype: str):
    import ttnn

    return ttnn.from_torch(tensor, dtype=getattr(ttnn, dtype), layout=ttnn.TILE_LAYOUT, device=device)


def move_body(device, dtype: str, cache_rows, new_rows, calls, first_column: int):
    """For each of `calls` (prefixes, paths) from the same first contents: the cache as stored, the cache after the
    nodes were written, after their paths were committed; of keys and values. Besides the program cache's entries."""
    import ttnn

    from tt_kernels.tree_cache.op import commit_path, write_nodes

    users = cache_rows[0].shape[0]
    nodes = new_rows[0].shape[2] // users
    hosts = [ttnn.from_torch(t, dtype=getattr(ttnn, dtype), layout=ttnn.TILE_LAYOUT) for t in cache_rows]
    caches = [put(device, t, dtype) for t in cache_rows]
    fresh = [put(device, t, dtype) for t in new_rows]
    results, entries = [], set()
    for prefixes, paths in calls:
        for host, cache in zip(hosts, caches, strict=True):
            ttnn.copy_host_to_device_tensor(host, cache)
        prefix = put_integers(device, prefixes)
        stages = [[ttnn.to_torch(cache) for cache in caches]]
        write_nodes(*caches, *fresh, prefix, nodes)
        stages.append([ttnn.to_torch(cache) for cache in caches])
        padded = [[99] * first_column + path + [-1] * (nodes - len(path)) for path in paths]
        commit_path(caches, prefix, put_integers(device, padded), nodes, first_column=first_column)
        stages.append([ttnn.to_torch(cache) for cache in caches])
        entries.add(device.num_program_cache_entries())
        results.append(stages)
    return results, [ttnn.to_torch(t) for t in fresh], entries


def sequential_body(device, cache_rows: torch.Tensor, tokens: torch.Tensor, start: int) -> torch.Tensor:
    """A bfloat16 cache after ttnn's own update has written `tokens`, [1, kv_heads, count, head_dim], one by one."""
    import ttnn

    cache = put(device, cache_rows, "bfloat16")
    for step in range(tokens.shape[2]):
        row = tokens[:, :, step : step + 1].permute(0, 2, 1, 3)  # [1, users, kv heads, head_dim]
        shards = ttnn.create_sharded_memory_config(
            (32, row.shape[3]),
            core_grid=ttnn.num_cores_to_corerangeset(1, device.compute_with_storage_grid_size(), row_wise=True),
            strategy=ttnn.ShardStrategy.HEIGHT,
            use_height_and_width_as_shard_shape=True,
        )
        new = ttnn.to_memory_config(put(device, row, "bfloat16"), shards)
        ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=put_integers(device, [start + step]))
    return ttnn.to_torch(cache)
