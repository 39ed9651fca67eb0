# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of attention: flash decode that speculates, on a virtual pair, and the choice of the tiles that its guesses
read; over pages, over token trees, at long contexts, of a prefill chunk.

Cores count cycles; those of this repository's kernels start together (perf/lib/start_line.py).
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import ttnn

from models.llama31_8b.tt.mesh import TILE
from models.llama31_8b.tt.modules import attention_program, kernel_config
from models.llama31_8b.tt.precision import FIDELITY, TILE_BYTES
from perf.lib.chip import BYTES_PER_CYCLE, TILE_CYCLES, counted_from_start, cycles_of, cycles_until_end, timed_once
from perf.lib.data_file import Row
from perf.lib.tensors import VirtualPair, errors_of, intervals_of, parents_of, tile, words
from perf.ops.families import BLOCK, CHUNK, GUESS, LAYOUTS, LONG_ERRORS, NODES, measurable
from runtime_patches.profiling.cycles import measure
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, chosen_rows, chosen_words
from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode, guess_flash_decode
from tt_kernels.speculative_flash_decode.reference import speculative_flash_decode_reference
from tt_kernels.tile_selection.op import select_tiles
from tt_kernels.tree_attention.checks import piece_tokens
from tt_kernels.tree_attention.op import ProgramConfig as TreeConfig
from tt_kernels.tree_attention.op import prefill_attention as own_prefill_attention
from tt_kernels.tree_attention.op import speculative_tree_attention, tree_attention
from tt_kernels.tree_attention.reference import tree_attention_reference

RANKS = ((5, 2), (5, 2))  # columns and rows of the sender and the receiver
HEAD_DIM = 128  # of Llama 3.1 8B


