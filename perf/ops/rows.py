# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of what a layer does to its rows besides attention and products, against stock ops: of a decode step the
all-reduce between chips of a line, heads and their cache, and the gated product; of a prefill all of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import ttnn

from models.llama31_8b.config import PRESETS, preset
from models.llama31_8b.tt.kv_cache import KVCache, PagedKVCache
from models.llama31_8b.tt.layouts import Rows, in_banks, in_l1
from models.llama31_8b.tt.mesh import TILE, MeshShape, Site
from models.llama31_8b.tt.modules import RMSNorm, Rope, pair_rotation, user_shards
from models.llama31_8b.tt.precision import TILE_BYTES, bytes_of, precision_config
from models.llama31_8b.tt.sharding import ShardedDecodeConfig, Shards, hidden_shards
from perf.lib.chip import BYTES_PER_CYCLE, one_after_the_other, timed_launch
from perf.lib.data_file import Row
from perf.lib.tensors import tile, words
from perf.ops.families import BLOCK, NO_PRODUCT, measurable, norm_of_part
from perf.projection.prefill import long_collective_ns
from runtime_patches.profiling.timeline import Timeline
from tt_kernels.all_reduce.op import AllReduce
from tt_kernels.common.cores import core_set
from tt_kernels.gated_product.op import gated_product
from tt_kernels.gated_product.reference import gated_product_reference
from tt_kernels.rotated_heads.op import cached_heads

CAPACITY, POSITION = 128, 100  # of the caches that heads go into
STOCK = ("create", "rotate", "move", "update")
LONG_ROWS = precision_config("performance", 1).long_rows
SCALE = 4.0  # of gates, so that sigmoids come close to 0 and 1


def all_reduce(mesh, p: SimpleNamespace) -> Row:
    """Cycles of the op with residual and norm, from its go message on the first chip until its last core is done on the
    last one. With a product, whose weight is blank, rows are where a decode layer has them."""
    op = AllReduce(mesh, p.users, p.columns, timeout_s=1e-2, multiplies=p.product != NO_PRODUCT)
    multiply = None
    if op.multiplies:
        config = next(each for each in map(preset, PRESETS) if each.hidden_size == p.columns)
        layer = ShardedDecodeConfig.of(config, MeshShape(1, p.tp or p.chips), p.users)
        formats = precision_config("performance", config.num_hidden_layers).of_layer(0)
        product = getattr(layer, p.product)(getattr(formats, p.product))
        form = ([1, 1, product.inputs, product.outputs], getattr(ttnn, product.dtype), ttnn.TILE_LAYOUT)
        memory = in_l1(mesh, layer.normed)
        multiply = ttnn.empty(*form, mesh, in_banks(product)), in_l1(mesh, product.result)
    else:  # a decode layer keeps its rows on up to 32 cores
        shard = [TILE, p.columns // len(op.workers)]
        spec = ttnn.ShardSpec(core_set(*op.workers), shard, ttnn.ShardOrientation.ROW_MAJOR)
        memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, spec)
    x, y = (tile(mesh, (1, 1, p.users, p.columns), memory=memory) for _ in range(2))
    weights, timeline = tile(mesh, (1, 1, 1, p.columns)), Timeline(mesh)
    timeline.start()
    for _ in range(2):  # the first one compiles
        op(x, residual=y, norm=weights, multiply=multiply)
    chips = [one_after_the_other((span.start, span.end) for span in spans) for spans in timeline.stop()]
    op.check()
    return measurable({"cycles": max(took for *_, (_, took) in chips)})


def long_rows(mesh, p: SimpleNamespace) -> Row:
    """Cycles of a collective of the rows of a prefill chunk on the slowest chip, and what tt-metal publishes of as many
    bytes, which are the whole rows'."""
    columns = p.columns // p.chips if p.op == "all_gather" else p.columns
    x, timeline = tile(mesh, (1, 1, p.rows, columns), p.dtype), Timeline(mesh)
    timeline.start()
    getattr(ttnn, p.op)(x, dim=3, cluster_axis=1, topology=ttnn.Topology.Linear)
    cycles = max(sum(span.end - span.start for span in spans) for spans in timeline.stop())
    size = bytes_of(p.rows * p.columns, p.dtype)
    published = long_collective_ns(p.op, p.chips, size)
    return measurable({"cycles": cycles}) | {"bytes": size, "published": published, "of_published": cycles / published}


