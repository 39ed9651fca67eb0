# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of a prefill: products with a weight that lies in the DRAM banks as decode steps read it, a chunk's attention,
and a layer's other ops. Few cores do what each of all 64 does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from models.llama31_8b.tt.mesh import TILE
from perf.lib.chip import BYTES_PER_CYCLE, TILE_CYCLES, Chip
from perf.ops.family import Family, Row, measurable

HEAD_DIM = 128
BLOCK = 128  # positions of a cache's block
# By program, whether the cores of a row share rows and those of a column columns; else all share all rows.
PROGRAMS = {"banked_product": False, "minimal_matmul": True, "multicast": True, "copied": True, "interleaved": False}


def _product(device, p: SimpleNamespace) -> Row:
    """The model's own programs; a 2D multicast program over the same weight; and ttnn's choice for an interleaved
    weight, alone and with the copy that makes it."""
    import torch
    import ttnn

    from models.llama31_8b.tt import layouts, modules
    from models.llama31_8b.tt.precision import FIDELITY, TILE_BYTES
    from models.llama31_8b.tt.sharding import MatmulConfig, Shards
    from perf.lib.tensors import errors_of, tile
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.banked_product.op import banked_product

    torch.manual_seed(0)
    grid, memory = device.compute_with_storage_grid_size(), ttnn.DRAM_MEMORY_CONFIG
    nowhere = Shards(1, TILE)
    shape = MatmulConfig("product", p.inputs, p.outputs, p.dtype, nowhere, nowhere, 1)
    rows = tile(device, (1, 1, p.rows, p.inputs))
    where = memory if p.program == "interleaved" else layouts.in_banks(shape)
    weight = tile(device, torch.randn(1, 1, p.inputs, p.outputs) / p.inputs**0.5, p.dtype, where)

    def multicast() -> Any:
        high, wide = -(-p.rows // TILE // grid.y), -(-p.outputs // TILE // grid.x)
        program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
            compute_with_storage_grid_size=(grid.x, grid.y),
            in0_block_w=4,
            out_subblock_h=1,
            out_subblock_w=max(n for n in range(1, 9) if wide % n == 0),
            per_core_M=high,
            per_core_N=wide,
            transpose_mcast=False,
            fused_activation=None,
            fuse_batch=False,
        )
        return ttnn.linear(
            rows,
            weight,
            program_config=program,
            dtype=ttnn.bfloat16,
            memory_config=memory,
            compute_kernel_config=modules.kernel_config(p.dtype),
        )

    launches: dict[str, Callable[[], Any]] = {
        "banked_product": lambda: banked_product(rows, weight, memory),
        "minimal_matmul": lambda: modules.minimal_matmul(rows, weight, memory),
        "multicast": multicast,
        "copied": lambda: modules.linear(rows, ttnn.to_memory_config(weight, memory), memory),
        "interleaved": lambda: modules.linear(rows, weight, memory),
    }
    timeline = Timeline(device)
    timeline.start()
    result = launches[p.program]()
    cycles = sum(program.end - program.start for program in timeline.stop()[0])
    expected = ttnn.to_torch(rows).double() @ ttnn.to_torch(weight).double()
    busy = p.rows * p.inputs * p.outputs // TILE**3 * TILE_CYCLES[FIDELITY[p.dtype]] / (grid.x * grid.y)
    read = p.inputs * p.outputs // TILE**2 * TILE_BYTES[p.dtype] / BYTES_PER_CYCLE
    high, wide = (8 // grid.y, 8 // grid.x) if PROGRAMS[p.program] else (1, 64 // grid.x // grid.y)
    return measurable({"cycles": cycles}) | {
        "chip_rows": high * p.rows,
        "chip_outputs": wide * p.outputs,
        "of_peak": busy / cycles,
        "of_dram": wide * read / cycles,
        "error": errors_of(ttnn.to_torch(result), expected)["error"],
    }


def _check(p: SimpleNamespace) -> None:
    for name in ("rows", "inputs", "outputs"):
        if getattr(p, name) % TILE or getattr(p, name) < 2 * TILE:
            raise ValueError(f"{name} must be a multiple of {TILE} above {TILE}, got {getattr(p, name)}")


def _of_minimal(row: Row, earlier: Sequence[Row]) -> Row:
    """Hold a product against that of minimal_matmul of the same rows and weight on a whole chip."""
    same = [
        r for r in earlier if all(r[name] == row[name] for name in ("chip_rows", "inputs", "chip_outputs", "dtype"))
    ]
    stock = next((r["cycles"] for r in same if r["program"] == "minimal_matmul"), None)
    return {"of_minimal": row["cycles"] / stock if stock else None}


# Parts of Llama 3.1 8B's products over some of the inner dimension. Four by four cores have half of a chip's rows and
# of its columns where cores of a row share rows; where all cores share all rows, a quarter of the columns.
PRODUCT = Family(
    about="a prefill's products by program: our own, stock ones over the same weight, ttnn's choice over another",
    options={
        "rows": 256,
        "inputs": 512,
        "outputs": 3072,
        "dtype": "bfloat8_b",
        "cores": "4x4",
        "program": "minimal_matmul",
    },
    choices={"dtype": ("bfloat8_b", "bfloat4_b"), "program": tuple(PROGRAMS), "cores": ("4x4", "8x8")},
    points={
        "default": [
            "rows=64 program=minimal_matmul,multicast",
            "rows=128 outputs=1536 program=banked_product,interleaved",
            "rows=128 inputs=1024 outputs=1536 program=banked_product",
            "rows=128 inputs=512,1024 outputs=512 program=banked_product",
            "rows=128 outputs=3584 dtype=bfloat4_b program=banked_product",
            "rows=256 program=minimal_matmul,multicast,copied",
            "rows=512 outputs=1536 program=banked_product",
            "rows=512,1024 program=minimal_matmul",
            "rows=512 outputs=7168 dtype=bfloat4_b program=minimal_matmul",
        ]
    },
    chip=lambda point: Chip(point.cores, timed=True),
    measure=_product,
    check=_check,
    complete=_of_minimal,
    apart=True,
)


def _attention(device, p: SimpleNamespace) -> Row:
    """A chunk's attention over a plain cache, as the model calls it, with a size of its own."""
    import torch
    import ttnn

    from models.llama31_8b.tt.modules import kernel_config
    from models.llama31_8b.tt.precision import FIDELITY, TILE_BYTES
    from perf.lib.tensors import errors_of, tile, words
    from runtime_patches.profiling.timeline import Timeline

    torch.manual_seed(0)
    cores, end = device.compute_with_storage_grid_size(), p.start + p.tokens
    queries = tile(device, (1, p.heads, p.tokens, HEAD_DIM))
    keys, values = (tile(device, (end // BLOCK, 1, BLOCK, HEAD_DIM), "bfloat8_b") for _ in range(2))
    table = torch.arange(-(-end // BLOCK // 8) * 8)[None] % (end // BLOCK)
    timeline = Timeline(device)
    timeline.start()
    result = ttnn.transformer.chunked_scaled_dot_product_attention(
        *(queries, keys, values, words(device, table)),
        chunk_start_idx_tensor=words(device, [p.start]),
        program_config=ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=cores, q_chunk_size=p.size, k_chunk_size=p.size, exp_approx_mode=False
        ),
        compute_kernel_config=kernel_config("bfloat8_b"),
    )
    cycles = sum(program.end - program.start for program in timeline.stop()[0])
    q, k, v = (
        ttnn.to_torch(tensor).double().reshape(-1, rows, HEAD_DIM)
        for tensor, rows in ((queries, p.tokens), (keys, end), (values, end))
    )
    visible = torch.arange(end) <= p.start + torch.arange(p.tokens)[:, None]
    scores = (q @ k.mT / HEAD_DIM**0.5).masked_fill(~visible, float("-inf"))
    pairs = p.heads * int(visible.sum())
    busy = 2 * pairs * HEAD_DIM / TILE**3 * TILE_CYCLES[FIDELITY["bfloat8_b"]] / (cores.x * cores.y)
    chunks = sum(-(-(p.start + last) // p.size) for last in range(p.size, p.tokens + 1, p.size))
    read = 2 * p.heads * chunks * p.size * HEAD_DIM // TILE**2 * TILE_BYTES["bfloat8_b"]
    return measurable({"cycles": cycles}) | {
        "of_peak": busy / cycles,
        "flops_per_cycle": 4 * pairs * HEAD_DIM / cycles / (cores.x * cores.y),
        "of_dram_64": 64 * read / (cores.x * cores.y) / BYTES_PER_CYCLE / cycles,
        "error": errors_of(ttnn.to_torch(result)[0], scores.softmax(-1) @ v)["error"],
    }


def _check_attention(p: SimpleNamespace) -> None:
    for name in ("tokens", "start"):
        if getattr(p, name) % max(p.size, BLOCK) or getattr(p, name) < 0:
            raise ValueError(f"{name} must be a multiple of size {p.size} and of {BLOCK}, got {getattr(p, name)}")


ATTENTION = Family(
    about="a prefill chunk's attention by the queries and keys that a core takes at once",
    options={"tokens": 256, "start": 0, "size": 256, "heads": 1, "cores": "1x1"},
    choices={"size": (32, 64, 128, 256), "cores": ("1x1", "2x2")},
    points={"default": ["start=0,1024 size=128,256"]},
    chip=lambda point: Chip(point.cores, timed=True),
    measure=_attention,
    check=_check_attention,
    apart=True,
)


def _parts(device, p: SimpleNamespace) -> list[Row]:
    """The ops of a layer of Llama 3.1 8B besides products and attention, as the model calls them. a_layer: how often a
    layer runs it."""
    import torch
    import ttnn

    from models.llama31_8b.config import preset
    from models.llama31_8b.tt import modules
    from models.llama31_8b.tt.kv_cache import KVCache, PagedKVCache
    from models.llama31_8b.tt.layouts import Rows
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.sharding import hidden_shards
    from perf.lib.tensors import tile, words
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.gated_product.op import gated_product

    torch.manual_seed(0)
    config, chip = preset("llama-3.1-8b").with_layers(1), MeshShape(1, 1)
    layout, rope = Rows(device, chip, config), modules.Rope(device, chip, config, p.rows, 1)
    plain = KVCache(device, chip, config, "bfloat8_b", 1, BLOCK, zeroed=False)
    paged = PagedKVCache(device, chip, config, "bfloat8_b", 1, BLOCK, 2, BLOCK, zeroed=False)
    paged.set_page_table(torch.ones(1, 1))
    norm = modules.RMSNorm(tile(device, (1, 1, 1, config.hidden_size)), config.rms_norm_eps)
    columns = (layout.heads + 2 * layout.kv_heads) * layout.head_dim
    widths, block = (config.hidden_size, columns, 2 * config.intermediate_size), hidden_shards(config, chip).columns
    x, fused, gate_up = (tile(device, (1, 1, p.rows, width)) for width in widths)
    angles = layout.angles(rope, words(device, [list(range(p.rows))], "uint32"))
    q, k, v = layout.split(fused)
    places = [{k.shape[1]: words(device, cache.places(0, 0, p.rows))} for cache in (plain, paged)]
    launches: dict[str, tuple[int, Callable[[], Any]]] = {
        "norm": (2, lambda: layout.norm(norm, x)),
        "create heads": (1, lambda: layout.split(fused)),
        "rotate queries and keys": (1, lambda: [rope.prefill(part, angles) for part in (q, k)]),
        "fill a plain cache": (1, lambda: plain.fill(0, k, v, places[0])),
        "fill a paged cache": (0, lambda: paged.fill(0, k, v, places[1])),
        "concatenate heads": (1, lambda: layout.join(q)),
        "add to the residual": (2, lambda: ttnn.add(x, x, memory_config=x.memory_config())),
        "gated product": (1, lambda: gated_product(gate_up, block)),
    }
    timeline, rows = Timeline(device), []
    for name, (count, launch) in launches.items():
        timeline.start()
        launch()
        programs = timeline.stop()[0]
        rows.append(measurable({"cycles": sum(program.end - program.start for program in programs)}))
        rows[-1] |= {"op": name, "programs": len(programs), "a_layer": count}
    return rows


def _check_parts(p: SimpleNamespace) -> None:
    if p.rows not in range(TILE, BLOCK + 1, TILE):
        raise ValueError(f"rows must be a multiple of {TILE} up to {BLOCK}, got {p.rows}")


PARTS = Family(
    about="a layer's ops in a prefill besides products and attention",
    options={"rows": TILE, "cores": "1x1"},
    choices={"cores": ("1x1", "2x2")},
    points={"default": ["rows=32,64"]},
    chip=lambda point: Chip(point.cores, timed=True),
    measure=_parts,
    check=_check_parts,
    apart=True,
)