def flash_decode_pair(device, p: SimpleNamespace) -> Row:
    """One head on a virtual pair: the exact op, the whole sender, its exchange core with the guess, the receiver, which
    has it then, the guess alone, and the choice of one layer's tiles where the sender hands out their weights."""
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
    pair = VirtualPair(
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
        given: tuple[Any, ...] = ([pair.masses], [chosen], tensors[3], guess_range, 0.98)
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
    return row | {"beyond_share": round(row["guess"] - row["read_share"] * exact)}


def tile_selection(device, p: SimpleNamespace) -> Row:
    """One chip's choice for all layers of a step, of one key/value head each: masses over many octaves, as attention
    has them, or all within one, which takes most passes."""
    tiles = p.context // 32
    scores = torch.randn(p.layers, tiles) * 3
    weights = torch.softmax(scores, -1) if p.masses == "octaves" else 1 + torch.sigmoid(scores)
    masses = (weights * 2**24).long().view(p.layers, 1, 1, tiles)
    tensors = (
        [words(device, mass, "uint32") for mass in masses],
        [words(device, torch.zeros(1, 1, chosen_words(p.context)), "uint32") for _ in masses],
        words(device, [p.context - 1]),
        GuessRange(32, 128, whole_tail=True),
    )
    return {"cycles": cycles_of(device, lambda: select_tiles(*tensors, p.budget))}


def paged_cache(device, p: SimpleNamespace) -> Row:
    """The same op over a plain cache and over pages in a random order: one key/value head of Llama 3.1 8B."""
    columns = p.context // p.block
    order = torch.randperm(columns)
    plain = [tile(device, (1, 1, p.context, HEAD_DIM), "bfloat8_b") for _ in range(2)]
    paged = [tile(device, (columns, 1, p.block, HEAD_DIM), "bfloat8_b") for _ in range(2)]
    table = words(device, order[None])
    if p.op == "decode":
        q, at = tile(device, (1, 1, 4, HEAD_DIM)), words(device, [p.context - 1])
        config = ProgramConfig((4, 2), workers_per_head=p.workers)
        launch = partial(flash_decode, q, cur_pos=at, chunk_size=CHUNK, program_config=config)
    else:
        q, prefix = tile(device, (1, 4, NODES, HEAD_DIM)), words(device, [p.context - NODES])
        intervals = words(device, [intervals_of(parents_of("chain", NODES))])
        tree = TreeConfig((4, 2), workers_per_head=p.workers, query_tiles=NODES * 4 // 32, key_chunk=CHUNK)
        launch = partial(tree_attention, q, prefix=prefix, intervals=intervals, program_config=tree)
    row = {
        "plain": cycles_of(device, lambda: launch(k=plain[0], v=plain[1])),
        "paged": cycles_of(device, lambda: launch(k=paged[0], v=paged[1], page_table=table)),
    }
    return measurable(row) | {"ratio": row["paged"] / row["plain"]}


def tree_and_stock(device, p: SimpleNamespace) -> Row:
    """One key/value head: the tree; a chain of as many nodes; the stock decode attention with an explicit mask, the
    nodes' queries as so many heads of one user, on one core, as it is started; one flash decode, of which a tree of N
    nodes replaces N; and the tree with a guess of GUESS tokens at either end, which one more core decides on."""
    rows, before = p.heads * p.nodes, p.context - p.nodes
    q, q_one, q_rows = (
        tile(device, (1, *shape, p.head_dim)) for shape in ((p.heads, p.nodes), (1, p.heads), (1, rows))
    )
    k, v = (tile(device, (1, 1, p.context, p.head_dim)) for _ in range(2))
    grid = (p.workers, 1) if p.workers <= 4 else (4, 2)
    prefix = words(device, [before])

    def tree(shape, op=tree_attention, grid=grid):
        intervals = words(device, [intervals_of(parents_of(shape, p.nodes))])
        # All query tiles on the same cores: the keys are read once.
        config = TreeConfig(grid, workers_per_head=p.workers, query_tiles=-(-rows // 32), key_chunk=CHUNK)
        return partial(op, q, k, v, prefix, intervals, program_config=config)

    at, one_head = words(device, [p.context - 1]), ProgramConfig(grid, workers_per_head=p.workers)
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
    return measurable(row | {"speculating": speculating})


def tree_masses(device, p: SimpleNamespace) -> Row:
    """One key/value head of Llama 3.1 8B: a tree with a guess of GUESS tokens at either end, without masses and with
    them."""
    q = tile(device, (1, 4, p.nodes, 128))
    k, v = (tile(device, (1, 1, p.context, 128), "bfloat8_b") for _ in range(2))
    prefix = words(device, [p.context - p.nodes])
    intervals = words(device, [intervals_of(parents_of("balanced", p.nodes))])
    masses = words(device, torch.zeros(1, 1, p.context // 32), "uint32")
    config = TreeConfig((4, 3), workers_per_head=p.workers, query_tiles=-(-4 * p.nodes // 32), key_chunk=CHUNK)
    launch = partial(speculative_tree_attention, q, k, v, prefix, intervals, chunk_size=GUESS, program_config=config)
    row = {"plain": cycles_of(device, launch), "masses": cycles_of(device, partial(launch, tile_masses=masses))}
    return measurable(row) | {"ratio": row["masses"] / row["plain"]}


def long_context(device, p: SimpleNamespace, cycles: bool = True) -> Row:
    """Llama 3.1 8B's attention of one user over caches of random normal numbers. What is averaged is of mean 0, so that
    errors are large beside it. References are in float64 on the caches as the device holds them. cycles: whether cores
    count them; a row without has the errors alone."""
    _, kv_heads, ranks, workers = LAYOUTS[p.cores]
    torch.manual_seed(p.context)
    caches = [tile(device, (1, kv_heads, p.context, 128), "bfloat8_b") for _ in range(2)]
    k, v = (ttnn.to_torch(cache) for cache in caches)
    row: Row = {"heads": 4 * kv_heads, "kv_heads": kv_heads, "workers": workers, "guess_sent": None}
    row |= {"guess_error": None, "errors_by": "this project's"}
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
            pair = VirtualPair(device, inputs, ranks, chunk_size=CHUNK, workers=workers, timeout_s=1.0)
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


def prefill_attention(device, p: SimpleNamespace) -> Row:
    """A chunk's attention over one key/value head's blocks: by this project's op, which the model calls, or the stock
    one, which takes each query head as a user."""
    cores, end = device.compute_with_storage_grid_size(), p.start + p.tokens
    q = tile(device, (1, p.heads, p.tokens, HEAD_DIM))
    blocks = -(-end // BLOCK)
    keys, values = (tile(device, (blocks, 1, BLOCK, HEAD_DIM), "bfloat8_b") for _ in range(2))
    width = -(-end // BLOCK // 8) * 8
    table, start = torch.arange(width)[None] % blocks, words(device, [p.start])
    if p.op == "own":
        launch = partial(own_prefill_attention, q, keys, values, start, words(device, table))
        at_once = piece_tokens(p.tokens, p.heads, 1, cores.x * cores.y)
        passes = range(at_once, p.tokens + 1, at_once)
        read = sum(-(-(p.start + last) // TILE) * TILE for last in passes)
    else:
        launch = partial(
            ttnn.transformer.chunked_scaled_dot_product_attention,
            *(ttnn.reshape(q, (p.heads, 1, p.tokens, HEAD_DIM)), keys, values),
            words(device, table.repeat(p.heads, 1)),
            chunk_start_idx_tensor=start,
            program_config=attention_program(device, p.size, p.keys),
            compute_kernel_config=kernel_config("bfloat8_b"),
        )
        passes = range(p.size, p.tokens + 1, p.size)
        read = p.heads * sum(-(-(p.start + last) // p.keys) * p.keys for last in passes)
    result, cycles = timed_once(device, launch)
    k, v = (ttnn.to_torch(tensor).double().reshape(1, -1, HEAD_DIM)[:, :end] for tensor in (keys, values))
    visible = torch.arange(end) <= p.start + torch.arange(p.tokens)[:, None]
    scores = (ttnn.to_torch(q).double()[0] @ k.mT / HEAD_DIM**0.5).masked_fill(~visible, float("-inf"))
    pairs = p.heads * int(visible.sum())
    busy = 2 * pairs * HEAD_DIM / TILE**3 * TILE_CYCLES[FIDELITY["bfloat8_b"]] / (cores.x * cores.y)
    read_bytes = 2 * read * HEAD_DIM // TILE**2 * TILE_BYTES["bfloat8_b"]
    wanted = (scores.softmax(-1) @ v).reshape(-1, p.tokens, HEAD_DIM)
    return measurable({"cycles": cycles}) | {
        "of_peak": busy / cycles,
        "flops_per_cycle": 4 * pairs * HEAD_DIM / cycles / (cores.x * cores.y),
        "of_dram_64": 64 * read_bytes / (cores.x * cores.y) / BYTES_PER_CYCLE / cycles,
        "error": errors_of(ttnn.to_torch(result).reshape(wanted.shape), wanted)["error"],
    }