def heads_into_cache(device, p: SimpleNamespace) -> Row:
    """Cycles of the stock ops and of `cached_heads`."""
    config = preset("llama-3.1-8b")
    heads, kv_heads, head_dim = config.num_attention_heads // p.tp, config.num_key_value_heads // p.tp, config.head_dim
    cores = heads + 2 * kv_heads
    shards = in_l1(device, Shards(cores, head_dim))
    fused = tile(device, (1, 1, p.users, cores * head_dim), memory=shards)
    caches = [tile(device, (p.users, kv_heads, CAPACITY, head_dim), "bfloat8_b") for _ in range(2)]
    positions = words(device, [POSITION] * p.users)
    # The stock op rotates queries and keys on separate cores, with angles for each.
    rope = Rope(Site(device, MeshShape(1, 1), config), CAPACITY, 2 * p.users)
    twice = rope.decode_angles(words(device, [[POSITION] * 2 * p.users], "uint32"))
    rotation = tile(
        device, pair_rotation().repeat(1, 1, 2 * p.users, 1), memory=user_shards(device, 2 * p.users, TILE, TILE)
    )
    angles = rope.row_angles(words(device, [[POSITION] * p.users], "uint32"), ttnn.ROW_MAJOR_LAYOUT)

    def stock():
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
            fused,
            num_heads=heads,
            num_kv_heads=kv_heads,
            overlap_qk_coregrid=False,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )
        q, k = ttnn.experimental.rotary_embedding_llama_fused_qk(q, k, *twice, rotation)
        q = ttnn.sharded_to_interleaved(q, ttnn.L1_MEMORY_CONFIG)
        ttnn.experimental.paged_fused_update_cache(caches[0], k, caches[1], v, update_idxs_tensor=positions)
        return q

    split = (fused, angles.cos, angles.sin, heads, kv_heads)
    timeline = Timeline(device)
    _, each = timed_launch(timeline, stock)
    row: Row = dict(zip(STOCK, each, strict=True)) | {"stock": sum(each)}
    _, (row["cached"],) = timed_launch(
        timeline, lambda: cached_heads(*split, caches[0], caches[1], positions, q_memory=ttnn.L1_MEMORY_CONFIG)
    )
    return measurable(row) | {"of_stock": row["cached"] / row["stock"]}


def silu_and_product(device, p: SimpleNamespace) -> Row:
    """Cycles of both on one chip's columns, and their errors against float64: the largest in units of the result's
    last place, and the norm's."""
    shards = ShardedDecodeConfig.of(preset("llama-3.1-8b"), MeshShape(1, p.tp), p.users).hidden
    memory, columns = in_l1(device, shards), shards.width
    parts = [scale * torch.randn(1, 1, p.users, columns) for scale in (SCALE, 1.0)]
    gate, up = (tile(device, part, memory=memory) for part in parts)
    both = torch.stack([part.unflatten(-1, (-1, shards.columns)) for part in parts], -2).flatten(-3)
    x = tile(device, both, memory=in_l1(device, Shards(shards.cores, 2 * shards.columns)))
    expected = gated_product_reference(both.bfloat16(), shards.columns)
    ways = {
        "stock": lambda: ttnn.mul(
            gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU], memory_config=gate.memory_config()
        ),
        "ours": lambda: gated_product(x, shards.columns),
    }
    timeline, row = Timeline(device), Row(cores=shards.cores, tiles=shards.tiles)
    for name, launch in ways.items():
        output, (cycles,) = timed_launch(timeline, launch)
        difference = ttnn.to_torch(output).double() - expected
        last_place = 2.0 ** (expected.abs().log2().floor() - 7)
        row[name] = cycles
        row[f"{name}_places"] = (difference.abs() / last_place).max().item()
        row[f"{name}_error"] = (difference.norm() / expected.norm()).item()
    return measurable(row) | {"of_stock": row["ours"] / row["stock"]}


