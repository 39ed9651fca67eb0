# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Count what a chip must hold and a decode step read, and the speed that allows.

Two counts of a step's bytes: of the numbers, and as decode steps lay them out. Either sharding has a norm's weights as
tiles, which are read whole, though one row of 32 holds numbers. Sharded steps have whole columns of tiles of every
weight in each of 12 DRAM banks: reading takes the time of the fullest bank, so the padding of the others counts too.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product

from models.llama31_8b.command_line import OneLineParser, reader_left
from models.llama31_8b.config import PRESETS, preset
from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S, RESERVE_BYTES, DoesNotFit, budget, gb
from models.llama31_8b.tt.mesh import DRAM_BYTES, MeshShape
from models.llama31_8b.tt.precision import PRECISIONS, precision_config
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS
from perf.lib.data_file import add_write_option, write
from perf.projection.published import read_rows

MESHES = ("1x1", "1x2", "1x4", "2x4", "1x8")
CONTEXTS = (1024, 32768, 65536, 131072)


def published(chips: int, precision: str, context: int) -> float | None:
    """Return the tokens/s/user that tt-metal publishes for Llama 3.1 8B, at batch 1 and this context (see the CSV)."""
    for row in read_rows("published_decode.csv"):
        if (int(row["chips"]), row["plan"], int(row["context"])) == (chips, precision, context):
            return float(row["tokens_per_s"])
    return None


def rows(
    model: str, meshes: Sequence[str], contexts: Sequence[int], precisions: Sequence[str], users: int, rate: float,
    overrides: str | None = None, shardings: Sequence[str] = ("interleaved",),
) -> list[dict]:  # fmt: skip
    """Return a dictionary per combination; "refused" holds the reason where it does not fit, else None. shardings: of
    decode steps; "read_per_step" is as they lay weights, "numbers_per_step" without the padding of tiles and banks."""
    config, table = preset(model), []
    for mesh_name in meshes:
        mesh = MeshShape.parse(mesh_name)
        for name, sharding in product(precisions, shardings):
            precision = precision_config(name, config.num_hidden_layers, overrides)
            for context in contexts:
                found = budget(config, mesh, precision, context, users, sharding)
                what = f"{model} on {mesh} in {precision.name} with {users} x {context} positions"
                if sharding != "interleaved":
                    what += f" with {sharding} decode steps"
                try:
                    found.check(what)
                    refused = None
                except DoesNotFit as error:
                    refused = str(error)
                comparable = model == "llama-3.1-8b" and users == 1 and mesh.sp == 1 and overrides is None
                table.append(
                    {
                        "mesh": str(mesh),
                        "sp": mesh.sp,
                        "tp": mesh.tp,
                        "precision": precision.name,
                        "decode_sharding": sharding,
                    }
                    | {"context": context, "users": users, **asdict(found)}
                    | {"held": found.held, "needed": found.needed, "numbers_per_step": found.numbers_per_step}
                    | {
                        "bound_tokens_per_s": None if refused else found.tokens_per_s(rate),
                        "refused": refused,
                    }
                    | {"published_tokens_per_s": published(mesh.chips, name, context) if comparable else None}
                )
    return table


def _print(table: list[dict], rate: float) -> None:
    print(f"GB (1e9 bytes) per chip; read: numbers and padding of tiles and banks, bound by it at {rate / 1e9:g} GB/s; "
          "published: tt-metal PERF.md, see perf/data")  # fmt: skip
    print(f"{'mesh':5} {'precision':22} {'sharding':11} {'context':>7} {'weights':>8} {'KV':>6} {'held':>6} "
          f"{'needed':>7} {'numbers':>7} {'read':>6} {'bound t/s/u':>11} {'published':>9} {'of bound':>8}")  # fmt: skip
    for row in table:
        bound, known = row["bound_tokens_per_s"], row["published_tokens_per_s"]
        names = ("weights", "kv_cache", "held", "needed", "numbers_per_step", "read_per_step")
        sizes = " ".join(f"{gb(row[name]):>{width}}" for name, width in zip(names, (8, 6, 6, 7, 7, 6), strict=True))
        print(
            f"{row['mesh']:5} {row['precision']:22} {row['decode_sharding']:11} {row['context']:7} {sizes} "
            f"{f'{bound:.1f}' if bound else 'refused':>11} {known or '-':>9} "
            f"{f'{known / bound:.0%}' if known and bound else '-':>8}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for values that make no sense, or when no asked combination fits."""
    parser = OneLineParser(prog="python -m perf.footprint.roofline", description=__doc__, allow_abbrev=False,
                           formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--model", default="llama-3.1-8b", choices=sorted(PRESETS))
    parser.add_argument("--mesh", nargs="+", default=MESHES, metavar="RxC", help="SP groups x TP chips, or N150")
    parser.add_argument("--context", nargs="+", type=int, default=CONTEXTS, metavar="N", help="cached positions")
    parser.add_argument("--precision", nargs="+", default=("performance", "accuracy"), choices=PRECISIONS)
    parser.add_argument("--precision-overrides", metavar="FILE", help="JSON, see models/llama31_8b/tt/precision.py")
    parser.add_argument(
        "--decode-sharding",
        nargs="+",
        default=("interleaved",),
        choices=DECODE_SHARDINGS,
        help="of decode steps (default interleaved)",
    )
    parser.add_argument("--users", type=int, default=1, help="users decoded together (default 1)")
    parser.add_argument("--dram-gb-per-s", type=float, default=DRAM_BYTES_PER_S / 1e9)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_write_option(parser)
    options = parser.parse_args(argv)
    rate = options.dram_gb_per_s * 1e9
    if not 0 < rate < math.inf:
        parser.error(f"--dram-gb-per-s must be finite and above 0, got {options.dram_gb_per_s:g}")
    try:
        table = rows(options.model, options.mesh, options.context, options.precision, options.users, rate,
                     options.precision_overrides, options.decode_sharding)  # fmt: skip
    except ValueError as error:
        parser.error(str(error))
    try:
        _show(options, table, rate)
    except BrokenPipeError:
        return reader_left()
    if options.write:
        write(options.write, parser, argv, table)
    refused = [row["refused"] for row in table if row["refused"]]
    for reason in refused:
        print(f"refused: {reason}", file=sys.stderr)
    return 2 if len(refused) == len(table) else 0


def _show(options: argparse.Namespace, table: list[dict], rate: float) -> None:
    if options.json:
        print(json.dumps({"model": options.model, "dram_bytes": DRAM_BYTES, "reserve_bytes": RESERVE_BYTES,
                          "dram_bytes_per_s": rate, "rows": table}, allow_nan=False))  # fmt: skip
    else:
        _print(table, rate)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
