# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the one and two layers that bench_alspec executed on a pair make of a whole model, beside the estimator's gain.

Data files of `perf.steps.bench_alspec --model ... --tp N --hits 1 0`, of `--layers 1` and of `--layers 2` at the same
context, give the cycles of a first layer and what a second one adds, its exchange included: each further layer of the
model is taken to add as much. Beside that, appendix F with the same parts, which has no exchange. Gains are over exact
attention on a row's N chips, as the estimator's are, whose layers have the collectives of N chips that bench_alspec
leaves out.
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
    """Return a row per context and hit rate for LAYERS layers: cycles of exact attention and of the pair, by what a
    second layer adds and by appendix F, the gains of both, and the estimator's gain of twice `chips` chips over
    `chips`.

    executed: rows of bench_alspec; of two layers those with half of the hits are left out. Errors: ValueError unless
    each context has a hit and a miss of one layer and of two.
    """
    steps: dict[int, dict[tuple[int, float], Row]] = {}
    for row in executed:
        steps.setdefault(row["context"], {})[row["layers"], row["hit_rate"]] = row
    rows = []
    for context, found in steps.items():
        if missing := {(layers, hits) for layers in (1, 2) for hits in (0.0, 1.0)} - set(found):
            wanted = ", ".join(f"{layers} with hits {hits:g}" for layers, hits in sorted(missing))
            raise ValueError(f"at {context} cached tokens the steps of these layers are missing: {wanted}")
        first = found[1, 1.0]
        exact, all_hit, none_hit = (
            _whole(found[1, hits][part], found[2, hits][part])
            for part, hits in (("exact", 1.0), ("cycles", 1.0), ("cycles", 0.0))
        )
        fixed, per_layer = first["part_fixed"], first["part_per_layer"]
        formula_exact = token_latency(fixed, per_layer, fd=first["part_exact"])
        for rate in hit_rates:
            hits, misses = split_layers(LAYERS, rate)
            pair = (hits * all_hit + misses * none_hit) / LAYERS
            sender, receiver = first["part_sender"], first["part_receiver"]
            formula = token_latency(fixed, per_layer, sfd_s=sender, sfd_r=receiver, hit_rate=rate)
            tp = estimate(context, None, chips, "tp").token_latency_ns
            pairs = estimate(context, rate, 2 * chips, "sp+tp", first["chunk_size"]).token_latency_ns
            rows.append(
                {"context": context, "layers": LAYERS, "chips": chips, "hit_rate": rate, "exact": exact}
                | {"pair": round(pair), "gain": exact / pair}
                | {"formula": formula, "formula_gain": formula_exact / formula}
                | {"estimator_gain": tp / pairs}
            )
    return rows


def _whole(one: int, two: int) -> int:
    """Return the cycles of LAYERS layers of which `one` takes so long, and each further one what it adds in `two`."""
    return one + (LAYERS - 1) * (two - one)


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
        return table_rows([row for path in args.files for row in read(path)[1]], args.chips)

    return tabulate(parser, argv, args.write, make, report)


if __name__ == "__main__":
    raise SystemExit(main())
