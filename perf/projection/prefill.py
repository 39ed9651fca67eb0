# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A floor of the time to a prompt's first token, by parts whose cycles were executed on a few simulated cores.

What a part takes of all 64 cores is projected from what a core of the benches took, by the number of its blocks. No
part is faster than the DRAM that it reads, nor than the matrix units. Collectives are published times, and beyond 1 MB
lines through those of the smallest and the largest size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.tt.mesh import TILE, MeshShape
from models.llama31_8b.tt.precision import FIDELITY, LayerPrecision, bytes_of, precision_config
from models.llama31_8b.tt.prefill import PREFILL_CHUNK, all_cores_read, padded_rows, row_blocks, row_format
from perf.lib.chip import BYTES_PER_CYCLE, TILE_CYCLES
from perf.lib.data_file import Row, read_rows
from perf.ops.families import norm_of_part
from perf.step.shapes import head_pieces
from tt_kernels.tree_attention.checks import Problem, pass_tiles, piece_tokens

GRID = (8, 8)
CORES = GRID[0] * GRID[1]
SHORT = 128  # rows of a chip: the fewest whose products were executed
SHORT_PREFIX = 256  # tokens before a piece, above which its attention grows along a line
FEW = 2048  # columns of a chip, of a product that says what does not grow with columns
TOKENS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
PARTS = ("products", "attention", "others", "collectives", "head")
# Ops that give a core whole rows of tiles, as norms do; the others share all tiles among the cores.
BY_ROWS = ("create heads", "concatenate heads")
ASSUMPTIONS = (
    "executed, on few simulated cores that do what each of 64 does: products of 128 and 512 rows by banked_product, "
    "of more by minimal_matmul, attention, the other ops of a layer, and the LM head of a decode step",
    "what both take grows along a line with the inner dimension, through 512 and 1,024, and banked_product's with "
    "rows; by products of few columns over 4,096 some of minimal_matmul's start does not grow with columns",
    "projected: how many columns a core has, and all sums; a block that was not executed takes as much more than one "
    "of fewer rows as it has rows, or as much as one of more",
    "cores do not wait for each other's reads; a cycle is a nanosecond",
    "ops that share tiles among the cores take a chip's part of them on several chips; norms and heads take as long",
    "nothing is overlapped, and no time passes between programs, on the host or for the embedding",
)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return start and slope of the line through two points."""
    (x, y), (further, higher) = sorted(points)
    slope = (higher - y) / (further - x)
    return y - slope * x, slope


def _products(program: str, dtype: str) -> list[Row]:
    """Return a program's executed products by weights of a format, on few cores."""
    kind = program, dtype, "4x4"
    rows = read_rows("ops/prefill_product.json")
    return [row for row in rows if (row["program"], row["dtype"], row["cores"]) == kind]


@cache
def _lines(program: str, dtype: str) -> dict[tuple[int, int, str], tuple[float, float]]:
    """Return what products over two inner dimensions take to begin and end, and for each tile of the inner dimension,
    by a chip's rows and columns and by the rows' format."""
    points: dict[tuple[int, int, str], list[tuple[float, float]]] = {}
    for row in _products(program, dtype):
        key = row["chip_rows"], row["chip_outputs"], row["x"]
        points.setdefault(key, []).append((row["inputs"] / TILE, row["cycles"]))
    return {key: _line(found) for key, found in points.items() if len(found) > 1}


@cache
def _fill(dtype: str) -> float:
    """Return what minimal_matmul takes to begin and end whatever its columns, by a product of FEW."""
    (row,) = (row for row in _products("minimal_matmul", dtype) if row["chip_outputs"] <= FEW)
    few, lines = row["chip_outputs"], _lines("minimal_matmul", dtype)
    (many,) = (key for key in lines if (key[0], key[2]) == (row["chip_rows"], row["x"]))
    whole, step = lines[many]
    start = row["cycles"] - row["inputs"] / TILE * step * few / many[1]
    return (start * many[1] - whole * few) / (many[1] - few)


