# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Command line of the estimator: tables for people, --json for machines, and the scaling plot."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

from models.llama31_8b.command_line import OneLineParser, reader_left
from perf.lib.data_file import add_write_option, write
from perf.lib.files import new_file
from perf.projections.estimator.attention_latency import (
    DRAM_BYTES_PER_S,
    AttentionLatency,
    fitted_head_rate,
    published_checks,
)
from perf.projections.estimator.latency import (
    BEST_CONTEXT,
    BEST_HIT_RATE,
    BEST_SPEEDUP,
    CHUNK_SIZES,
    MAX_CONTEXT,
    MIN_CONTEXT,
    Estimate,
    check_hit_rate,
    context_label,
    estimate,
)
from perf.projections.estimator.tables import (
    CHIP_COUNTS,
    ChipTable,
    chip_table,
    measured_hit_rate,
)

FIGURE_CONTEXTS = (1024, 32768, 65536, 98304, 131072)
FIGURE_HIT_RATES = (0.5, 0.625, 0.75, 0.875)
# Of the table of gains: SmolLM2's at 8K, 4K, 2K and 1K tokens (perf/data/quality/perplexity.csv), then assumed ones.
GAIN_HIT_RATES = (0.19, 0.23, 0.31, 0.46, 0.5, 0.875, 0.95)
GAIN_CONTEXTS = (1024, 32768, 65536, 131072)
PLOT_SUFFIXES = (".png", ".svg", ".pdf")
THRESHOLD = 0.10


def _context(text: str) -> int:
    number, factor = (text[:-1], 1024) if text[-1:] in "kK" else (text, 1)
    if not number.isdigit() or not MIN_CONTEXT <= int(number) * factor <= MAX_CONTEXT:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number or e.g. 96K, from 1K to 128K ({MAX_CONTEXT})")
    return int(number) * factor


