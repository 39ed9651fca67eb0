# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Command line of the decode model: time by op for each mesh, errors against the tables, share of the roofline."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Sequence
from typing import Any

from models.llama31_8b.command_line import OneLineParser, reader_left
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.plan_option import RENAMED, add_plan_option
from models.llama31_8b.tt.precision import PRECISIONS
from perf.lib.data_file import add_write_option, write
from perf.projections.decode_model.costs import NotIdentified, Parameters
from perf.projections.decode_model.fit import (
    DEFAULT_CHIPS,
    Row,
    check_table,
    fit,
    token_error,
    weighted_error,
)
from perf.projections.decode_model.plans import PLANS, Step
from perf.projections.decode_model.prediction import (
    Prediction,
    PublishedRow,
    Timed,
    predict,
    published_rows,
)
from perf.projections.estimator.tables import CHIP_COUNTS

MESHES = ("1x1", "1x2", "1x4", "1x8", "2x1", "2x2", "2x4")
TARGET = 0.70


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m perf.projections.decode_model", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mesh", nargs="+", default=MESHES, metavar="RxC", help="rows x columns, 1x1 to 2x4")
    parser.add_argument("--decode-sharding", choices=PLANS, default="sharded")
    add_plan_option(parser, choices=[*RENAMED, *PLANS])
    parser.add_argument("--precision", choices=PRECISIONS, default="performance")
    parser.add_argument("--context", type=int, default=1024, metavar="N", help="cached positions (default 1024)")
    parser.add_argument("--users", type=int, default=1)
    parser.add_argument(
        "--fit",
        type=int,
        choices=CHIP_COUNTS,
        default=DEFAULT_CHIPS,
        help=f"chips of the paper's table that the parameters are fitted to (default {DEFAULT_CHIPS})",
    )
    parser.add_argument("--gap-ns", type=float, default=0.0, help="between two programs (default 0: kernels alone)")
    parser.add_argument(
        "--hit-rate", type=float, default=0.5, help="of attention-level speculation, for meshes of two rows"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_write_option(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for values that make no sense, or when the fit's table says nothing about the asked meshes."""
    parser = _parser()
    options = parser.parse_args(argv)
    if not 0 <= options.hit_rate <= 1:
        parser.error(f"--hit-rate must be 0 to 1, got {options.hit_rate:g}")
    parameters, told, unknown = fit(options.fit), [], {}
    try:
        for name in options.mesh:
            mesh = MeshShape.parse(name)
            step = Step(mesh, options.context, options.users, options.decode_sharding, options.precision)
            try:
                told.append(predict(step, parameters, options.gap_ns, options.hit_rate if mesh.sp == 2 else None))
            except NotIdentified as error:
                unknown[str(mesh)] = str(error)
    except ValueError as error:
        parser.error(str(error))
    if not told:
        parser.error(next(iter(unknown.values())))
    tables = {chips: check_table(parameters, chips) for chips in CHIP_COUNTS}
    if options.write:
        write(options.write, parser, argv, table_rows(parameters, told, tables))
    try:
        if options.json:
            print(json.dumps(as_json(parameters, told, tables, unknown), indent=1, allow_nan=False), flush=True)
        else:
            print(report(parameters, told, tables, unknown), flush=True)
    except BrokenPipeError:
        return reader_left()
    return 0


def table_rows(
    parameters: Parameters, told: Sequence[Prediction], tables: dict[int, list[Row]]
) -> list[dict[str, Any]]:
    """Return the rows of a data file; `part` says what a row is: a predicted `step`, a paper's `table` against the
    model, or a `published` speed against it."""
    steps = [
        {"part": "step", "mesh": str(p.step.mesh), "plan": p.step.plan, "precision": p.step.precision}
        | {"context": p.step.context, "tokens_per_s": p.tokens_per_s, "roofline_share": p.roofline_share}
        for p in told
    ]
    errors = [
        {"part": "table", "chips": chips, "fitted": chips == parameters.chips}
        | {"token_error": token_error(rows), "error_by_time": weighted_error(rows)}
        for chips, rows in tables.items()
    ]
    speeds = [{"part": "published"} | vars(row) | {"error": row.error} for row in _published(parameters)]
    return [*steps, *errors, *speeds]


def as_json(
    parameters: Parameters, told: Sequence[Prediction], tables: dict[int, list[Row]], unknown: dict[str, str]
) -> dict[str, Any]:
    """Return everything the report shows, for machines. Times in nanoseconds."""

    def ops(timed: Sequence[Timed]) -> list[dict[str, Any]]:
        return [{"op": t.op.name, "role": t.op.role, "ns": t.ns, "dram_bytes": t.op.dram_bytes} for t in timed]

    return {
        "parameters": {**vars(parameters), "units": dict(parameters.units)},
        "meshes": [
            {
                "mesh": str(p.step.mesh),
                "plan": p.step.plan,
                "context": p.step.context,
                "users": p.step.users,
                "hit_rate": p.hit_rate,
                "layer": ops(p.layers[0]),
                "once": ops(p.before + p.after),
                "token_ns": p.token_ns,
                "tokens_per_s_per_user": p.tokens_per_s,
                "roofline_share": p.roofline_share,
            }
            for p in told
        ],
        "not_identified": unknown,
        "tables": {
            chips: [
                {"section": r.section, "op": r.op.name, "role": r.op.role, "measured_ns": r.measured_ns}
                | {"modelled_ns": r.modelled_ns, "error": r.error}
                for r in rows
            ]
            for chips, rows in tables.items()
        },
        "published": [vars(row) | {"error": row.error} for row in _published(parameters)],
    }


def _published(parameters: Parameters) -> list[PublishedRow]:
    try:
        return published_rows(parameters)
    except NotIdentified:
        return []


def report(
    parameters: Parameters, told: Sequence[Prediction], tables: dict[int, list[Row]], unknown: dict[str, str]
) -> str:
    """Return the tables for people."""
    lines = _sources(parameters)
    lines += _held_out(parameters, tables)
    for mesh, why in unknown.items():
        lines += ["", f"{mesh}: {why}"]
    lines += _layers(told)
    for prediction in told:
        if prediction.step.mesh.chips == 1:
            lines += _roofline(prediction)
    lines += _speeds(parameters)
    return "\n".join(lines)


def _sources(p: Parameters) -> list[str]:
    def known(value: float | None) -> str:
        return "not identified" if value is None else f"{value / 1000:.2f} us"

    return [
        "Llama 3.1 8B decode by op: kernel times of one chip, no host, no gaps unless --gap-ns",
        f"fitted to the ALSpec paper's table of {p.chips} x N150 alone (context 1024, TT-Metalium v0.55): DRAM "
        f"{p.dram_bytes_per_s / 1e9:.1f} GB/s,",
        f"  launch {known(p.launch)}, matmul start {known(p.matmul_start)}, block of activation {known(p.hop)}, flash "
        f"decode start {known(p.attention_start)},",
        "  collectives as measured in September 2026 (perf/data/ethernet_2026_09.csv); us per unit of work:",
        *textwrap.wrap(
            ", ".join(f"{kind} {ns / 1000:.2f}" for kind, ns in sorted(p.units.items())),
            110,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
        ),
        "specified: 16, 32, 64 cycles per tile product at LoFi, HiFi2, HiFi4 on 12 cores; flash decode beyond its "
        "start: perf.projections.estimator",
    ]


def _held_out(parameters: Parameters, tables: dict[int, list[Row]]) -> list[str]:
    lines = [
        "",
        "modelled against measured, tables 4 to 7; * is the fit's own table, all others were not seen",
    ]
    title = "".join(f"{_chips(chips) + ('*' if chips == parameters.chips else ''):>22}" for chips in tables)
    lines.append(f"{'us per launch':32}{title}")
    places: dict[tuple[str, str, str, int], dict[int, Row]] = {}
    for chips, rows in tables.items():
        seen: dict[tuple[str, str, str], int] = {}
        for row in rows:
            key = (row.section, row.op.name, row.op.role)
            seen[key] = seen.get(key, -1) + 1
            places.setdefault((*key, seen[key]), {})[chips] = row
    for (_, name, role, turn), of in places.items():
        if turn and role not in ("rotate", "update cache"):
            continue
        cells = "".join(f"{_cell(of.get(chips)):>22}" for chips in tables)
        label = name if role.replace(" ", "") in name.lower() else f"{name} ({role})"
        lines.append(f"{label[:31]:32}{cells}")
    for what, of_rows in (("mean error by time", weighted_error), ("a whole token", token_error)):
        figures = [of_rows(rows) for rows in tables.values()]
        lines.append(f"{what:32}" + "".join(f"{'-' if f is None else f'{f:+.1%}':>22}" for f in figures))
    return lines


def _chips(count: int) -> str:
    return f"{count} chip" + ("s" if count > 1 else "")


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if row.error is None:
        return f"{row.measured_ns / 1000:.1f}, none"
    return f"{row.measured_ns / 1000:.1f} {(row.modelled_ns or 0) / 1000:.1f} {row.error:+.1%}"


def _layers(told: Sequence[Prediction]) -> list[str]:
    step = told[0].step
    lines = [
        "",
        f"plan {step.plan}, {step.precision}, context {step.context}, users {step.users}: us per launch of layer 0",
        f"{'':32}" + "".join(f"{str(p.step.mesh):>9}" for p in told),
    ]
    keys: list[tuple[str, str]] = []
    for prediction in told:
        for timed in prediction.layers[0]:
            if (timed.op.name, timed.op.role) not in keys:
                keys.append((timed.op.name, timed.op.role))
    for key in keys:
        cells = []
        for prediction in told:
            of = [t.ns for t in prediction.layers[0] if (t.op.name, t.op.role) == key]
            shown = "-" if not of else f"{of[0] / 1000:.1f}" + (f" x{len(of)}" if len(of) > 1 else "")
            cells.append(f"{shown:>9}")
        lines.append(f"{f'{key[0]} ({key[1]})'[:31]:32}{''.join(cells)}")

    def row(title: str, values: Sequence[str]) -> str:
        return f"{title:32}" + "".join(f"{value:>9}" for value in values)

    lines += [
        row("a layer", [f"{sum(t.ns for t in p.layers[0]) / 1000:.1f}" for p in told]),
        row("outside the layers", [f"{p.fixed_ns / 1000:.0f}" for p in told]),
        row("launches per token", [str(p.launches) for p in told]),
        row("ms per token", [f"{p.token_ns / 1e6:.2f}" for p in told]),
        row("tokens/s/user", [f"{p.tokens_per_s:.1f}" for p in told]),
        row("of the 288 GB/s roofline", [f"{p.roofline_share:.0%}" for p in told]),
    ]
    if rated := [p for p in told if p.hit_rate is not None]:
        lines.append(
            f"meshes of two rows: attention-level speculation at {rated[0].hit_rate:.0%} hits by appendix F, a row's "
            "roofline; exchange and gate left out"
        )
    return lines


def _roofline(told: Prediction) -> list[str]:
    share, step = told.roofline_share, told.step
    verdict = "exceeds" if share > TARGET else "does not exceed"
    floor = f"{told.floor_ns / 1e6:.2f} of {told.token_ns / 1e6:.2f} ms"
    return [
        "",
        f"{step.mesh}, plan {step.plan}: {share:.1%} of the roofline ({floor}), which {verdict} the target of "
        f"{TARGET:.0%}. This assumes that the host costs nothing",
        f"  and that programs follow each other {_gap(told)};"
        f" {max(0.0, (told.floor_ns / TARGET - told.token_ns) / told.launches / 1000):.2f} us more between its "
        f"{told.launches} programs take it down to {TARGET:.0%}",
    ]


def _gap(told: Prediction) -> str:
    return f"after {told.gap_ns / 1000:g} us" if told.gap_ns else "at once"


def _speeds(parameters: Parameters) -> list[str]:
    rows = _published(parameters)
    if not rows:
        return [
            "",
            "published speeds: the fit's table has no collectives, so chips in a row are not modelled",
        ]
    lines = ["", "published tokens/s/user (tt-metal PERF.md) beside the plan sharded; not seen by the fit"]
    for row in rows:
        note = "; its context's cost is fitted to such runs" if row.fitted else ""
        gap = f"{row.gap_ns / 1000:+.2f} us a program explain it"
        lines.append(
            f"  {_chips(row.chips):7} {row.precision:11} {row.context:6}: published {row.published:.1f}, model "
            f"{row.modelled:.1f} ({row.error:+.1%}; {gap}{note})"
        )
    return lines
