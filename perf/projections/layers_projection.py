# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the two layers that bench_alspec executed on a pair make of a whole model, beside the estimator's gain.

Data files of `perf.steps.bench_alspec --model ... --tp N --layers 2 --hits 1 0` give the cycles of two layers and how
long after one layer's attention the next one's begins, exchange included: each further layer of the model is taken to
add as much. Beside that, appendix F with the same parts, which has no exchange. Gains are over exact attention on a
row's N chips, as the estimator's are, whose layers have the collectives of N chips that bench_alspec leaves out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from perf.docs import Row, read
from perf.lib.data_file import add_write_option, tabulate
from perf.projections.estimator.latency import estimate, split_layers, token_latency
from perf.projections.estimator.tables import LAYERS

HIT_RATES = (0.5, 0.625, 0.75, 0.875, 1.0)


def table_rows(executed: Iterable[Row], chips: int, hit_rates: Sequence[float] = HIT_RATES) -> list[Row]:
    """Return a row per hit rate for LAYERS layers: cycles of exact attention and of the pair, by what a further layer
    adds and by appendix F, the gains of both, and the estimator's gain of twice `chips` chips over `chips`.

    executed: rows of bench_alspec at one context; those with half of the hits are left out. Errors: ValueError unless
    there are a hit and a miss, of two layers or more.
    """
    found = {row["hit_rate"]: row for row in executed}
    if not {0.0, 1.0} <= set(found) or any(row["layers"] < 2 for row in found.values()):
        layers = sorted({row["layers"] for row in found.values()})
        raise ValueError(f"wanted steps of two layers with hits 1 and 0, got hits {sorted(found)} of {layers} layers")
    hit, miss = found[1.0], found[0.0]
    exact, all_hit, none_hit = (
        row[part] + (LAYERS - row["layers"]) * row[pitch]
        for row, part, pitch in (
            (hit, "exact", "layer_pitch_exact"),
            (hit, "cycles", "layer_pitch"),
            (miss, "cycles", "layer_pitch"),
        )
    )
    fixed, per_layer, context = hit["part_fixed"], hit["part_per_layer"], hit["context"]
    formula_exact = token_latency(fixed, per_layer, fd=hit["part_exact"])
    rows = []
    for rate in hit_rates:
        hits, misses = split_layers(LAYERS, rate)
        pair = (hits * all_hit + misses * none_hit) / LAYERS
        sender, receiver = hit["part_sender"], hit["part_receiver"]
        formula = token_latency(fixed, per_layer, sfd_s=sender, sfd_r=receiver, hit_rate=rate)
        tp = estimate(context, None, chips, "tp").token_latency_ns
        pairs = estimate(context, rate, 2 * chips, "sp+tp", hit["chunk_size"]).token_latency_ns
        rows.append(
            {"context": context, "layers": LAYERS, "chips": chips, "hit_rate": rate, "exact": exact}
            | {"pair": round(pair), "gain": exact / pair}
            | {"formula": formula, "formula_gain": formula_exact / formula}
            | {"estimator_gain": tp / pairs}
        )
    return rows


def report(table: Sequence[Row]) -> str:
    """Return `table_rows` as text."""
    lines = [f"{'context':>9}{'hits':>8}{'executed':>12}{'appendix F':>12}{'estimator':>12}"]
    for row in table:
        gains = (row[name] for name in ("gain", "formula_gain", "estimator_gain"))
        lines.append(f"{row['context']:>9}{row['hit_rate']:>8.1%}" + "".join(f"{gain:>11.2f}x" for gain in gains))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.projections.layers_projection", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="JSON", help="data files of bench_alspec --model")
    parser.add_argument("--chips", type=int, choices=(1, 2, 4), default=4, help="bench_alspec's --tp (4)")
    add_write_option(parser)
    args = parser.parse_args(argv)

    def make() -> list[Row]:
        return [row for path in args.files for row in table_rows(read(path)[1], args.chips)]

    return tabulate(parser, argv, args.write, make, report)


if __name__ == "__main__":
    raise SystemExit(main())
