# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a device runs in the tests of paged caches: each op on a plain cache and on a paged one of the same tokens."""

from __future__ import annotations

import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import upload_words
from tests.tt_kernels.tree_cache.tree_cache_programs import put, put_integers


def in_blocks(cache: torch.Tensor, table: torch.Tensor, block: int, blocks: int, garbage: float) -> torch.Tensor:
    """Lay a cache [users, kv_heads, capacity, head_dim] out as [blocks, kv_heads, block, head_dim]."""
    users, heads, capacity, head_dim = cache.shape
    laid = torch.full((blocks, heads, block, head_dim), garbage, dtype=cache.dtype)
    for user in range(users):
        for column in range(capacity // block):
            laid[table[user, column]] = cache[user, :, column * block : (column + 1) * block]
    return laid


def from_blocks(laid: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The inverse of `in_blocks`."""
    return torch.stack([laid[row.long()].transpose(0, 1).flatten(1, 2) for row in table])


def attention_body(device, dtype: str, queries, keys, values, cases, chunk_size: int, guess_range=None, lists=None):
    """For each of `cases` (table, block, blocks, garbage, positions): results of flash decode, its guess and its
    speculative form, from the plain cache and from the paged one. lists: of the tiles that guesses read."""
    import ttnn

    from tt_kernels.speculative_flash_decode.op import flash_decode, guess_flash_decode, speculative_flash_decode

    q = put(device, queries, "bfloat16")
    plain = [put(device, cache, dtype) for cache in (keys, values)]
    tile_lists = None if lists is None else upload_words(device, lists, "uint32")
    span = {"guess_range": guess_range, "tile_lists": tile_lists}
    found, before = [], device.num_program_cache_entries()
    for table, block, blocks, garbage, positions in cases:
        at = put_integers(device, positions)
        paged = [put(device, in_blocks(cache, table, block, blocks, garbage), dtype) for cache in (keys, values)]
        pages = put_integers(device, table.tolist())
        both = []
        for caches, more in ((plain, {}), (paged, {"page_table": pages})):
            exact = flash_decode(q, *caches, at, chunk_size=chunk_size, **more)
            guess = guess_flash_decode(q, *caches, at, chunk_size=chunk_size, **span, **more)
            decoded = speculative_flash_decode(q, *caches, at, chunk_size=chunk_size, **span, **more)
            both.append([ttnn.to_torch(tensor) for tensor in (exact, guess, *decoded)])
        found.append(both)
    return found, device.num_program_cache_entries() - before


def tree_body(device, dtype: str, queries, keys, values, new, cases, intervals):
    """For each of `cases` (table, block, blocks, garbage, prefixes, paths): tree attention after the nodes were
    written, the same with a guess of 32 tokens at either end, and the caches after their paths were committed; plain,
    then paged and put in order again."""
    import ttnn

    from tt_kernels.tree_attention.op import tree_attention
    from tt_kernels.tree_attention.speculative import speculative_tree_attention
    from tt_kernels.tree_cache.op import commit_path, write_nodes

    q = put(device, queries, "bfloat16")
    fresh = [put(device, rows, dtype) for rows in new]
    times = put_integers(device, intervals)
    nodes = len(intervals[0][0])
    found = []
    for table, block, blocks, garbage, prefixes, paths in cases:
        prefix = put_integers(device, prefixes)
        path = put_integers(device, [path + [-1] * (nodes - len(path)) for path in paths])
        plain = [put(device, cache, dtype) for cache in (keys, values)]
        paged = [put(device, in_blocks(cache, table, block, blocks, garbage), dtype) for cache in (keys, values)]
        pages = put_integers(device, table.tolist())
        both = []
        for caches, more in ((plain, {}), (paged, {"page_table": pages})):
            write_nodes(*caches, *fresh, prefix, nodes, **more)
            guessing = speculative_tree_attention(q, *caches, prefix, times, chunk_size=32, **more)
            out = [ttnn.to_torch(part) for part in (tree_attention(q, *caches, prefix, times, **more), *guessing)]
            commit_path(caches, prefix, path, nodes, **more)
            read = [ttnn.to_torch(cache) for cache in caches]
            both.append([*out, *(read if not more else [from_blocks(cache, table) for cache in read])])
        found.append(both)
    return found
