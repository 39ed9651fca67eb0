# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ops that benches measure, with their points; the functions that measure one are in the modules beside.

Nothing here needs a device, so that a command refuses options and prints its help at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from models.llama31_8b.tt.mesh import TILE
from perf.lib.chip import Chip
from perf.lib.data_file import Row, read_rows
from perf.sweep.configurations import combinations
from perf.sweep.paper import collective_cycles
from runtime_patches.simulated_n150.grids import parse_grid

Point = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """Points of one op.

    about: what is compared, a line.
    options: of a point, with their defaults. choices: the values of those that have few.
    points: named lists of points, of which "default" is measured when none is asked for, each "OPTION=VALUE[,VALUE...]
    ..." as on the command line. chip: what a point is measured on.
    measure: "MODULE.FUNCTION" of this folder, which returns a point's rows, given the open device. errors: columns that
    it gives with cycles=False, on a chip that counts none. check: raises ValueError where a point cannot be measured.
    complete: returns columns that follow from a row and earlier ones. apart: each point has a process of its own.
    """

    about: str
    options: Mapping[str, Any]
    points: Mapping[str, Sequence[str]]
    chip: Callable[[SimpleNamespace], Chip]
    measure: str
    errors: Sequence[str] = ()
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    check: Callable[[SimpleNamespace], Any] = lambda point: None
    complete: Callable[[Row, Sequence[Row]], Row] = lambda row, earlier: {}
    apart: bool = False

    def named(self, name: str) -> list[Point]:
        """Return the points of a list. Raises ValueError for another name."""
        if name not in self.points:
            raise ValueError(f"--points must be one of {', '.join(self.points)}, got {name!r}")
        return [point for text in self.points[name] for point in self.asked(text.split())]

    def asked(self, assignments: Sequence[str]) -> list[Point]:
        """Return every combination of OPTION=VALUE[,VALUE...], with all options. Raises ValueError for one that cannot
        be measured."""
        points = combinations(assignments, self.options, self.choices)
        for point in points:
            self.check(SimpleNamespace(**point))
        return points


def measurable(row: Row, *names: str) -> Row:
    """Return a row. Raises ValueError unless all of its cycles, or those in `names`, can have been measured."""
    wrong = [name for name in names or row if row[name] is not None and not row[name] > 0]
    if wrong:
        raise ValueError(f"not measurable: {wrong[0]} of {row}")
    return row


def norm_of_part(tp: int) -> str:
    """Return the name that `prefill_parts` gives the norm of one of `tp` chips' columns."""
    return f"norm a part of {tp}"


MAX_CONTEXT = 131072  # Llama 3.1's
CHUNK, NODES, GUESS = 128, 16, 128


def guess_name(row: Row) -> str:
    """Return the tokens of a guess: of a chunk, or first + last; + where the tail is whole, and selected tiles."""
    sizes = f"{row['first'] or row['chunk_size']} + {row['last']}" if row["last"] else f"{row['chunk_size']}"
    if row["tiles"]:
        sizes = f"{row['first']} + {row['tiles']} x 32 + {row['last']}"
    return sizes + ("+" if row["whole_tail"] else "")


_SIZES = [
    *("context=128,256,384 chunk_size=32", "context=512 chunk_size=64", "context=1024 chunk_size=128"),
    "context=1024 chunk_size=32 workers=7",
]
_ENDS = "chunk_size=128 whole_tail=True head_dim=128 workers=7"
_CHOSEN = "chunk_size=128 whole_tail=True first=32 last=128 head_dim=128 workers=8 dtype=bfloat8_b"


def _check_tree(p: SimpleNamespace) -> None:
    if p.context % CHUNK or p.nodes >= p.context:
        raise ValueError(
            f"context must be a multiple of {CHUNK}, as the stock op wants it, and more than the nodes, got "
            f"{p.context} and {p.nodes}"
        )