def _norm_a_part(device, rows: int, columns: int, tp: int) -> Callable[[], Any]:
    x, squares, weight = (tile(device, (1, 1, *shape)) for shape in ((rows, columns), (rows, TILE * tp), (1, columns)))
    norm = RMSNorm(weight, 1e-5)
    norm.part = weight
    return lambda: [norm.squares(x), norm.by_squares(x, squares, LONG_ROWS)]


def prefill_parts(device, p: SimpleNamespace) -> list[Row]:
    """The ops of a layer of Llama 3.1 8B besides products and attention, as the model calls them; norms of one of 2, 4
    and 8 chips' columns without the gather of squares between their ops. a_layer: how often a layer of one chip runs
    it. bytes: that it moves. of_dram_64: how much of the DRAM's rate 64 such cores would take."""
    config, chip = preset("llama-3.1-8b").with_layers(1), MeshShape(1, 1)
    site = Site(device, chip, config)
    layout, rope = Rows(site), Rope(site, p.rows, 1)
    plain = KVCache(site, "bfloat8_b", 1, BLOCK, zeroed=False)
    paged = PagedKVCache(site, "bfloat8_b", 1, BLOCK, 2, BLOCK, zeroed=False)
    paged.set_page_table(torch.ones(1, 1))
    norm = RMSNorm(tile(device, (1, 1, 1, config.hidden_size)), config.rms_norm_eps)
    columns = (layout.heads + 2 * layout.kv_heads) * layout.head_dim
    widths, block = (config.hidden_size, columns, 2 * config.intermediate_size), hidden_shards(config, chip).columns
    x, fused, gate_up = (tile(device, (1, 1, p.rows, width)) for width in widths)
    angles = layout.angles(rope, words(device, [list(range(p.rows))], "uint32"))
    q, k, v = layout.split(fused)
    places = [{k.shape[1]: words(device, cache.places(0, 0, p.rows))} for cache in (plain, paged)]
    # How often a layer runs it, and the tiles of bfloat16 and of bfloat8_b that one tile high of all columns moves.
    hidden, heads, cached = (
        width // TILE for width in (config.hidden_size, columns, 2 * layout.kv_heads * layout.head_dim)
    )
    fill = (1, cached, 3 * cached)  # converted, then copied
    launches: dict[str, tuple[tuple[int, int, int], Callable[[], Any]]] = {
        "norm": ((2, 2 * hidden, 0), lambda: layout.norm(norm, x)),
        "create heads": ((1, 2 * heads, 0), lambda: layout.split(fused)),
        "rotate queries and keys": (
            (1, 2 * heads - cached, 0),
            lambda: [rope.prefill(part, angles) for part in (q, k)],
        ),
        "fill a plain cache": (fill, lambda: plain.fill(0, k, v, places[0])),
        "fill a paged cache": ((0, *fill[1:]), lambda: paged.fill(0, k, v, places[1])),
        "concatenate heads": ((1, 2 * hidden, 0), lambda: layout.join(q)),
        "add to the residual": ((2, 3 * hidden, 0), lambda: ttnn.add(x, x, memory_config=x.memory_config())),
        "gated product": (
            (1, 2 * config.intermediate_size // TILE, config.intermediate_size // TILE),
            lambda: gated_product(gate_up, block, LONG_ROWS),
        ),
    }
    for tp in (2, 4, 8):
        part = 2 * hidden // tp + 1 + tp, hidden // tp  # read twice, beside the squares
        launches[norm_of_part(tp)] = (0, *part), _norm_a_part(device, p.rows, config.hidden_size // tp, tp)
    timeline, rows = Timeline(device), []
    for name, ((count, wide, narrow), launch) in launches.items():
        timeline.start()
        launch()
        programs = timeline.stop()[0]
        rows.append(measurable({"cycles": sum(program.end - program.start for program in programs)}))
        rows[-1] |= {"op": name, "programs": len(programs), "a_layer": count}
        size = p.rows // TILE * (wide * TILE_BYTES["bfloat16"] + narrow * TILE_BYTES["bfloat8_b"])
        rows[-1] |= {"bytes": size, "of_dram_64": 64 * size / BYTES_PER_CYCLE / rows[-1]["cycles"]}
    return rows
