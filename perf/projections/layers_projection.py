# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the one layer that bench_alspec executed on a pair makes of a whole model, beside the estimator's gain.

A data file of `perf.steps.bench_alspec --model ... --tp N --layers 1 --hits 1 0` gives the parts of appendix F and the
cycles of a hit and of a miss. Two projections bracket a model of many such layers: by appendix F, which has no
exchange, and with every layer as the one ran, which has one exchange per layer too many. Gains are over exact attention
on a row's N chips, as the estimator's are, whose layers have the collectives of N chips that bench_alspec leaves out.
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
    """Return a row per hit rate for LAYERS layers: cycles of exact attention, by appendix F and with each layer as it
    ran, the gains of both, and the estimator's gain of twice `chips` chips over `chips`.

    Errors: ValueError unless `executed` are a hit and a miss of one layer.
    """
    found = {row["hit_rate"]: row for row in executed}
    if set(found) != {0.0, 1.0} or any(row["layers"] != 1 for row in found.values()):
        raise ValueError(f"wanted one layer's steps with hits 1 and 0, got hits {sorted(found)}")
    hit, miss = found[1.0], found[0.0]
    fixed, per_layer, context = hit["part_fixed"], hit["part_per_layer"], hit["context"]
    exact = token_latency(fixed, per_layer, fd=hit["part_exact"])
    rows = []
    for rate in hit_rates:
        sender, receiver = hit["part_sender"], hit["part_receiver"]
        formula = token_latency(fixed, per_layer, sfd_s=sender, sfd_r=receiver, hit_rate=rate)
        hits, misses = split_layers(LAYERS, rate)
        as_it_ran = fixed + hits * (hit["cycles"] - fixed) + misses * (miss["cycles"] - fixed)
        tp = estimate(context, None, chips, "tp").token_latency_ns
        pairs = estimate(context, rate, 2 * chips, "sp+tp", hit["chunk_size"]).token_latency_ns
        rows.append(
            {"context": context, "layers": LAYERS, "chips": chips, "hit_rate": rate, "exact": exact}
            | {"formula": formula, "formula_gain": exact / formula}
            | {"as_it_ran": as_it_ran, "as_it_ran_gain": exact / as_it_ran}
            | {"estimator_gain": tp / pairs}
        )
    return rows


def report(table: Sequence[Row]) -> str:
    """Return `table_rows` as text."""
    lines = [f"{'context':>9}{'hits':>8}{'appendix F':>12}{'as it ran':>12}{'estimator':>12}"]
    for row in table:
        gains = (row[f"{name}_gain"] for name in ("formula", "as_it_ran", "estimator"))
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
