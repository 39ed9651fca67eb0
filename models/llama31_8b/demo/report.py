# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The report of a run: speeds, hit rates by layer, and the estimate for Llama 3.1 8B on N150 chips."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..latency import estimates
from ..tiny import of_random_weights
from .text import BY_CALLBACK

if TYPE_CHECKING:
    from ..results import AttentionStatistics, GenerationResult
    from .session import Session

# Counts of the attention policy that the report and the JSON object show.
_COUNTS = ("hits", "misses", "bypassed", "bypassed_positions")


class RunReport:
    """One run of a session, or all turns of a chat. Rates are 0..1, None where nothing was verified or decoded.

    context: cached tokens at the end, of the longest text. statistics, speculation: None where nothing is verified, and
    without a drafter. Tokens and seconds are sums of those of the results. first_token_seconds: from the prompt to its
    first token, with weights loaded; None for a chat. users: texts side by side. estimates: whether hits say something
    of Llama 3.1 8B: those of a whole trained model do.
    """

    def __init__(self, session: Session, results: Sequence[GenerationResult], context: int) -> None:
        self.session, self.context = session, context
        counted: list[Any] = [result.statistics for result in results if result.statistics is not None]
        self.statistics: AttentionStatistics | None = type(counted[0]).merged(counted) if counted else None
        self.prefill_tokens = sum(result.prefill_tokens for result in results)
        self.prefill_seconds = sum(result.prefill_seconds for result in results)
        self.decode_tokens = sum(result.decode_tokens for result in results)
        self.decode_seconds = sum(result.decode_seconds for result in results)
        self.warm_up_tokens = sum(result.warm_up_tokens for result in results)
        self.warm_up_seconds = sum(result.warm_up_seconds for result in results)
        self.first_token_seconds = results[0].prefill_seconds if len(results) == 1 else None
        self.users = max((len(result.token_ids) for result in results), default=1)
        drafted = [result.speculation for result in results if result.speculation is not None]
        self.speculation: dict[str, Any] | None = None
        if drafted:
            self.speculation = {"drafter": session.options.drafter, **type(drafted[0]).merged(drafted).to_dict()}
        ran, whole = session.checkpoint.config, session.checkpoint.whole
        self.estimates = ran.num_hidden_layers == whole.num_hidden_layers and not of_random_weights(whole)

    @property
    def prefill_tokens_per_s(self) -> float | None:
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds > 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        counted = self.decode_tokens - self.warm_up_tokens
        return counted / (self.decode_seconds - self.warm_up_seconds) if counted > 0 else None

    @property
    def hit_rate(self) -> float | None:
        return None if self.statistics is None else self.statistics.hit_rate

    @property
    def exchange(self) -> dict[str, Any] | None:
        """Where rows of chips speculate, how many layers' inputs each sent ("sent_by_row"), "ties" between them, and
        "failures", calls in which one gave up on the other."""
        return getattr(self.statistics, "exchange", None)

    def to_dict(self) -> dict[str, Any]:
        """Return the measured part of the --json object."""
        predictor = self.session.options.predictor
        return {
            "prefill_tokens": self.prefill_tokens,
            "prefill_tokens_per_s": self.prefill_tokens_per_s,
            "time_to_first_token_s": self.first_token_seconds,
            "decode_tokens": self.decode_tokens,
            "decode_tokens_per_s": self.decode_tokens_per_s,
            "warm_up_tokens": self.warm_up_tokens,
            "warm_up_s": self.warm_up_seconds,
            "hit_rate": self.hit_rate,
            "hit_rate_per_layer": self.statistics.hit_rate_per_layer if self.statistics else [],
            **{name: getattr(self.statistics, name, 0) for name in _COUNTS},
            "threads": self.session.threads,
            "exchange": self.exchange,
            "speculation": self.speculation,
            "estimate": estimates(self.hit_rate, self.context, predictor) if self.estimates else [],
        }


