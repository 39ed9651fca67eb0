# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of attention over pages, over token trees and at long contexts.

Measured in a process with an open device; ttnn is imported there alone. Cores count cycles; those of this repository's
kernels start together (perf/lib/start_line.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from perf.lib.chip import Chip, counted_from_start, cycles_of, cycles_until_end
from perf.ops.family import Family, Row, measurable

MAX_CONTEXT = 131072  # Llama 3.1's

# --- what a page table costs ---

CHUNK, NODES = 128, 16


def _paged_cache(device, p: SimpleNamespace) -> Row:
    """The same op over a plain cache and over pages in a random order: one key/value head of Llama 3.1 8B."""
    import torch

    from perf.lib.tensors import intervals_of, parents_of, tile, words
    from tt_kernels.speculative_flash_decode.op import ProgramConfig as DecodeConfig
    from tt_kernels.speculative_flash_decode.op import flash_decode
    from tt_kernels.tree_attention.op import ProgramConfig, tree_attention

    torch.manual_seed(0)
    columns = p.context // p.block
    order = torch.randperm(columns)
    plain = [tile(device, (1, 1, p.context, 128), "bfloat8_b") for _ in range(2)]
    paged = [tile(device, (columns, 1, p.block, 128), "bfloat8_b") for _ in range(2)]
    table = words(device, order[None])
    if p.op == "decode":
        q, at = tile(device, (1, 1, 4, 128)), words(device, [p.context - 1])
        config = DecodeConfig((4, 2), workers_per_head=p.workers)
        launch = partial(flash_decode, q, cur_pos=at, chunk_size=CHUNK, program_config=config)
    else:
        q, prefix = tile(device, (1, 4, NODES, 128)), words(device, [p.context - NODES])
        intervals = words(device, [intervals_of(parents_of("chain", NODES))])
        tree = ProgramConfig((4, 2), workers_per_head=p.workers, query_tiles=NODES * 4 // 32, key_chunk=CHUNK)
        launch = partial(tree_attention, q, prefix=prefix, intervals=intervals, program_config=tree)
    row = {
        "plain": cycles_of(device, lambda: launch(k=plain[0], v=plain[1])),
        "paged": cycles_of(device, lambda: launch(k=paged[0], v=paged[1], page_table=table)),
    }
    return measurable(row) | {"ratio": row["paged"] / row["plain"]}


PAGED_CACHE = Family(
    about="what a page table costs attention",
    options={"op": "decode", "context": 1024, "block": 64, "workers": 7},
    choices={"op": ("decode", "tree")},
    points={"default": ["context=1024,4096 block=32,64,128", "workers=1", "op=tree context=1024,4096"]},
    chip=lambda point: Chip("4x2"),
    measure=_paged_cache,
)

# --- token trees ---

GUESS = 128


def _tree_attention(device, p: SimpleNamespace) -> Row:
    """One key/value head: the tree; a chain of as many nodes; the stock decode attention with an explicit mask, the
    nodes' queries as so many heads of one user, on one core, as it is started; one flash decode, of which a tree of N
    nodes replaces N; and the tree with a guess of GUESS tokens at either end, which one more core decides on."""
    import torch
    import ttnn

    from perf.lib.tensors import intervals_of, parents_of, tile, words
    from runtime_patches.profiling.cycles import measure
    from tt_kernels.speculative_flash_decode.op import ProgramConfig as DecodeConfig
    from tt_kernels.speculative_flash_decode.op import flash_decode
    from tt_kernels.tree_attention.op import (
        ProgramConfig,
        check_intervals,
        check_room,
        speculative_tree_attention,
        tree_attention,
    )

    torch.manual_seed(0)
    rows, before = p.heads * p.nodes, p.context - p.nodes
    q, q_one, q_rows = (
        tile(device, (1, *shape, p.head_dim)) for shape in ((p.heads, p.nodes), (1, p.heads), (1, rows))
    )
    k, v = (tile(device, (1, 1, p.context, p.head_dim)) for _ in range(2))
    grid = (p.workers, 1) if p.workers <= 4 else (4, 2)
    prefix = words(device, [before])
    check_room([before], p.nodes, p.context)

    def tree(shape, op=tree_attention, grid=grid):
        enter, leave = intervals_of(parents_of(shape, p.nodes))
        check_intervals(enter, leave)
        intervals = words(device, [[enter, leave]])
        # All query tiles on the same cores: the keys are read once.
        config = ProgramConfig(grid, workers_per_head=p.workers, query_tiles=-(-rows // 32), key_chunk=CHUNK)
        return partial(op, q, k, v, prefix, intervals, program_config=config)

    at, one_head = words(device, [p.context - 1]), DecodeConfig(grid, workers_per_head=p.workers)
    stock = speculating = None
    if p.workers == 1:
        mask = tile(device, (1, 1, rows, p.context))  # its values cost nothing
        config = ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=ttnn.CoreCoord(1, 1), q_chunk_size=32, k_chunk_size=CHUNK
        )
        op = ttnn.transformer.scaled_dot_product_attention_decode
        counts = measure(device, partial(op, q_rows, k, v, is_causal=False, attn_mask=mask, program_config=config))
        starts = (span.start for core in counts.values() for span in core.kernels().values())
        stock = cycles_until_end(counts.values(), min(starts))
    shaped, chained = tree(p.shape), tree("chain")
    if before >= 2 * GUESS:
        guessing = partial(speculative_tree_attention, chunk_size=GUESS)
        speculating = cycles_of(device, tree(p.shape, guessing, (4, 3)))
    row = {"tree": cycles_of(device, shaped), "chain": cycles_of(device, chained), "stock": stock}
    row["decode"] = cycles_of(device, partial(flash_decode, q_one, k, v, at, chunk_size=CHUNK, program_config=one_head))
    took = measurable(row | {"speculating": speculating})
    return took | tree_columns(p, took)


def tree_columns(p: SimpleNamespace, took: Row) -> Row:
    """Return ratios of measured cycles, and the bytes that masks take in DRAM: two integers per node, or for the stock
    op a bfloat16 for each query and position, in whole tiles."""
    tree, decode = took["tree"], took["decode"]
    return {
        "of_stock": tree / took["stock"] if took["stock"] else None,
        "of_decode": tree / decode,
        "of_decodes": tree / decode / p.nodes,
        "of_tree": took["speculating"] / tree if took["speculating"] else None,
        "interval_bytes": 2 * 4 * p.nodes,
        "mask_bytes": 2 * -(-p.heads * p.nodes // 32) * 32 * p.context,
    }


def _check_tree(p: SimpleNamespace) -> None:
    if p.context % CHUNK or p.nodes >= p.context:
        raise ValueError(
            f"context must be a multiple of {CHUNK}, as the stock op wants it, and more than the nodes, got "
            f"{p.context} and {p.nodes}"
        )


_TREES = ["nodes=4,16", "nodes=16 shape=skewed", "nodes=64", "context=1024 workers=1,4"]
TREE_ATTENTION = Family(
    about="tree attention against the stock op with a mask, and against plain decodes",
    options={"context": 256, "nodes": 16, "shape": "balanced", "head_dim": 64, "heads": 4, "workers": 1},
    choices={"shape": ("balanced", "skewed", "chain")},
    points={
        "default": _TREES,
        "long": [
            *(*_TREES, "context=1024,2048,4096 nodes=4,16,64", "context=1024,2048 nodes=4,16,64 shape=skewed"),
            "context=2048 nodes=16,64 workers=8",
        ],
    },
    chip=lambda point: Chip("4x3"),
    measure=_tree_attention,
    check=_check_tree,
)


def _tree_masses(device, p: SimpleNamespace) -> Row:
    """One key/value head of Llama 3.1 8B: a tree with a guess of GUESS tokens at either end, without masses and with
    them."""
    import torch

    from perf.lib.tensors import intervals_of, parents_of, tile, words
    from tt_kernels.tree_attention.op import ProgramConfig, speculative_tree_attention

    torch.manual_seed(0)
    q = tile(device, (1, 4, p.nodes, 128))
    k, v = (tile(device, (1, 1, p.context, 128), "bfloat8_b") for _ in range(2))
    prefix = words(device, [p.context - p.nodes])
    intervals = words(device, [intervals_of(parents_of("balanced", p.nodes))])
    masses = words(device, torch.zeros(1, 1, p.context // 32), "uint32")
    config = ProgramConfig((4, 3), workers_per_head=p.workers, query_tiles=-(-4 * p.nodes // 32), key_chunk=CHUNK)
    launch = partial(speculative_tree_attention, q, k, v, prefix, intervals, chunk_size=GUESS, program_config=config)
    row = {"plain": cycles_of(device, launch), "masses": cycles_of(device, partial(launch, tile_masses=masses))}
    return measurable(row) | {"ratio": row["masses"] / row["plain"]}


TREE_MASSES = Family(
    about="what a tree that speculates pays for handing out the masses of its root",
    options={"context": 1024, "nodes": 16, "workers": 1},
    points={"default": ["workers=1,4"]},
    chip=lambda point: Chip("4x3", room=True),
    measure=_tree_masses,
)

# --- long contexts ---

# By the cores that take part: the chip's grid, the key/value heads, the columns and rows of the pair's sender and
# receiver, and the workers per head. An op alone has the sender's cores.
LAYOUTS = {8: ("5x4", 1, ((5, 2), (5, 2)), 8), 64: ("8x8", 8, ((8, 7), (8, 1)), 6)}
LONG_OPS = ("exact", "pair", "guess", "tree")
OWN_ERRORS = "this project's"
LONG_ERRORS = ("error", "worst_head", "norm_error", "bias", "largest")


def _long_context(device, p: SimpleNamespace, cycles: bool = True) -> Row:
    """Llama 3.1 8B's attention of one user over caches of random normal numbers. What is averaged is of mean 0, so that
    errors are large beside it. References are in float64 on the caches as the device holds them. cycles: whether cores
    count them; a row without has the errors alone."""
    import torch
    import ttnn

    from perf.lib.tensors import VirtualPair, errors_of, intervals_of, parents_of, tile, words
    from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode, guess_flash_decode
    from tt_kernels.speculative_flash_decode.reference import speculative_flash_decode_reference
    from tt_kernels.tree_attention.op import ProgramConfig as TreeConfig
    from tt_kernels.tree_attention.op import tree_attention
    from tt_kernels.tree_attention.reference import tree_attention_reference

    _, kv_heads, ranks, workers = LAYOUTS[p.cores]
    torch.manual_seed(p.context)
    caches = [tile(device, (1, kv_heads, p.context, 128), "bfloat8_b") for _ in range(2)]
    k, v = (ttnn.to_torch(cache) for cache in caches)
    row: Row = {"heads": 4 * kv_heads, "kv_heads": kv_heads, "workers": workers, "guess_sent": None}
    row |= {"guess_error": None, "errors_by": OWN_ERRORS}
    results: list[Any] = []

    def counted(launch):
        if cycles:
            return counted_from_start(device, lambda: results.append(launch()))
        results.append(launch())
        return {}, 0

    if p.op == "tree":
        parents, prefix = parents_of("balanced", NODES), p.context - NODES
        q = torch.randn(1, 4 * kv_heads, NODES, 128).bfloat16()
        inputs = [tile(device, q), *caches, words(device, [prefix]), words(device, [intervals_of(parents)])]
        config = TreeConfig(ranks[0], workers_per_head=workers)
        counts, start = counted(partial(tree_attention, *inputs, program_config=config))
        expected, found = tree_attention_reference(q, k, v, [prefix], [parents]), results[0]
    else:
        q = torch.randn(1, 1, 4 * kv_heads, 128).bfloat16()
        inputs = [tile(device, q), *caches, words(device, [p.context - 1])]
        reference = speculative_flash_decode_reference(q, k, v, [p.context - 1], chunk_size=CHUNK)
        expected = reference.guess if p.op == "guess" else reference.exact
        if p.op == "pair":
            pair = VirtualPair.make(device, inputs, ranks, chunk_size=CHUNK, workers=workers, timeout_s=1.0)
            counts, start = counted(pair.launch)
            pair.check()
            sender, receiver = results[0]
            assert torch.equal(ttnn.to_torch(receiver.exact), ttnn.to_torch(sender.guess))
            if cycles:
                row["guess_sent"] = cycles_until_end([counts[pair.exchange]], start)
            row["guess_error"] = errors_of(ttnn.to_torch(sender.guess), reference.guess)["error"]
            found, counts = sender.exact, {core: of for core, of in counts.items() if core[1] < ranks[0][1]}
        else:
            own = ProgramConfig(ranks[0], workers_per_head=workers)
            op = flash_decode if p.op == "exact" else guess_flash_decode
            counts, start = counted(partial(op, *inputs, chunk_size=CHUNK, program_config=own))
            found = results[0]
    errors = errors_of(ttnn.to_torch(found), expected)
    row["cycles"] = cycles_until_end(counts.values(), start) if cycles else None
    return row | {name: errors[name] for name in LONG_ERRORS}


def _check_long(p: SimpleNamespace) -> None:
    if not 2 * CHUNK < p.context <= MAX_CONTEXT or p.context % CHUNK:
        raise ValueError(
            f"context must be a multiple of {CHUNK} above {2 * CHUNK} and up to {MAX_CONTEXT}, got {p.context}"
        )


def _of_exact(row: Row, earlier: Sequence[Row]) -> Row:
    same = (r for r in earlier if r["op"] == "exact" and (r["cores"], r["context"]) == (row["cores"], row["context"]))
    exact = next(same, None) if row["op"] == "pair" else None
    return {"of_exact": row["cycles"] / exact["cycles"] if exact else None}


LONG_CONTEXT = Family(
    about="attention ops at long contexts: errors against float64, cycles, when the guess leaves",
    options={"cores": 8, "context": 16384, "op": "exact"},
    choices={"cores": tuple(LAYOUTS), "op": LONG_OPS},
    points={"default": [f"context=16384,65536,131072 cores=8,64 op={','.join(LONG_OPS)}"]},
    chip=lambda point: Chip(LAYOUTS[point.cores][0]),
    measure=_long_context,
    judge=partial(_long_context, cycles=False),
    errors=(*LONG_ERRORS, "guess_error"),
    check=_check_long,
    complete=_of_exact,
    apart=True,
)