def tree_columns(row: Row, _: Sequence[Row] = ()) -> Row:
    """Return ratios of measured cycles, and the bytes that masks take in DRAM: two integers per node, or for the stock
    op a bfloat16 for each query and position, in whole tiles."""
    tree, of_decode = row["tree"], row["tree"] / row["decode"]
    return {
        "of_stock": tree / row["stock"] if row["stock"] else None,
        "of_decode": of_decode,
        "of_decodes": of_decode / row["nodes"],
        "of_tree": row["speculating"] / tree if row["speculating"] else None,
        "interval_bytes": 2 * 4 * row["nodes"],
        "mask_bytes": 2 * -(-row["heads"] * row["nodes"] // 32) * 32 * row["context"],
    }


_TREES = ["nodes=4,16", "nodes=16 shape=skewed", "nodes=64", "context=1024 workers=1,4"]

# By the cores that take part: the chip's grid, the key/value heads, the columns and rows of the pair's sender and
# receiver, and the workers per head. An op alone has the sender's cores.
LAYOUTS = {8: ("5x4", 1, ((5, 2), (5, 2)), 8), 64: ("8x8", 8, ((8, 7), (8, 1)), 6)}
LONG_OPS = ("exact", "pair", "guess", "tree")
LONG_ERRORS = ("error", "worst_head", "norm_error", "bias", "largest")


def _check_long(p: SimpleNamespace) -> None:
    if not 2 * CHUNK < p.context <= MAX_CONTEXT or p.context % CHUNK:
        raise ValueError(
            f"context must be a multiple of {CHUNK} above {2 * CHUNK} and up to {MAX_CONTEXT}, got {p.context}"
        )


def _of_exact(row: Row, earlier: Sequence[Row]) -> Row:
    same = (r for r in earlier if r["op"] == "exact" and (r["cores"], r["context"]) == (row["cores"], row["context"]))
    exact = next(same, None) if row["op"] == "pair" else None
    return {"of_exact": row["cycles"] / exact["cycles"] if exact else None}


SIDE = 8  # columns and rows of the report's cores


def published_gemm(p: SimpleNamespace) -> dict[str, Any]:
    """Return the report's row of a product. Raises ValueError where it has none."""
    for row in read_rows("published_gemm.csv"):
        if (row["size"], row["dtype"], row["fidelity"]) == (p.size, p.dtype, p.fidelity):
            return row
    raise ValueError(f"the GEMM report has no product of size {p.size} in {p.dtype} at {p.fidelity}")


BLOCK = 128  # positions of a cache's block
# By program, whether the cores of a row share rows and those of a column columns; else all share all rows.
PROGRAMS = {"banked_product": False, "minimal_matmul": True, "multicast": True, "copied": True, "interleaved": False}


def _of_minimal(row: Row, earlier: Sequence[Row]) -> Row:
    """Hold a product against that of minimal_matmul of the same rows and weight on a whole chip."""
    alike = ("chip_rows", "inputs", "chip_outputs", "dtype")
    same = [r for r in earlier if all(r[name] == row[name] for name in alike)]
    stock = next((r["cycles"] for r in same if r["program"] == "minimal_matmul"), None)
    return {"of_minimal": row["cycles"] / stock if stock else None}


NO_PRODUCT = "none"
PRODUCT_COLUMNS = {"qkv": 6144, "gate_up": 28672}  # of Llama 3.1 8B


def _of_programs_apart(row: Row) -> Row:
    """Return the recorded cycles of an all-reduce and of a chip's product."""
    if (row["users"], row["columns"], row["tp"] or row["chips"]) != (1, 4096, row["chips"]):
        return dict.fromkeys(("all_reduce", "product_apart", "saved"))
    shape = f"{row['columns']}x{PRODUCT_COLUMNS[row['product']] // row['chips']}"
    apart = {"tp": row["chips"], "sharding": "sharded", "stage": "layer", "shape": shape}
    product = next(op["cycles"] for op in read_rows("steps/decode_layer_ops.csv") if op.items() >= apart.items())
    reduced = next(each["cycles"] for each in read_rows("ops/all_reduce.json") if each["chips"] == row["chips"])
    return {"all_reduce": reduced, "product_apart": product, "saved": reduced + product - row["cycles"]}


def _of_collectives(row: Row, _: Sequence[Row]) -> Row:
    """Return what the sweep of stock ops has in the op's place, None where it has nothing; or with the next product of
    Llama 3.1 8B what all-reduce and product take apart."""
    if row["product"] != NO_PRODUCT:
        return _of_programs_apart(row)
    found: Row = {op: collective_cycles(op, row["chips"], row["columns"]) for op in ("reduce_scatter", "all_gather")}
    both = None if None in found.values() else sum(found.values())
    return found | {"stock": both, "of_stock": both and row["cycles"] / both}


COLLECTIVES = ("all_gather", "reduce_scatter")
HEADS = "heads"  # wo from attention's result on: stock ops join its heads before

FAMILIES: dict[str, Family] = {
    "flash_decode": Family(
        about="what speculation costs the flash decode kernel, one head on a virtual pair",
        options={
            **{"context": 128, "chunk_size": 32, "head_dim": 64, "heads": 4, "workers": 1, "last": 0},
            **{"whole_tail": False, "first": 0, "tiles": 0, "masses": False, "dtype": "bfloat16"},
        },
        choices={"dtype": ("bfloat16", "bfloat8_b")},
        points={
            "default": _SIZES,
            # Of a key/value head of Llama 3.1 8B; at 64K tokens with 3, 6 and 12 % of its tiles.
            "chosen": [
                *(f"context=1024,8192 {_ENDS}", f"context=16384 {_CHOSEN} tiles=61"),
                f"context=65536 {_CHOSEN} tiles=61,123,246",
            ],
            # What the sender pays for handing out the weights of its tiles.
            "weights": [
                f"context=1024,2048,4096,8192 {_ENDS} masses=False,True",
                "context=1024 chunk_size=128 whole_tail=True head_dim=128 masses=False,True",
            ],
            "long": [
                *_SIZES,
                *("context=256,768 chunk_size=64", "context=512 chunk_size=64 head_dim=128"),
                *("context=512,1024 chunk_size=64 workers=2", "context=1024 chunk_size=32 workers=2,4"),
                *("context=256,2048 chunk_size=32 workers=7", "context=1024,5120 chunk_size=128 workers=7"),
                "context=2048 chunk_size=128 workers=2,3,7",
                *(f"context=65536 {_CHOSEN} tiles=0", f"context=65536 {_CHOSEN} tiles=123 masses=True"),
            ],
        },
        chip=lambda point: Chip("5x4"),
        measure="attention.flash_decode_pair",
        complete=lambda row, _: {"guess_range": guess_name(row), "chunks": -(-row["context"] // row["chunk_size"])},
    ),
    "tile_selection": Family(
        about="the choice of the tiles that the next guesses read, all layers of a step",
        options={"context": 65536, "layers": 4, "masses": "octaves", "budget": 0.98},
        points={"default": ["context=8192,65536 masses=octaves,even"]},
        chip=lambda point: Chip("2x1"),
        measure="attention.tile_selection",
    ),
    "paged_cache": Family(
        about="what a page table costs attention",
        options={"op": "decode", "context": 1024, "block": 64, "workers": 7},
        choices={"op": ("decode", "tree")},
        points={"default": ["context=1024,4096 block=32,64,128", "workers=1", "op=tree context=1024,4096"]},
        chip=lambda point: Chip("4x2"),
        measure="attention.paged_cache",
    ),
    "tree_attention": Family(
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
        measure="attention.tree_and_stock",
        check=_check_tree,
        complete=tree_columns,
    ),
    "tree_masses": Family(
        about="what a tree that speculates pays for handing out the masses of its root",
        options={"context": 1024, "nodes": 16, "workers": 1},
        points={"default": ["workers=1,4"]},
        chip=lambda point: Chip("4x3", room=True),
        measure="attention.tree_masses",
    ),
    "long_context": Family(
        about="attention ops at long contexts: errors against float64, cycles, when the guess leaves",
        options={"cores": 8, "context": 16384, "op": "exact"},
        choices={"cores": tuple(LAYOUTS), "op": LONG_OPS},
        points={"default": [f"context=16384,65536,131072 cores=8,64 op={','.join(LONG_OPS)}"]},
        chip=lambda point: Chip(LAYOUTS[point.cores][0]),
        measure="attention.long_context",
        errors=(*LONG_ERRORS, "guess_error"),
        check=_check_long,
        complete=_of_exact,
        apart=True,
    ),
    "sampling": Family(
        about="verifying drafted tokens against stock ops, cycles and bytes; cores: per user, 0 as the op chooses",
        options={"users": 1, "drafted": 4, "vocab": 2048, "cores": 0, "ways": "all", "grid": "1x1"},
        choices={"ways": ("all", "own")},
        points={"default": [""]},
        check=lambda point: parse_grid(point.grid),
        chip=lambda point: Chip(point.grid, gated=True),
        measure="sampling.verification",
    ),
    "sgdc": Family(
        about="the compute gate and the exchange",
        options={"part": "gate"},
        choices={"part": ("stock", "gate", "exchange")},
        points={"default": ["part=stock,gate,exchange"]},
        chip=lambda point: Chip("4x2", gated=point.part != "stock"),
        measure="sgdc.part",
    ),
    "gemm": Family(
        about="the matrix unit: products of tt-metal's GEMM report beside its figures of boards",
        options={"size": 1024, "dtype": "bfloat16", "fidelity": "HiFi2"},
        choices={"size": (1024, 2048)},
        points={
            "default": [
                *("size=1024 dtype=bfloat16 fidelity=HiFi2,HiFi4", "size=1024 dtype=bfloat8_b fidelity=HiFi2,LoFi"),
                *("size=1024 dtype=bfloat4_b fidelity=LoFi", "size=2048 dtype=bfloat8_b fidelity=HiFi2"),
            ]
        },
        chip=lambda point: Chip(f"{SIDE}x1", timed=True),
        measure="products.gemm",
        check=published_gemm,
        apart=True,
    ),
    # Parts of Llama 3.1 8B's products over some of the inner dimension. Four by four cores have half of a chip's rows
    # and of its columns where cores of a row share rows; where all cores share all rows, a quarter of the columns.
    "prefill_product": Family(
        about="a prefill's products by program: our own, stock ones over the same weight, ttnn's choice over another",
        options={
            **{"rows": 256, "inputs": 512, "outputs": 3072, "x": "bfloat16", "dtype": "bfloat8_b", "cores": "4x4"},
            "program": "minimal_matmul",
        },
        choices={
            **{"x": ("bfloat16", "bfloat8_b"), "dtype": ("bfloat8_b", "bfloat4_b")},
            **{"program": tuple(PROGRAMS), "cores": ("4x4", "8x8")},
        },
        points={
            "default": [
                "rows=64 program=minimal_matmul,multicast",
                "rows=128 outputs=1536 program=banked_product,interleaved",
                "rows=128 inputs=1024 outputs=1536 program=banked_product",
                "rows=128 inputs=512,1024 outputs=512 program=banked_product",
                "rows=128,512 inputs=512,1024 outputs=3584 dtype=bfloat4_b program=banked_product",
                "rows=256 program=minimal_matmul,multicast,copied",
                "rows=512 inputs=512,1024 outputs=512,1024,1536 program=banked_product",
                "rows=512,1024 inputs=512,1024 x=bfloat16,bfloat8_b program=minimal_matmul",
                "rows=256 inputs=1024 program=minimal_matmul",
                "rows=256,512 inputs=512,1024 outputs=7168 x=bfloat16 dtype=bfloat4_b program=minimal_matmul",
                "rows=512,1024 inputs=512,1024 outputs=7168 x=bfloat8_b dtype=bfloat4_b program=minimal_matmul",
                "rows=512 inputs=4096 outputs=1024 x=bfloat8_b dtype=bfloat8_b,bfloat4_b program=minimal_matmul",
            ]
        },
        chip=lambda point: Chip(point.cores, timed=True),
        measure="products.prefill_product",
        complete=_of_minimal,
        apart=True,
    ),
    "prefill_attention": Family(
        about="a prefill chunk's attention, of query heads that share keys; stock: by size queries and keys at once",
        options={"op": "own", "tokens": 64, "start": 0, "heads": 4, "size": 256, "keys": 512, "cores": "1x1"},
        choices={
            "op": ("own", "stock"),
            "size": (32, 64, 128, 256),
            "keys": (32, 64, 128, 256, 512),
            "cores": ("1x1", "2x2"),
        },
        points={
            "default": [
                *("start=0,448,1984,4032", "start=1920 tokens=128", "start=0,480,2016 tokens=32 heads=4,2,1"),
                *("op=stock heads=1 start=768,1792 tokens=256", "op=stock heads=1 start=768,1792 tokens=256 size=128"),
            ]
        },
        chip=lambda point: Chip(point.cores, timed=True),
        measure="attention.prefill_attention",
        apart=True,
    ),
    "prefill_parts": Family(
        about="a layer's ops in a prefill besides products and attention",
        options={"rows": TILE, "cores": "1x1"},
        choices={"cores": ("1x1", "2x2")},
        points={"default": ["rows=32,64"]},
        chip=lambda point: Chip(point.cores, timed=True),
        measure="rows.prefill_parts",
        apart=True,
    ),
    "long_rows": Family(
        about="ttnn's gathers and scatters of a prefill's rows, beside tt-metal's published times of as many bytes",
        options={"op": "all_gather", "chips": 2, "rows": 512, "columns": 4096, "dtype": "bfloat8_b"},
        choices={"op": COLLECTIVES, "chips": (2, 4, 8), "dtype": ("bfloat16", "bfloat8_b")},
        points={
            "default": [
                *("op=all_gather,reduce_scatter rows=512,2048", "op=all_gather,reduce_scatter dtype=bfloat16"),
                *("op=all_gather,reduce_scatter chips=4", "op=all_gather,reduce_scatter chips=8 rows=128"),
            ]
        },
        chip=lambda point: Chip("4x4", mesh=(1, point.chips), timed=True),
        measure="rows.long_rows",
        apart=True,
    ),
    "all_reduce": Family(
        about="the sum of a TP group's rows on each of its chips, with residual and norm, against stock ops; also with "
        "the next product, of a chip of tp",
        options={"chips": 2, "users": 1, "columns": 4096, "product": NO_PRODUCT, "tp": 0},
        choices={"chips": (2, 4, 8), "product": (NO_PRODUCT, "qkv", "gate_up")},
        points={"default": ["chips=2,4,8"], "products": ["chips=2,4,8 product=qkv,gate_up"]},
        chip=lambda point: Chip("4x3" if point.product == NO_PRODUCT else "8x8", mesh=(1, point.chips), timed=True),
        measure="rows.all_reduce",
        complete=_of_collectives,
        apart=True,
    ),
    "decode_product": Family(
        about="a decode step's products of weights in the DRAM banks, against the stock program",
        options={"tp": 8, "product": "qkv", "users": 1},
        choices={"tp": (1, 2, 4, 8), "product": ("qkv", "wo", "gate_up", "down", HEADS)},
        points={
            "default": ["product=qkv,wo,gate_up,down", "product=qkv users=8,16", "product=heads users=1,4,8"],
            "long": ["tp=4 product=qkv,wo,gate_up,down"],
        },
        chip=lambda point: Chip("8x8", timed=True),
        measure="products.banked_decode_product",
        apart=True,
    ),
    "gated_product": Family(
        about="silu(gate) * up of a decode step on the rows that hold users, against the stock op on all",
        options={"tp": 1, "users": 1},
        choices={"tp": (1, 2, 4, 8)},
        points={"default": ["tp=8 users=1,8,32"], "long": ["tp=8 users=1,8,32", "tp=1,2"]},
        chip=lambda point: Chip("8x8" if point.tp == 1 else "8x7", timed=True),  # the cores that hold shards
        measure="rows.silu_and_product",
    ),
    "rotated_heads": Family(
        about="heads of a decode step split, rotated and cached by one op, against four stock ops",
        options={"tp": 1, "users": 1},
        choices={"tp": (1, 2, 4, 8)},
        points={"default": ["tp=1,8"]},
        chip=lambda point: Chip("8x6", timed=True),  # a core for each head of a whole layer
        measure="rows.heads_into_cache",
    ),
}