class ReportConsole(Console):
    """A console on standard output whose reader may leave (`| head`): the command ends as it does for other output."""

    def __init__(self) -> None:
        super().__init__(file=sys.stdout, highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show_result(
    session: Session, result: GenerationResult, report: RunReport, interrupted: Collection[int] = ()
) -> None:
    """Print the report of one run, or with --json an object: `text`, `token_ids` and `finish_reason` of one prompt, a
    list of these, `texts`, of several; the figures of all; and the options.

    `text` leaves out special tokens, `token_ids` holds every generated id. interrupted: users whose text Ctrl-C ended.
    """
    checkpoint, options = session.checkpoint, session.options
    if not options.json:
        print_report(report, ReportConsole())
        return
    ended_by = dict.fromkeys(interrupted, "interrupted")  # the callback ends texts for --stop and for Ctrl-C
    texts = [
        {
            "text": checkpoint.tokenizer.decode(tokens),
            "token_ids": tokens,
            "finish_reason": ended_by.get(user, "stop") if reason == BY_CALLBACK else reason,
        }
        for user, (tokens, reason) in enumerate(zip(result.token_ids, result.finish_reason, strict=True))
    ]
    found = {
        "model": checkpoint.source,
        **(texts[0] if len(texts) == 1 else {"texts": texts}),
        **report.to_dict(),
        "options": options.to_dict(),
    }
    print(json.dumps(found, ensure_ascii=False, allow_nan=False))


def print_report(report: RunReport, console: Console) -> None:
    """Print the report; about 30 lines for 30 layers at 80 columns."""
    options, hit_rate = report.session.options, report.hit_rate
    console.print()
    console.rule("[bold]report", align="left")
    console.print(_speeds(report))
    if report.statistics is None:
        console.print(f"{options.attention} attention verifies nothing, so there is no hit rate to estimate from.")
    elif hit_rate is None:
        text = "this text" if report.users == 1 else "the longest text"
        console.print(
            f"No guess was verified: speculation starts at {2 * options.chunk_size} cached tokens, 2S; {text} "
            f"reached {report.context}."
        )
    else:
        if report.exchange is not None:
            first, second = report.exchange["sent_by_row"]
            failures = "; ".join(report.exchange["failures"])
            told = f"{report.exchange['ties']} ties, {f'refused: {failures}' if failures else 'none refused'}"
            console.print(f"exchanges: {first} sent by the first row, {second} by the second, {told}")
        print_layers(report.statistics.hit_rate_per_layer, console)
        if not report.estimates:
            console.print("Hits of random weights, or of some layers alone, tell nothing of Llama 3.1 8B's speed.")
            return
        print_estimate(hit_rate, report.context, console, options.predictor)


def print_estimate(hit_rate: float, context: int, console: Console, predictor: str) -> None:
    """Print what this hit rate would give Llama 3.1 8B on each mesh of up to 16 chips."""
    rows = estimates(hit_rate, context, predictor)
    places: dict[int, dict[tuple[str, str], dict[str, Any]]] = {row["context"]: {} for row in rows}
    for row in rows:
        places[row["context"]][row["mesh"], row["attention"]] = row
    console.print(f"[bold]Llama 3.1 8B on N150 with hits of {hit_rate:.1%}[/bold], projected tokens/s of one user")
    table = Table()
    for heading in ("mesh", "attention", *(f"{at:,} tokens" for at in places)):
        table.add_column(heading, justify="right")
    for mesh, attention in sorted(next(iter(places.values()))):
        cells = (found[mesh, attention] for found in places.values())
        table.add_row(mesh, attention, *(f"{row['tokens_per_s']:.1f} ({row['over_tp']:.2f}x)" for row in cells))
    console.print(table)
    console.print(
        "In brackets: over the fastest mesh of one row. By parts that simulated chips executed, as llama-alspec plan."
    )


def _speeds(report: RunReport) -> Table:
    warm_up, threads, statistics = report.warm_up_tokens, report.session.threads, report.statistics
    table = Table.grid(padding=(0, 2))
    table.add_row("model", Text(report.session.checkpoint.source))
    included = ", compilation included" if warm_up else ""
    table.add_row("prefill", f"{_rate(report.prefill_tokens_per_s)}  ({report.prefill_tokens} tokens{included})")
    if report.first_token_seconds is not None:
        table.add_row("first token", f"after {report.first_token_seconds:.2f} s{included}")
    counted = f"{report.decode_tokens - warm_up} tokens"
    counted += f" of {report.users} users" if report.users > 1 else ""
    counted += f", {threads} threads" if threads is not None else ""
    if warm_up:
        counted += f"; the first {warm_up}, which compile, left out: {report.warm_up_seconds:.2f} s"
    table.add_row("decode", f"{_rate(report.decode_tokens_per_s)}  ({counted})")
    if statistics is not None:
        rate = "none verified" if statistics.hit_rate is None else f"[bold]{statistics.hit_rate:.1%}[/bold]"
        table.add_row("hit rate", f"{rate}  ({statistics.hits} hits, {statistics.misses} misses)")
        table.add_row("bypassed", f"{statistics.bypassed_positions} positions")
    for row in _drafting(report.speculation) if report.speculation is not None else ():
        table.add_row(*row)
    return table


def _drafting(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Return rows on token-level speculation; they say so when nothing was drafted."""
    rows = [("drafts", "none: nothing was found")]
    if figures["num_drafts"]:
        rate = f"{figures['draft_acceptance_rate']:.1%}"
        counts = f"{figures['num_accepted_tokens']} of {figures['num_draft_tokens']} drafted tokens"
        lengths = " ".join(f"{j}:{count}" for j, count in enumerate(figures["acceptance_histogram"]))
        rows = [
            ("drafts", f"{figures['num_drafts']} by {figures['drafter']}"),
            ("accepted", f"[bold]{rate}[/bold]  ({counts})"),
            ("accepted per draft", lengths),
            ("mean acceptance length", f"{figures['mean_acceptance_length']:.2f}, the bonus token counted"),
        ]
    if figures["tokens_per_target_step"] is not None:
        rows.append(("tokens per step", f"{figures['tokens_per_target_step']:.2f}"))
    calibrating = figures["calibration_seconds"]
    parts = {
        "drafting": figures["draft_seconds"] - calibrating,
        "calibrating": calibrating,
        "verifying": figures["target_seconds"],
    }
    if whole := sum(parts.values()):
        shares = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in parts.items() if seconds)
        rows.append(("time per step", shares))
    return rows


def print_layers(rates: list[float | None], console: Console) -> None:
    """Print a line per layer, in columns. rates: of hits, by layer."""
    lines = []
    for layer, rate in enumerate(rates):
        line = Table.grid(padding=(0, 1))
        if rate is None:
            line.add_row(f"{layer:3d}", "[dim]not verified[/dim]")
        else:
            style = "green" if rate >= 0.8 else "yellow" if rate >= 0.5 else "red"
            bar = ProgressBar(1, rate, width=20, complete_style=style, finished_style=style)
            line.add_row(f"{layer:3d}", bar, f"{rate:4.0%}")
        lines.append(line)
    console.print("\n[bold]hit rate by layer[/bold]")
    console.print(Columns(lines, column_first=True, padding=(0, 3)), "")


def _rate(value: float | None) -> str:
    return "no token" if value is None else f"{value:.{1 if value >= 1 else 3}f} tokens/s"