def _minimal_cycles(high: int, wide: int, inner: int, dtype: str, x: str) -> float:
    """Return the cycles of minimal_matmul where cores have `high` tiles of rows and `wide` columns, over `inner` tiles:
    as executed; of rows that were not, in proportion to the most that are fewer, or as of the fewest that are more,
    whichever is shorter. x: of the rows, of few bfloat16."""
    lines = {
        (-(-rows // TILE // GRID[1]), of == x): (columns / TILE / GRID[0], *line)
        for (rows, columns, of), line in _lines("minimal_matmul", dtype).items()
        if of in (x, "bfloat16")
    }
    lower = max(key for key in lines if key[0] <= high)
    higher = min((key for key in lines if key[0] >= high), key=lambda key: (key[0], not key[1]), default=lower)
    found = []
    for key in (lower, higher):
        (columns, start, step), more = lines[key], max(high / key[0], 1.0)
        begun = (start - _fill(dtype)) / columns
        a_column = max(more * step / columns, high * TILE_CYCLES[FIDELITY[dtype]])
        found.append(_fill(dtype) + wide * (more * begun + inner * a_column))
    return min(found)


def banked_line(rows: int, columns: float, dtype: str) -> tuple[float, float]:
    """Return what banked_product takes to fill and drain, and for a tile of the inner dimension, with so many columns
    of a core: along lines in rows, as of SHORT for fewer. Columns that were not executed of the format are as of
    bfloat8_b, a bound; more take steps in proportion."""
    lines = _lines("banked_product", "bfloat8_b") | _lines("banked_product", dtype)
    starts, steps = [], []
    for high in {high for high, *_ in lines}:
        of_rows = sorted((of / TILE / CORES, line) for (rows_of, of, _), line in lines.items() if rows_of == high)
        at, found = zip(*of_rows, strict=True)
        begins, slopes = zip(*found, strict=True)
        starts.append((high, float(np.interp(columns, at, begins))))
        steps.append((high, float(np.interp(columns, at, slopes)) * max(1.0, columns / at[-1])))
    (start, more), (step, higher) = _line(starts), _line(steps)
    return start + more * max(rows, SHORT), step + higher * max(rows, SHORT)


def product_cycles(rows: int, inputs: int, outputs: int, dtype: str, x: str = "bfloat16") -> float:
    """Return the cycles of a product [rows, inputs] @ [inputs, outputs] of the model on 64 cores. x: the rows'
    format."""
    read = bytes_of(inputs * outputs, dtype) / BYTES_PER_CYCLE
    if all_cores_read(rows, dtype):
        start, step = banked_line(rows, -(-outputs // TILE // CORES), dtype)
        return start + max(inputs / TILE * step, read)
    high, wide = (-(-tiles // TILE // cores) for tiles, cores in ((rows, GRID[1]), (outputs, GRID[0])))
    block = row_blocks(rows, inputs, outputs, GRID, dtype).rows
    reads = -(-high // block)  # of the weight
    return reads * max(_minimal_cycles(block, wide, inputs // TILE, dtype, x), read)


@cache
def _attention(tokens: int, heads: int) -> tuple[float, float]:
    """Return the cycles of a core with so many tokens of so many query heads before its first key, and of each key."""
    rows = [row for row in read_rows("ops/prefill_attention.json") if row["op"] == "own" and row["heads"] == heads]
    points = sorted(
        (row["start"] + tokens, row["cycles"])
        for row in rows
        if row["tokens"] == tokens and row["start"] >= SHORT_PREFIX
    )
    return _line([points[0], points[-1]])


def attention_cycles(heads: int, rows: int, start: int) -> float:
    """Return the cycles of a chunk's attention on 64 cores, which take its pieces in turn, every second time backwards
    (steady_softmax.hpp)."""
    config = preset("llama-3.1-8b")
    group = config.num_attention_heads // config.num_key_value_heads
    kv_heads = heads // group
    tokens = piece_tokens(rows, group, kv_heads, CORES)
    shape = (rows // tokens, heads, kv_heads, config.head_dim, start + rows, "BFLOAT8_B")
    problem = Problem(*shape, nodes=tokens, block_heads=kv_heads)
    tiles = pass_tiles(problem, CORES)
    begin, key = _attention(tokens, tiles * TILE // tokens)
    jobs = problem.query_tiles // tiles * kv_heads
    keys = [start + end for end in range(tokens, rows + 1, tokens) for _ in range(jobs)]
    busy = [0.0] * CORES
    for number, first in enumerate(range(0, len(keys), CORES)):
        attended = keys[first : first + CORES]
        backwards = number % 2 == 1 and len(attended) == CORES
        for core, count in enumerate(reversed(attended) if backwards else attended):
            busy[core] += begin + key * count
    read = 2 * sum(bytes_of(count * config.head_dim, "bfloat8_b") for count in keys)
    return max(*busy, read / BYTES_PER_CYCLE)


def other_cycles(rows: int, tp: int) -> float:
    """Return the cycles of a layer's other ops on 64 cores of one of `tp` chips."""
    parts = {row["op"]: row for row in read_rows("ops/prefill_parts.json") if row["rows"] == TILE}
    norm = parts["norm" if _sent(rows, tp) == "bfloat16" else norm_of_part(tp)]
    high = rows / TILE
    a_core = math.ceil(high / CORES)
    total = parts["norm"]["a_layer"] * max(norm["cycles"] * a_core, norm["bytes"] * high / BYTES_PER_CYCLE)
    for op, row in parts.items():
        if not op.startswith("norm"):
            took = row["cycles"] * (a_core if op in BY_ROWS else high / CORES / tp)
            total += row["a_layer"] * max(took, row["bytes"] * high / tp / BYTES_PER_CYCLE)
    return total


def _coarse(rows: int) -> str:
    """Return the format of so many rows of a prefill where they may be coarse, in performance precision."""
    return row_format(rows, precision_config("performance", 1).long_rows)


def _sent(rows: int, tp: int) -> str:
    """Return the format in which `tp` chips send rows, and in which their norms are."""
    return "bfloat16" if tp == 1 else _coarse(rows)


def collective_cycles(rows: int, tp: int, hidden: int) -> float:
    """Return the nanoseconds of a layer's two gathers and two reductions of rows, and of two gathers of their squares
    where rows are normed before they are gathered."""
    if tp == 1:
        return 0.0
    sent = _sent(rows, tp)
    size = bytes_of(rows * hidden, sent)
    gather = partial(long_collective_ns, "all_gather", tp)
    squares = 0.0 if sent == "bfloat16" else gather(bytes_of(rows * TILE * tp, "bfloat16"))
    return 2 * (squares + gather(size) + long_collective_ns("reduce_scatter", tp, size))


def long_collective_ns(collective: str, tp: int, size: int) -> float:
    """Return the published nanoseconds of a collective, beyond the largest size by a line through both ends."""
    points = _published(collective, tp)
    if size <= points[-1][0]:
        return collective_ns(collective, tp, size)
    start, slope = _line([points[0], points[-1]])
    return start + slope * size


def collective_ns(collective: str, chips: int, size: int) -> float:
    """Return the published kernel time of a collective, interpolated between the measured sizes.

    Args:
        collective: "all_gather", "reduce_scatter" or "all_to_all".
        chips: of the row.
        size: bytes of the un-sharded tensor. Below the smallest measured size only the start is left.

    Raises:
        ValueError: for chips or sizes that were not measured.
    """
    sizes, ns = zip(*_published(collective, chips), strict=True)
    if not 0 < size <= sizes[-1]:
        raise ValueError(f"{collective} was measured up to {sizes[-1]} bytes, got {size}")
    return float(np.interp(size, sizes, ns))


def _published(collective: str, chips: int) -> list[tuple[int, float]]:
    """Return bytes and nanoseconds of tt-metal's times of September 2026: one link per direction, lines of two and four
    chips, a ring of eight."""
    rows = [row for row in read_rows("ethernet_2026_09.csv") if row["collective"] == collective]
    points = [(row["bytes"], 1000 * row["us"]) for row in rows if row["chips"] == chips]
    if not points:
        known = sorted({row["chips"] for row in rows})
        raise ValueError(f"no time of {collective} on {chips} chips was measured, only on {known}")
    return points


def products_of(config: LlamaConfig, formats: LayerPrecision, tp: int) -> list[tuple[int, int, str]]:
    """Return inputs, outputs and format of a layer's products on one of `tp` chips."""
    hidden, attended = config.hidden_size, config.num_attention_heads * config.head_dim
    columns = attended + 2 * config.num_key_value_heads * config.head_dim
    wide = config.intermediate_size // tp
    return [
        (hidden, columns // tp, formats.qkv),
        (attended // tp, hidden, formats.wo),
        (hidden, 2 * wide, formats.gate_up),
        (wide, hidden, formats.down),
    ]


def project(tokens: int, chips: int) -> dict[str, float]:
    """Return milliseconds to the first token by PARTS, of a prompt of Llama 3.1 8B in performance precision, alone on a
    row of `chips`."""
    config = preset("llama-3.1-8b")
    MeshShape(1, chips).check_model(config)
    formats, heads = (
        precision_config("performance", config.num_hidden_layers).layer,
        config.num_attention_heads // chips,
    )
    ns, layers = dict.fromkeys(PARTS, 0.0), config.num_hidden_layers
    products = products_of(config, formats, chips)
    for start in range(0, tokens, PREFILL_CHUNK):
        rows = padded_rows(min(PREFILL_CHUNK, tokens - start))
        formats_of_rows = _sent(rows, chips), "bfloat16", _sent(rows, chips), _coarse(rows)
        each = [product_cycles(rows, *product, x) for product, x in zip(products, formats_of_rows, strict=True)]
        ns["products"] += layers * sum(each)
        ns["attention"] += layers * attention_cycles(heads, rows, start)
        ns["others"] += layers * other_cycles(rows, chips)
        ns["collectives"] += layers * collective_cycles(rows, chips, config.hidden_size)
    executed = read_rows("steps/decode_layer.csv")
    piece = next(row["cycles"] for row in executed if row["stage"] == "head" and row["sharding"] == "sharded")
    ns["head"] = head_pieces(config) * piece / chips
    return {part: took / 1e6 for part, took in ns.items()}


def peak_ns(tokens: int, chips: int) -> float:
    """Return what the matrix units of `chips` need for a prompt at the model's fidelities, causal attention."""
    config = preset("llama-3.1-8b")
    formats = precision_config("performance", config.num_hidden_layers).layer
    cycles = sum(
        tokens * inputs * outputs / TILE**3 * TILE_CYCLES[FIDELITY[dtype]]
        for inputs, outputs, dtype in products_of(config, formats, 1)
    )
    pairs = config.num_attention_heads * tokens * (tokens + 1) / 2
    cycles += 2 * pairs * config.head_dim / TILE**3 * TILE_CYCLES[FIDELITY["bfloat8_b"]]
    return config.num_hidden_layers * cycles / CORES / chips


def rows_of(tokens: Sequence[int], chips: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row per prompt and number of chips, with what is published, None where nothing is."""
    published = {(row["chips"], row["tokens"]): row["ms"] for row in read_rows("published_prefill.csv")}
    found = []
    for count in chips:
        for length in tokens:
            parts = project(length, count)
            ms = sum(parts.values())
            row: dict[str, Any] = {"chips": count, "tokens": length} | parts | {"ms": ms}
            row |= {"tokens_per_s": 1000 * length / ms, "of_peak": peak_ns(length, count) / 1e6 / ms}
            known = published.get((count, length))
            found.append(row | {"published": known, "of_published": None if known is None else ms / known})
    return found
