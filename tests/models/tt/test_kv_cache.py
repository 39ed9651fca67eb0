# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A chunk is written into a plain cache where the device reads, as ttnn.fill_cache writes where the host says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

HEADS, CAPACITY, HEAD_DIM, ROWS = 2, 192, 64, 64
PLACES = [(0, 0), (1, 96), (1, 128)]  # user, start: the last one fills the cache


def filled(mesh, dtype: str) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], int]:
    """The keys after each chunk, ours beside those of the stock op; the programs that chunks after the first
    compiled."""
    import ttnn

    from models.llama31_8b.tiny import TINY
    from models.llama31_8b.tt.kv_cache import KVCache
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import read

    shape = MeshShape(1, 1)
    config = replace(TINY.with_layers(1), num_key_value_heads=HEADS)
    cache = KVCache(mesh, shape, config, dtype, 2, CAPACITY)
    stock = ttnn.clone(cache.keys[0])
    places = shape.put(mesh, cache.places(0, 0, ROWS), "int32", "ROW_MAJOR_LAYOUT")
    random, found, programs = torch.Generator().manual_seed(1), [], 0
    for user, start in PLACES:
        values = torch.randn(1, HEADS, ROWS, HEAD_DIM, generator=random)
        new = shape.put(mesh, values, "bfloat16")
        host = shape.put(mesh, cache.places(user, start, ROWS), "int32", "ROW_MAJOR_LAYOUT", on_device=False)
        ttnn.copy_host_to_device_tensor(host, places)
        before = mesh.num_program_cache_entries()
        cache.fill(0, new, new, {HEADS: places})
        programs += mesh.num_program_cache_entries() - before if found else 0
        ttnn.fill_cache(stock, ttnn.typecast(new, cache.dtype), user, update_idx=start)
        found.append((read(cache.keys[0]), read(stock)))
    return found, programs


@pytest.mark.sim
@pytest.mark.parametrize("dtype", ["bfloat16", "bfloat8_b"])
def test_a_plain_cache_is_filled_where_the_device_reads(sim_device, dtype):
    found, programs = sim_device("1x1").run(filled, dtype)
    assert len(found) == len(PLACES) and programs == 0
    for number, (ours, stock) in enumerate(found):
        user, start = PLACES[number]
        assert torch.equal(ours, stock) and ours[user, :, start : start + ROWS].abs().min(-1).values.max() > 0, number