def _hit_rate(text: str) -> float:
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        check_hit_rate(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: a share from 0 to 1, or e.g. 87.5%") from error
    return value


def _plot_path(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in PLOT_SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r}: the name must end in {', '.join(PLOT_SUFFIXES)}")
    return new_file(text)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m perf.projections.estimator",
        allow_abbrev=False,
        description="Decode latency and tokens/s/user of Llama 3.1 8B on N150 chips, tensor parallelism (TP) "
        "against attention-level speculation (SP+TP), after appendix F of the ALSpec paper.",
    )
    parser.add_argument("--context", type=_context, nargs="+", metavar="K")
    parser.add_argument("--hit-rate", type=_hit_rate, nargs="+", default=None, metavar="R", help="0.875 or 87.5%%")
    parser.add_argument("--chips", type=int, nargs="+", choices=CHIP_COUNTS)
    parser.add_argument("--chunk-size", type=int, choices=CHUNK_SIZES, default=256, help="S (default 256)")
    parser.add_argument("--task", help="use the hit rate the paper measured for this task (tables 1 and 2)")
    parser.add_argument("--threshold", type=float, help=f"lambda for --task (default {THRESHOLD:.2f})")
    parser.add_argument("--dram-gb-per-s", type=float, help="a chip's DRAM rate (default 288)")
    parser.add_argument("--head-gb-per-s", type=float, help="rate of one KV head (default: fitted)")
    parser.add_argument(
        "--measured",
        type=Path,
        metavar="CSV",
        help="a sweep's decode steps (python -m perf.sweep) for the paper's tables",
    )
    parser.add_argument(
        "--measured-only",
        nargs="+",
        default=[],
        metavar="OPTION=VALUE",
        help="of --measured: plan=, precision=, source=",
    )
    parser.add_argument(
        "--gains", action="store_true", help="only the gains over tensor parallelism on as many chips, by hit rate"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_write_option(parser)
    parser.add_argument("--plot", type=_plot_path, metavar="FILE", help="save the scaling plot (figure 7)")
    return parser


def paper_claims(attention: AttentionLatency, chunk_size: int = 256) -> list[dict[str, object]]:
    """Return what the paper states about long contexts, beside the model, which is not fitted to it."""

    def pair(context: int, hit_rate: float = BEST_HIT_RATE) -> tuple[Estimate, Estimate]:
        tp = estimate(context, None, 8, "tp", chunk_size, attention)
        return tp, estimate(context, hit_rate, 8, "sp+tp", chunk_size, attention)

    def speedup(context: int) -> float:
        tp, sp = pair(context)
        return tp.token_latency_ns / sp.token_latency_ns

    tp, sp = pair(BEST_CONTEXT)
    tp4 = estimate(BEST_CONTEXT, None, 4, "tp", chunk_size, attention)
    best = max(FIGURE_CONTEXTS, key=speedup)
    peak = max(range(MIN_CONTEXT, MAX_CONTEXT + 1, 1024), key=speedup)
    tp_long, sp_long = pair(MAX_CONTEXT)
    needed = (BEST_SPEEDUP * sp.token_latency_ns - tp.fixed_ns) / tp.layers - tp.per_layer_ns
    return [
        {
            "claim": "speedup of SP@87.5%+TP over full TP, 8 chips, 96K (section 5.2)",
            "paper": BEST_SPEEDUP,
            "model": speedup(BEST_CONTEXT),
            "note": f"{BEST_SPEEDUP}x would need 8-chip flash decode to take {needed / 1000:.0f} us; "
            f"the model has {tp.flash_decode_ns / 1000:.0f} us",
        },
        {
            "claim": "largest such speedup among figure 7's contexts",
            "paper": BEST_SPEEDUP,
            "model": speedup(best),
            "note": f"paper at 96K, model at {context_label(best)}; "
            f"its peak over all contexts is {speedup(peak):.2f}x at {context_label(peak)}",
        },
        {
            "claim": "speedup of SP@87.5%+TP on 8 chips over full TP on 4, 96K (section 1: with 2x devices)",
            "paper": BEST_SPEEDUP,
            "model": tp4.token_latency_ns / sp.token_latency_ns,
            "note": 'the paper says "up to", "at long context lengths"',
        },
        {
            "claim": "attention overhead of full TP over that of SP@87.5%+TP, 8 chips, 128K (figure 1)",
            "paper": 5.0,
            "model": tp_long.attention_overhead_ns / sp_long.attention_overhead_ns,
            "note": 'the paper says "up to"',
        },
        {
            "claim": "speedup of full TP from 4 to 8 chips at 96K (section 5.2)",
            "paper": None,
            "model": tp4.token_latency_ns / tp.token_latency_ns,
            "note": 'the paper says "almost no improvements"',
        },
    ]


Tables = Callable[[int], ChipTable]


def _estimates(args: argparse.Namespace, attention: AttentionLatency, tables: Tables) -> list[Estimate]:
    points = []
    for context in args.context:
        for chips in args.chips:
            points.append(estimate(context, None, chips, "tp", args.chunk_size, attention, tables))
            for rate in args.hit_rate if chips > 1 else ():
                points.append(estimate(context, rate, chips, "sp+tp", args.chunk_size, attention, tables))
    return points


def _sources(args: argparse.Namespace) -> tuple[AttentionLatency, Tables, tuple[int, ...], tuple[int, ...]]:
    """Return the attention's model, the op tables, and the contexts and chips that are shown unless others are asked
    for.

    Errors: ValueError (NotMeasured, TableError) for a sweep that holds too little, or options that change nothing.
    """
    dram, head = args.dram_gb_per_s, args.head_gb_per_s
    if args.measured is None:
        if args.measured_only:
            raise ValueError("--measured-only is of --measured; without it, it changes nothing")
        model = AttentionLatency(
            dram_bytes_per_s=DRAM_BYTES_PER_S if dram is None else dram * 1e9,
            head_bytes_per_s=fitted_head_rate() if head is None else head * 1e9,
        )
        return model, chip_table, FIGURE_CONTEXTS, CHIP_COUNTS
    if dram is not None or head is not None:
        raise ValueError("--dram-gb-per-s and --head-gb-per-s are of the model that --measured replaces")
    from perf.projections.estimator.measured import MeasuredAttention, load

    sweep = load(args.measured, args.measured_only)
    chips = tuple(
        count for count in CHIP_COUNTS if count in sweep.tables and (count == 1 or count // 2 in sweep.tables)
    )
    swept = [[at for at, _ in points] for points in sweep.flash_decode.values()]
    first, last = max(min(of) for of in swept), min(max(of) for of in swept)
    contexts = tuple(at for at in FIGURE_CONTEXTS if first <= at <= last)
    return MeasuredAttention(sweep=sweep), sweep.table, contexts or (first,), chips


def _report(args: argparse.Namespace, attention: AttentionLatency, points: list[Estimate]) -> str:
    lines = [
        "Llama 3.1 8B decode, batch 1, estimated from device kernel times (no host or dispatch time)",
        "cells: tokens/s/user, token latency, and for SP+TP the speedup over full TP on as many chips",
    ]
    header = "  chips " + "full TP".center(18)
    header += "".join(f"SP@{100 * rate:.4g}%+TP".center(25) for rate in args.hit_rate)
    for context in args.context:
        lines += ["", f"context {context_label(context)}", header.rstrip()]
        for chips in args.chips:
            row = [point for point in points if (point.context, point.chips) == (context, chips)]
            lines.append(f"  {chips:5d} {''.join(_cell(point, row[0]) for point in row)}".rstrip())
    lines += ["", "assumptions"]
    lines += [f"  - {line}" for line in attention.assumptions()]
    if args.measured is not None:
        return "\n".join(lines)
    lines += ["", "the paper's own statements beside the model (which is not fitted to them)"]
    for claim in paper_claims(attention, args.chunk_size):
        stated = f"{claim['paper']:.2f}x" if claim["paper"] else "-"
        lines.append(f"  - {claim['claim']}: paper {stated}, model {claim['model']:.2f}x ({claim['note']})")
    lines += [
        "",
        "published 64K decode speeds beside the model (short-context speed + modelled flash decode)",
    ]
    lines += [
        f"  - {check.model} on {check.board} ({check.chips} chip{'s' if check.chips > 1 else ''}): published "
        f"{check.published_tokens_per_s:.1f}, model {check.predicted_tokens_per_s:.1f} tokens/s/user "
        f"({check.relative_error:+.1%})"
        for check in published_checks(attention)
    ]
    return "\n".join(lines)


def table_rows(points: list[Estimate]) -> list[dict[str, object]]:
    """Return the rows of a data file: each estimate, with its speed-up over full TP on as many chips."""
    full = {(point.context, point.chips): point.token_latency_ns for point in points if point.mode == "tp"}
    return [p.to_dict() | {"over_tp": full[p.context, p.chips] / p.token_latency_ns} for p in points]


def gain_rows(
    contexts: Sequence[int], chips: Sequence[int], hit_rates: Sequence[float], chunk_size: int
) -> list[dict[str, float | None]]:
    """Return a row per number of chips and context: tokens/s/user with tensor parallelism over all and over half of
    them, and the gain over the former of attention-level speculation at each hit rate.

    A hit rate is a mean over layers and tokens, so a step's time lies on the line between no and all hits. `needed` is
    the hit rate above which speculation is faster, None where no hit rate is.
    """
    rows: list[dict[str, float | None]] = []
    for count, context in product(chips, contexts):
        tp, half = (estimate(context, None, n, "tp").token_latency_ns for n in (count, count // 2))
        none, full = (estimate(context, r, count, "sp+tp", chunk_size).token_latency_ns for r in (0.0, 1.0))
        gains = {f"at_{100 * rate:g}".replace(".", "_"): tp / (none + rate * (full - none)) for rate in hit_rates}
        needed = None if full >= tp else max(0.0, (none - tp) / (none - full)) if none > full else 0.0
        row = {"chips": count, "context": context, "chunk_size": chunk_size, "tp_tokens_per_s": 1e9 / tp}
        rows.append({**row, "half_tp_tokens_per_s": 1e9 / half, "needed": needed, **gains})
    return rows


def gain_report(rows: Sequence[dict[str, float | None]]) -> str:
    """Return `gain_rows` as text."""
    rates = [name for name in rows[0] if name.startswith("at_")]
    shown = [f"{name.removeprefix('at_').replace('_', '.')}%" for name in rates]
    lines = [
        "gain over tensor parallelism on as many chips, by hit rate; needed: the hit rate above which there is one"
    ]
    lines.append(f"{'chips':>5}{'context':>9}{'TP, tokens/s':>14}{'needed':>8}" + "".join(f"{s:>8}" for s in shown))
    for row in rows:
        needed = "-" if row["needed"] is None else f"{row['needed']:.0%}"
        lines.append(
            f"{row['chips']:>5}{row['context']:>9}{row['tp_tokens_per_s']:>14.1f}{needed:>8}"
            + "".join(f"{row[name]:>8.2f}" for name in rates)
        )
    return "\n".join(lines)


def _cell(point: Estimate, tp: Estimate) -> str:
    text = f"{point.tokens_per_s_per_user:6.1f} {point.token_latency_ns / 1e6:6.2f} ms"
    if point.mode == "tp":
        return text.center(18)
    return f"{text} {tp.token_latency_ns / point.token_latency_ns:5.2f}x".center(25)


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return reader_left()
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command; 0 on success. Bad options end with status 2 and a message before any work."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        attention, tables, contexts, chips = _sources(args)
        rates = list(args.hit_rate or ([] if args.task else FIGURE_HIT_RATES))
        if args.task:
            threshold = THRESHOLD if args.threshold is None else args.threshold
            rates.append(measured_hit_rate(args.task, threshold))
        elif args.threshold is not None:
            raise ValueError("--threshold chooses a hit rate of --task; without --task it changes nothing")
        if args.gains:
            if args.measured:
                raise ValueError("--gains is by the paper's tables, without --measured")
            several = [count for count in args.chips or chips if count > 1]
            asked = rates if args.hit_rate or args.task else GAIN_HIT_RATES
            gains = gain_rows(args.context or GAIN_CONTEXTS, several, asked, args.chunk_size)
            if args.write:
                write(args.write, parser, argv, gains)
            return _print(gain_report(gains))
        args.hit_rate = sorted(set(rates))
        args.context = sorted(set(args.context or contexts))
        args.chips = sorted(set(args.chips or chips))
        points = _estimates(args, attention, tables)
    except ValueError as error:
        parser.error(str(error))
    plot = None
    if args.plot is not None:
        from perf.projections.estimator.plot import save_scaling_plot

        try:
            plot = save_scaling_plot(points, args.plot)
        except OSError as error:
            print(f"cannot write the plot to {args.plot}: {error}", file=sys.stderr)
            return 1
    if args.write:
        write(args.write, parser, argv, table_rows(points), claims=paper_claims(attention, args.chunk_size))
    if args.json:
        report: dict[str, object] = {
            "model": "Llama 3.1 8B",
            "attention_model": attention.to_dict(),
            "assumptions": attention.assumptions(),
            "estimates": [point.to_dict() for point in points],
            "plot": None if plot is None else str(plot),
        }
        if args.measured is None:
            report |= {
                "paper_claims": paper_claims(attention, args.chunk_size),
                "published_64k": [asdict(check) for check in published_checks(attention)],
            }
        return _print(json.dumps(report, indent=2))
    text = _report(args, attention, points)
    return _print(text if plot is None else f"{text}\n\nscaling plot: {plot}")
