# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated cycles beside the nanoseconds that the ALSpec paper's tables 4 to 6 print, op by op.

The cycles are those of perf/data/paper_cycles.csv, the CSV of `python -m perf.sweep --suite paper --source sim`; one
cycle is one nanosecond. docs/results/paper_cycles.md shows the rows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from models.llama31_8b.latency import LAYERS
from perf.lib.chip import of_roofline
from perf.lib.data_file import FOLDER, Row, add_write_option, markdown, read_rows, write
from perf.sweep.configurations import DECODE_OPS, PAPER_CONTEXTS, VARIANTS, Configuration, cache_bytes, suites
from perf.sweep.table import PASS, Block, read, total_ns
from runtime_patches.board.command_line import OneLineParser, run_command

CSV = FOLDER / "paper_cycles.csv"
CHIPS = (1, 2, 4)
LAYER, FIXED = "per_layer", "fixed"  # sections of a table
OF_A_TOKEN = 0.02  # ops below this share of a token are not judged
WITHIN = 0.15
_COLLECTIVES = {"gather": "all_gather", "scatter": "reduce_scatter"}


def configuration_of(role: str, section: str, chips: int) -> Configuration | None:
    """Return the configuration of the suite `paper` that is a table's row, None where the suite has none."""
    small = re.sub("^(attention|MLP|last) ", "", role).replace(" ", "_")
    if small in DECODE_OPS and not (section == FIXED and role in ("unshard", "shard")):
        return Configuration.make("decode_op", op=small, tp=chips)
    if role in _COLLECTIVES:
        return Configuration.make("collective", op=_COLLECTIVES[role], mesh=f"1x{chips}")
    if role == "attention":
        heads = {"heads": 32 // chips, "kv_heads": 8 // chips}
        return Configuration.make("flash_decode", variant="stock", chunk_size=256, **heads)
    hidden, tp = 4096, 1 if role == "lm_head" else chips
    columns = {"qkv": 6144, "wo": hidden, "lm_head": 32064}.get(role, 14336)
    products = (c for c in suites()["paper"] if c.get("role") == {"ff3": "ff1"}.get(role, role))
    return next((c for c in products if c["k"] * c["n"] == columns * hidden // tp), None)


def cycles_of(blocks: Sequence[Block]) -> dict[str, float]:
    """Return the cycles of each configuration that passed, by its name."""
    return {block.name: total_ns(block) for block in blocks if block.status == PASS}


def collective_cycles(op: str, chips: int, columns: int) -> Any:
    """Return the cycles of a stock collective of CSV over 1x`chips`, None where it was not run."""
    c = Configuration.make("collective", op=op, mesh=f"1x{chips}", columns=columns)
    return cycles_of(read(CSV)).get(c.name)


def rows(blocks: Sequence[Block]) -> list[Row]:
    """Return every row of tables 4 to 6 with its share of a published token's time, and its cycles where it passed
    among `blocks`, else None."""
    cycles, found = cycles_of(blocks), []
    for chips in CHIPS:
        table = read_rows(f"table{4 + CHIPS.index(chips)}_n150x{chips}.csv")
        times = [(op, op["ns"] * (LAYERS if op["section"] == LAYER else 1)) for op in table]
        token = sum(whole for _, whole in times)
        for op, whole in times:
            c = configuration_of(op["role"], op["section"], chips)
            found.append(op | {"share": whole / token, "cycles": cycles.get(c.name) if c else None})
    return found


def data_rows(blocks: Sequence[Block]) -> list[Row]:
    """Return the rows of a data file.

    Returns:
        By `part`: "op", with columns of each number of chips, without ops below OF_A_TOKEN that were not run; "sum",
        the ops of a layer that were run, and their share of its published time; "judged", how many rows of at least
        OF_A_TOKEN of a token there are, were run, and are within WITHIN; "context", flash decode by context, as far as
        it was run, and the share of DRAM's rate that the exact op reads at.
    """
    told, cycles = rows(blocks), cycles_of(blocks)
    found: list[Row] = []
    places: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in told:
        places.setdefault((row["section"], row["op"], row["role"]), {}).setdefault(row["chips"], row)
    for (_, op, role), of in places.items():
        if any(row["cycles"] is not None or row["share"] >= OF_A_TOKEN for row in of.values()):
            cells: Row = {"part": "op", "op": f"{op} ({role})"}
            for chips in [*of, *(chips for chips in CHIPS if chips not in of)]:
                cells |= _cells(chips, of[chips]["ns"], of[chips]["cycles"]) if chips in of else _cells(chips)
            found.append(cells)
    for name, without in (("a layer's ops that were run", None), ("the same without attention", "attention")):
        cells, shares = {"part": "sum", "op": name}, {}
        for chips in CHIPS:
            layer = [r for r in told if (r["chips"], r["section"]) == (chips, LAYER) and r["role"] != without]
            ran = [row for row in layer if row["cycles"] is not None]
            published = sum(row["ns"] for row in ran)
            cells |= _cells(chips, float(published), sum(row["cycles"] for row in ran))
            shares[f"share_{chips}"] = published / sum(row["ns"] for row in layer)
        found.append(cells | shares)
    judged = [row for row in told if row["share"] >= OF_A_TOKEN]
    errors = [row["cycles"] / row["ns"] - 1 for row in judged if row["cycles"] is not None]
    within = sum(abs(error) <= WITHIN for error in errors)
    found.append({"part": "judged", "rows": len(judged), "run": len(errors), "within": within})
    for context in PAPER_CONTEXTS:
        shape = {"context": context, "chunk_size": 256}
        ops = {name: Configuration.make("flash_decode", variant=name, **shape) for name in VARIANTS}
        took = {variant: cycles.get(op.name) for variant, op in ops.items()}
        share = None if took["exact"] is None else of_roofline(cache_bytes(ops["exact"]), took["exact"])
        found.append({"part": "context", "context": context, **took, "of_roofline": share})
    return found


def _cells(chips: int, published: float | None = None, cycles: float | None = None) -> dict[str, Any]:
    error = cycles / published - 1 if published and cycles is not None else None
    return {f"published_{chips}": published, f"cycles_{chips}": cycles, f"error_{chips}": error}


def main(argv: Sequence[str] | None = None) -> int:
    parser = OneLineParser(prog="python -m perf.sweep.paper", description=(__doc__ or "").splitlines()[0])
    add_write_option(parser)
    options = parser.parse_args(argv)
    found = data_rows(read(CSV))
    if options.write:
        write(options.write, parser, argv, found)
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(run_command("python -m perf.sweep.paper", main))
