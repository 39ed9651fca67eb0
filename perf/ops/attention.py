# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of attention: flash decode that speculates, against the stock op, over pages, over token trees, at long
contexts. Measured in a process with an open device; ttnn is imported there alone.

Where cores count cycles, those of this repository's kernels start together (perf/lib/start_line.py). Under fast
dispatch a program takes from its go message until its last core is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from perf.lib.chip import Chip, counted_from_start, cycles_of, cycles_until_end, timed_launch
from perf.ops.family import Family, Row, Target, measurable

MAX_CONTEXT = 131072  # Llama 3.1's


# --- what speculation costs the kernel ---

RANKS = ((5, 2), (5, 2))  # columns and rows of the sender and the receiver


def _flash_decode(device, p: SimpleNamespace) -> Row:
    """One head on a virtual pair: the exact op, the whole sender, its exchange core with the guess, the receiver, which
    has it then, the guess alone, and the choice of one layer's tiles where the sender hands out their weights."""
    import torch

    from perf.lib.tensors import VirtualPair, tile, words
    from tt_kernels.speculative_flash_decode.guess_range import chosen_rows
    from tt_kernels.speculative_flash_decode.op import GuessRange, ProgramConfig, flash_decode, guess_flash_decode
    from tt_kernels.tile_selection.op import select_tiles

    torch.manual_seed(0)
    tiles = -(-p.context // 32)
    q = tile(device, (1, 1, p.heads, p.head_dim))
    k, v = (tile(device, (1, 1, 32 * tiles, p.head_dim), p.dtype) for _ in range(2))
    tensors = (q, k, v, words(device, [p.context - 1]))
    guess_range = GuessRange(p.first or p.chunk_size, p.last or p.chunk_size, p.whole_tail)
    chosen = None
    if p.tiles:  # as far apart as they can be
        middle = guess_range.middle(p.context)
        bits = chosen_rows([[middle[:: len(middle) // p.tiles][: p.tiles]]], 32 * tiles)
        chosen = words(device, bits, "uint32")
    pair = VirtualPair.make(
        *(device, tensors, RANKS),
        chunk_size=p.chunk_size,
        workers=p.workers,
        timeout_s=1e-2,
        guess_range=guess_range,
        chosen=chosen,
        tile_masses=lambda: words(device, torch.zeros(1, 1, tiles), "uint32") if p.masses else None,
    )
    config = ProgramConfig(RANKS[0], (0, 0), workers_per_head=p.workers)
    alone = {"chunk_size": p.chunk_size, "program_config": config}
    exact = cycles_of(device, lambda: flash_decode(*tensors, **alone))
    guessed = cycles_of(device, lambda: guess_flash_decode(*tensors, guess_range=guess_range, chosen=chosen, **alone))
    both, start = counted_from_start(device, pair.launch)
    pair.check()
    selection = 0
    if p.masses and p.tiles:
        given: tuple[Any, ...] = ([pair.sender.tile_masses], [chosen], tensors[3], guess_range, 0.98)
        selection = cycles_of(device, lambda: select_tiles(*given))
    sender, receiver = (
        cycles_until_end([cores for (_, y), cores in both.items() if y // 2 == rank], start) for rank in range(2)
    )
    row: Row = {"exact": exact, "sender": sender, "guess": cycles_until_end([both[pair.exchange]], start)}
    row |= {"receiver": receiver, "guess_alone": guessed}
    measurable(row)
    if row["guess"] > sender:
        raise ValueError(f"not measurable: the guess leaves after the end of {row}")
    row |= {"selection": selection, "overhead": sender / exact, "guess_share": row["guess"] / sender}
    # What the guess takes beyond its share of the exact pass, by tiles.
    read = guess_range.first_tiles + guess_range.tail_tiles(p.context) + p.tiles
    row["read_share"] = read / tiles
    row["beyond_share"] = round(row["guess"] - row["read_share"] * exact)
    return row | {"guess_range": guess_name(p), "chunks": -(-p.context // p.chunk_size)}


def guess_name(p: SimpleNamespace) -> str:
    """Return the tokens of a guess: of a chunk, or first + last; + where the tail is whole, and selected tiles."""
    sizes = f"{p.first or p.chunk_size} + {p.last}" if p.last else f"{p.chunk_size}"
    if p.tiles:
        sizes = f"{p.first} + {p.tiles} x 32 + {p.last}"
    return sizes + ("+" if p.whole_tail else "")


_SIZES = [
    *("context=128,256,384 chunk_size=32", "context=512 chunk_size=64", "context=1024 chunk_size=128"),
    "context=1024 chunk_size=32 workers=7",
]
_ENDS = "chunk_size=128 whole_tail=True head_dim=128 workers=7"
_CHOSEN = "chunk_size=128 whole_tail=True first=32 last=128 head_dim=128 workers=8 dtype=bfloat8_b"
FLASH_DECODE = Family(
    about="what speculation costs the flash decode kernel, one head on a virtual pair",
    options={
        **{"context": 128, "chunk_size": 32, "head_dim": 64, "heads": 4, "workers": 1, "last": 0},
        **{"whole_tail": False, "first": 0, "tiles": 0, "masses": False, "dtype": "bfloat16"},
    },
    choices={"dtype": ("bfloat16", "bfloat8_b")},
    points={
        "default": _SIZES,
        # Of a key/value head of Llama 3.1 8B; at 64K tokens with 3, 6 and 12 % of its tiles.
        "chosen": [f"context=1024,8192 {_ENDS}", f"context=16384 {_CHOSEN} tiles=61"],
        "long": [
            *_SIZES,
            *("context=256,768 chunk_size=64", "context=512 chunk_size=64 head_dim=128"),
            *("context=512,1024 chunk_size=64 workers=2", "context=1024 chunk_size=32 workers=2,4"),
            *("context=256,2048 chunk_size=32 workers=7", "context=1024,5120 chunk_size=128 workers=7"),
            "context=2048 chunk_size=128 workers=2,3,7",
            *(f"context=65536 {_CHOSEN} tiles=0,61,123,246", f"context=65536 {_CHOSEN} tiles=123 masses=True"),
        ],
    },
    chip=lambda point: Chip("5x4"),
    measure=_flash_decode,
    targets=[
        Target("overhead", 1.05, lambda row: row["chunks"] >= 8, "8 chunks and more"),
        Target("guess_share", 0.40, lambda row: 8 <= row["chunks"] < 512, "8 chunks and more"),
        Target("beyond_share", 15_000, lambda row: row["context"] == 65536, "65536 tokens"),
    ],
)

# --- choosing the tiles of the next guesses ---


def _tile_selection(device, p: SimpleNamespace) -> Row:
    """One chip's choice for all layers of a step, of one key/value head each: masses over many octaves, as attention
    has them, or all within one, which takes most passes."""
    import torch

    from perf.lib.tensors import words
    from tt_kernels.speculative_flash_decode.guess_range import GuessRange, chosen_words
    from tt_kernels.tile_selection.op import select_tiles

    generator = torch.Generator().manual_seed(0)
    tiles = p.context // 32
    scores = torch.randn(p.layers, tiles, generator=generator) * 3
    weights = torch.softmax(scores, -1) if p.masses == "octaves" else 1 + torch.sigmoid(scores)
    masses = (weights * 2**24).long().view(p.layers, 1, 1, tiles)
    tensors = (
        [words(device, mass, "uint32") for mass in masses],
        [words(device, torch.zeros(1, 1, chosen_words(p.context)), "uint32") for _ in masses],
        words(device, [p.context - 1]),
        GuessRange(32, 128, whole_tail=True),
    )
    return {"cycles": cycles_of(device, lambda: select_tiles(*tensors, p.budget))}


TILE_SELECTION = Family(
    about="the choice of the tiles that the next guesses read, all layers of a step",
    options={"context": 65536, "layers": 4, "masses": "octaves", "budget": 0.98},
    points={"default": ["context=8192,65536 masses=octaves,even"]},
    chip=lambda point: Chip("2x1"),
    measure=_tile_selection,
)

# --- against the stock op ---

GRID = (4, 2)
WAYS = ("HiFi2", "HiFi3", "stock, as it comes", "stock, HiFi3")


def _stock_decode(device, p: SimpleNamespace) -> Row:
    """Our op at either fidelity, always with float32 sums, and the stock one as it comes (HiFi2, bfloat16 sums,
    approximate exponentials) and at equal fidelity; its float32 sums are too much for the stand-in compiler. Errors
    are against attention in float64 over what the caches hold."""
    import torch
    import ttnn

    from perf.lib.tensors import errors_of, tile, words
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode

    torch.manual_seed(0)
    q = tile(device, (1, 1, p.heads, p.head_dim))
    k, v = (tile(device, (1, p.kv_heads, p.context, p.head_dim), p.dtype) for _ in range(2))
    at = words(device, [p.context - 1])
    expected = attention(*(ttnn.to_torch(tensor).double() for tensor in (q, k, v)))

    def stock(exact: bool):
        return ttnn.transformer.scaled_dot_product_attention_decode(
            *(q, k, v),
            cur_pos_tensor=at,
            program_config=ttnn.SDPAProgramConfig(
                compute_with_storage_grid_size=ttnn.CoreCoord(*GRID),
                q_chunk_size=32,
                k_chunk_size=p.chunk,
                exp_approx_mode=not exact,
            ),
            compute_kernel_config=ttnn.WormholeComputeKernelConfig(
                math_fidelity=ttnn.MathFidelity.HiFi3 if exact else ttnn.MathFidelity.HiFi2,
                math_approx_mode=not exact,
                fp32_dest_acc_en=False,
                packer_l1_acc=False,
            ),
        )

    def ours(fidelity: str):
        config = ProgramConfig(GRID, math_fidelity=fidelity)
        return flash_decode(q, k, v, at, chunk_size=p.chunk, program_config=config)

    launches = [partial(ours, "HiFi2"), partial(ours, "HiFi3"), partial(stock, False), partial(stock, True)]
    timeline, found = Timeline(device), {}
    for way, launch in zip(WAYS, launches, strict=True):
        output, (cycles,) = timed_launch(timeline, launch)
        errors = errors_of(ttnn.to_torch(output)[..., : p.heads, :], expected)
        found[way] = measurable({"cycles": cycles, "error": errors["largest"], "relative": errors["error"]})
    for one in found.values():
        one["of_stock"] = one["cycles"] / found[WAYS[2]]["cycles"]
        one["of_exact_stock"] = one["cycles"] / found[WAYS[3]]["cycles"]
    return found


def attention(q, k, v):
    """Return attention in float64: q [1, 1, heads, d], k and v [1, kv_heads, tokens, d]: [1, 1, heads, d]."""
    heads, width = q.shape[2:]
    grouped = q.reshape(1, k.shape[1], heads // k.shape[1], width)
    weights = (grouped @ k.transpose(-1, -2) / width**0.5).softmax(dim=-1)
    return (weights @ v).reshape(1, 1, heads, width)


_STOCK_SIZES = [
    *("context=512 chunk=64", "context=1024 chunk=128", "context=1024 chunk=128 heads=8 kv_heads=2"),
    "context=1024 chunk=128 heads=16 kv_heads=4",
]
STOCK_DECODE = Family(
    about="our flash decode against the stock op on as many cores, and the errors of both",
    options={"context": 512, "chunk": 64, "heads": 4, "kv_heads": 1, "head_dim": 64, "dtype": "bfloat16"},
    choices={"dtype": ("bfloat16", "bfloat8_b")},
    points={
        "default": _STOCK_SIZES,
        "long": [
            *_STOCK_SIZES,
            "context=2048,4096 chunk=128 head_dim=128 dtype=bfloat8_b",
            "context=4096,8192 chunk=256 head_dim=128 dtype=bfloat8_b",
        ],
    },
    chip=lambda point: Chip("4x2", timed=True),
    measure=_stock_decode,
    targets=[Target("HiFi3.of_exact_stock", 0.9), Target("HiFi3.of_stock", 1.0)],
)


def _sharded_decode(device, p: SimpleNamespace) -> Row:
    """Both flash decodes as the sharded decode step calls them, from queries on a core per user, as rotation leaves
    them, to a result in L1: the stock op takes them as they are, ours after `sharded_to_interleaved`."""
    import torch
    import ttnn

    from models.llama31_8b.config import LlamaConfig
    from models.llama31_8b.tt.attention_policies import FlashAttention, StockAttention
    from models.llama31_8b.tt.kv_cache import cache_block
    from models.llama31_8b.tt.mesh import TILE
    from models.llama31_8b.tt.modules import user_shards
    from perf.lib.tensors import tile, words
    from runtime_patches.profiling.timeline import Timeline

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=TILE,
        hidden_size=p.heads * p.head_dim,
        intermediate_size=p.heads * p.head_dim,
        num_hidden_layers=1,
        num_attention_heads=p.heads,
        num_key_value_heads=p.kv_heads,
        head_dim=p.head_dim,
        max_position_embeddings=p.context,
        name="bench",
    )
    q = tile(device, (1, p.users, p.heads, p.head_dim))
    q = ttnn.to_memory_config(q, user_shards(device, p.users, TILE, p.head_dim))
    k, v = (tile(device, (p.users, p.kv_heads, p.context, p.head_dim), p.dtype) for _ in range(2))
    at = words(device, [p.context - 1] * p.users)
    stock = StockAttention(device, config, cache_block(p.context))
    ours = FlashAttention(config, p.context)
    ways = {
        "stock": lambda: stock.attend(0, q, k, v, at, None),
        "ours": lambda: ours.attend(0, ttnn.sharded_to_interleaved(q, ttnn.L1_MEMORY_CONFIG), k, v, at, None),
    }
    timeline, cycles, results = Timeline(device), {}, {}
    for name, launch in ways.items():
        output, cycles[name] = timed_launch(timeline, launch)
        results[name] = ttnn.to_torch(output).float()[..., : p.heads, :]
        ttnn.deallocate(output)
    for tensor in (q, k, v, at):
        ttnn.deallocate(tensor)
    difference = ((results["ours"] - results["stock"]).norm() / results["stock"].norm()).item()
    (alone,), (move, decode) = cycles["stock"], cycles["ours"]
    row = measurable({"stock": alone, "move": move, "flash_decode": decode, "difference": difference})
    if difference > 0.1:
        raise ValueError(f"not measurable: results differ by {difference:.1%}")
    return row | {"ratio": (move + decode) / alone}


SHARDED_DECODE = Family(
    about="both flash decodes as the sharded decode step calls them, one to eight users",
    options={"users": 1, "context": 1024, "heads": 4, "kv_heads": 1, "head_dim": 64, "dtype": "bfloat16"},
    choices={"dtype": ("bfloat16", "bfloat8_b")},
    points={
        "default": [
            *("users=1,4,8", "heads=16 kv_heads=4", "context=4096 head_dim=128 dtype=bfloat8_b"),
            # A core for each user's head, as eight users of Llama 3.1 8B have on a chip.
            "users=8 context=2048,4096 head_dim=128 dtype=bfloat8_b",
        ]
    },
    chip=lambda point: Chip("4x2", timed=True),
    measure=_sharded_decode,
)

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
    targets=[Target("ratio", 1.03)],
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
    targets=[
        Target("of_stock", 1),
        Target("of_decode", 1.5, lambda row: row["nodes"] == 16 and row["context"] >= 2048, "16 nodes from 2048 up"),
        Target("of_tree", 1.06, lambda row: row["nodes"] == 16 and row["context"] >= 1024, "16 nodes from 1024 up"),
    ],
)

# --- long contexts ---

# By the cores that take part: the chip's grid, the key/value heads, the columns and rows of the pair's sender and
# receiver, and the workers per head. An op alone has the sender's cores.
LAYOUTS = {8: ("5x4", 1, ((5, 2), (5, 2)), 8), 64: ("8x8", 8, ((8, 7), (8, 1)), 6)}
LONG_OPS = ("exact", "pair", "guess", "tree")


def _long_context(device, p: SimpleNamespace) -> Row:
    """Llama 3.1 8B's attention of one user over caches of random normal numbers. What is averaged is of mean 0, so that
    errors are large beside it. References are in float64 on the caches as the device holds them."""
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
    row |= {"guess_error": None}
    results: list[Any] = []

    def counted(launch):
        return counted_from_start(device, lambda: results.append(launch()))

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
            row["guess_sent"] = cycles_until_end([counts[pair.exchange]], start)
            row["guess_error"] = errors_of(ttnn.to_torch(sender.guess), reference.guess)["error"]
            found, counts = sender.exact, {core: of for core, of in counts.items() if core[1] < ranks[0][1]}
        else:
            own = ProgramConfig(ranks[0], workers_per_head=workers)
            op = flash_decode if p.op == "exact" else guess_flash_decode
            counts, start = counted(partial(op, *inputs, chunk_size=CHUNK, program_config=own))
            found = results[0]
    errors = errors_of(ttnn.to_torch(found), expected)
    row |= {"cycles": cycles_until_end(counts.values(), start)}
    return row | {name: errors[name] for name in ("error", "worst_head", "norm_error", "bias", "largest")}


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
    check=_check_long,
    complete=_of_exact,
    targets=[
        Target("error", 0.005),
        Target("of_exact", 1.02, lambda row: row["context"] == 65536, "65536 tokens"),
    ],
    apart=True,
)
