# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The report of a run: speeds, hit rates by layer, and the estimate for Llama 3.1 8B on N150 chips."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..latency import CHIP_COUNTS, CHUNK_SIZES, MAX_CONTEXT, MIN_CONTEXT, estimate
from .text import BY_CALLBACK

if TYPE_CHECKING:
    from ..checkpoint.load import Checkpoint
    from ..results import AttentionStatistics, GenerationResult
    from .options import DemoOptions

CHIPS = (2, 4, 8)
_BAR_WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class RunReport:
    """One run, or all turns of a chat. Rates are 0..1, None where nothing was verified or decoded.

    context: cached tokens at the end. hits, misses, bypassed: (layer, token) pairs whose guess was accepted, rejected,
    or not verified; bypassed_positions: tokens that had fewer than 2S cached ones. speculates: whether the attention
    policy verifies guesses at all. speculation: figures of token-level speculation, None without a drafter.
    first_token_seconds: from the prompt to its first token, with weights loaded; None for a chat. warm_up_tokens: in a
    run that compiled its programs, how many of decode_tokens came from the steps that did; those took warm_up_seconds
    of decode_seconds, and do not count in the rate. None elsewhere. users: texts side by side; counts and rates are of
    all, context and first_token_seconds of the last to get there. threads: of torch, None where it does not run the
    model. exchange: where rows of chips speculate, how many layers' inputs each sent ("sent_by_row"), "ties" between
    them, and "failures", calls in which one gave up on the other. both: where a run speculates at both levels, the hit
    rate of its steps, each layer and user of a step counted once however many tokens it kept ("hit_rate_per_step"), and
    that of the same steps' first tokens without the tree ("hit_rate_of_roots_alone": beside simulated chips the
    reference's, None on boards, which do not measure it); None elsewhere.
    """

    model: str
    attention: str
    chunk_size: int
    speculates: bool
    context: int
    prefill_tokens: int
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float
    hits: int
    misses: int
    bypassed: int
    bypassed_positions: int
    hit_rate: float | None
    hit_rate_per_layer: list[float | None]
    speculation: dict[str, Any] | None = None
    first_token_seconds: float | None = None
    warm_up_tokens: int | None = None
    warm_up_seconds: float = 0.0
    exchange: dict[str, Any] | None = None
    users: int = 1
    threads: int | None = None
    both: dict[str, float | None] | None = None

    @property
    def prefill_tokens_per_s(self) -> float | None:
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds > 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        tokens = self.decode_tokens - (self.warm_up_tokens or 0)
        return tokens / (self.decode_seconds - self.warm_up_seconds) if tokens > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return the measured part of the --json object."""
        return {
            "prefill_tokens": self.prefill_tokens,
            "prefill_tokens_per_s": self.prefill_tokens_per_s,
            "time_to_first_token_s": self.first_token_seconds,
            "decode_tokens": self.decode_tokens,
            "decode_tokens_per_s": self.decode_tokens_per_s,
            "warm_up_tokens": self.warm_up_tokens or 0,
            "warm_up_s": self.warm_up_seconds,
            "hit_rate": self.hit_rate,
            "hit_rate_per_layer": self.hit_rate_per_layer,
            "hits": self.hits,
            "misses": self.misses,
            "bypassed": self.bypassed,
            "bypassed_positions": self.bypassed_positions,
            "threads": self.threads,
            "exchange": self.exchange,
            "speculation": self.speculation,
            "both": self.both,
            "estimate": predictions(self.hit_rate, self.context, self.chunk_size),
        }


def make_report(
    model: str,
    options: DemoOptions,
    results: Sequence[GenerationResult],
    context: int,
    statistics: AttentionStatistics | None,
    warm_up: tuple[int, float] | None = None,
    threads: int | None = None,
) -> RunReport:
    """Sum up runs. statistics: what the attention policy counted over them, None where nothing is verified. warm_up:
    tokens of the first decode steps, which compiled programs, and their seconds; None where nothing is compiled.
    threads: of torch.
    """
    drafted = _token_speculation(options, results)
    return RunReport(
        model=model,
        attention=str(options.attention),
        chunk_size=options.chunk_size,
        speculates=statistics is not None,
        context=context,
        prefill_tokens=sum(result.prefill_tokens for result in results),
        prefill_seconds=sum(result.prefill_seconds for result in results),
        first_token_seconds=results[0].prefill_seconds if len(results) == 1 else None,
        decode_tokens=sum(result.decode_tokens for result in results),
        decode_seconds=sum(result.decode_seconds for result in results),
        hits=statistics.hits if statistics else 0,
        misses=statistics.misses if statistics else 0,
        bypassed=statistics.bypassed if statistics else 0,
        bypassed_positions=statistics.bypassed_positions if statistics else 0,
        hit_rate=statistics.hit_rate if statistics else None,
        hit_rate_per_layer=statistics.hit_rate_per_layer if statistics else [],
        speculation=drafted,
        both=None if drafted is None or statistics is None else _rates_of_steps(statistics),
        warm_up_tokens=None if warm_up is None else warm_up[0],
        warm_up_seconds=0.0 if warm_up is None else warm_up[1],
        exchange=getattr(statistics, "exchange", None),
        users=max((len(result.token_ids) for result in results), default=1),
        threads=threads,
    )


def _rates_of_steps(statistics: AttentionStatistics) -> dict[str, float | None]:
    names = ("hit_rate_per_step", "hit_rate_of_roots_alone")
    return {name: getattr(statistics, name) for name in names}


def _token_speculation(options: DemoOptions, results: Sequence[GenerationResult]) -> dict[str, Any] | None:
    """Return the figures of token-level speculation over all results; None without a drafter."""
    drafted = [figures for result in results if (figures := getattr(result, "speculation", None)) is not None]
    if not drafted:
        return None
    return {
        "drafter": options.drafter,
        **type(drafted[0]).merged(drafted).to_dict(),
    }


def longest(prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> int:
    """Return the tokens of the longest of these prompts with its text."""
    return max(len(prompt) + len(text) for prompt, text in zip(prompts, texts, strict=True))


def show_result(
    checkpoint: Checkpoint,
    options: DemoOptions,
    result: GenerationResult,
    report: RunReport,
    interrupted: Collection[int] = (),
) -> None:
    """Print the report of one run, or with --json the object. interrupted: users whose text Ctrl-C ended."""
    if options.json:
        found = to_json(checkpoint, options, result, report, interrupted)
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
    else:
        print_report(report, ReportConsole(file=sys.stdout, highlight=False))


class ReportConsole(Console):
    """A console whose reader may leave (`| head`): the command ends as it does for any other output."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def to_json(
    checkpoint: Checkpoint,
    options: DemoOptions,
    result: GenerationResult,
    report: RunReport,
    interrupted: Collection[int] = (),
) -> dict[str, Any]:
    """Return the object that --json prints: for one prompt `text`, `token_ids` and `finish_reason`, for several a list
    of these, `texts`, in the order of the prompts; and the figures of all. `text` leaves out special tokens,
    `token_ids` holds every generated id.

    An infinite threshold is written as the string "inf": JSON has no number for it.
    """
    texts = [
        {
            "text": checkpoint.tokenizer.decode(tokens),
            "token_ids": tokens,
            "finish_reason": _reason(reason, user in interrupted),
        }
        for user, (tokens, reason) in enumerate(zip(result.token_ids, result.finish_reason, strict=True))
    ]
    used = options.to_dict()
    used["threshold"] = "inf" if options.threshold == float("inf") else options.threshold
    return {
        "model": checkpoint.source,
        **(texts[0] if len(texts) == 1 else {"texts": texts}),
        **report.to_dict(),
        "options": used,
    }


def _reason(reason: str, interrupted: bool) -> str:
    """Name a generator's finish reason for a reader: its callback ends texts for --stop and for Ctrl-C."""
    if reason != BY_CALLBACK:
        return reason
    return "interrupted" if interrupted else "stop"


def predictions(hit_rate: float | None, context: int, chunk_size: int) -> list[dict[str, Any]]:
    """Return the estimator's tokens/s/user of Llama 3.1 8B at this context and at 128K, by chips.

    One entry for each context and number of chips: the fastest tensor parallelism on at most as many chips (over eight
    chips it is slower than over four at short contexts), and speculative parallelism of two halves, with these hits and
    with none. A context or chunk size outside the estimator's tables is moved to the nearest inside; the entries say
    what was used. Empty when nothing was verified (hit_rate None).
    """
    if hit_rate is None:
        return []
    chunk = min(CHUNK_SIZES, key=lambda size: abs(size - chunk_size))
    here = min(max(context, MIN_CONTEXT), MAX_CONTEXT)
    rows = []
    for context in dict.fromkeys((here, MAX_CONTEXT)):
        for chips in CHIPS:
            groups = [estimate(context, None, count, chunk) for count in CHIP_COUNTS if count <= chips]
            best = max(groups, key=lambda group: group.tokens_per_s_per_user)
            without, hitting = (estimate(context, rate, chips, chunk).tokens_per_s_per_user for rate in (0.0, hit_rate))
            rows.append(
                {
                    "context": context,
                    "chunk_size": chunk,
                    "chips": chips,
                    "best_tp_chips": best.chips,
                    "best_tp_tokens_per_s": best.tokens_per_s_per_user,
                    "no_hits_tokens_per_s": without,
                    "sp_tp_tokens_per_s": hitting,
                    "gain_of_hits": hitting / without,
                    "speedup": hitting / best.tokens_per_s_per_user,
                }
            )
    return rows


def print_levels(report: RunReport, console: Console) -> None:
    """Print hits by layer, and for a run at both levels what they give together."""
    print_hits(report, console)
    if report.both is not None and report.hit_rate is not None:
        console.print(both_levels(report))


def print_report(report: RunReport, console: Console) -> None:
    """Print the report; about 30 lines for 30 layers at 80 columns."""
    console.print()
    console.rule("[bold]report", align="left")
    console.print(_speeds(report))
    if not report.speculates:
        console.print(f"{report.attention} attention verifies nothing, so there is no hit rate to estimate from.")
        return
    if report.hit_rate is None:
        text = "this text" if report.users == 1 else "the longest text"
        console.print(
            f"No guess was verified: speculation starts at {2 * report.chunk_size} cached tokens, 2S; {text} "
            f"reached {report.context}."
        )
        return
    print_levels(report, console)


def both_levels(report: RunReport) -> str:
    """Return one sentence on what each level of speculation gives alone, and both together; for a report with hits and
    drafts."""
    assert report.both is not None and report.speculation is not None
    tokens = report.speculation["tokens_per_target_step"]
    alone, together = (
        [row["gain_of_hits"] for row in predictions(rate, report.context, report.chunk_size)]
        for rate in (report.both["hit_rate_of_roots_alone"], report.both["hit_rate_per_step"])
    )
    of_attention = ""
    if alone:
        of_attention = (
            f"Attention alone: {min(alone):.2f}x to {max(alone):.2f}x with the hits of the steps' first tokens. "
        )
    return (
        f"{of_attention}Drafts alone: {tokens:.2f} tokens per step, if exact attention accepts as many. Both: "
        f"{min(together) * tokens:.2f}x to {max(together) * tokens:.2f}x, where a step of several tokens takes no "
        "longer than one of one token and its drafts are free."
    )


def print_hits(report: RunReport, console: Console) -> None:
    """Print hits by layer, and what they would give Llama 3.1 8B; one line where nothing was verified."""
    if report.hit_rate is None:
        console.print("No guess was verified.")
        return
    if report.exchange is not None:
        first, second = report.exchange["sent_by_row"]
        console.print(f"exchanges: {first} sent by the first row, {second} by the second, {_told(report.exchange)}")
    console.print()
    console.print("[bold]hit rate by layer[/bold]")
    console.print(layer_bars(report.hit_rate_per_layer))
    console.print()
    print_estimate(report.hit_rate, report.context, report.chunk_size, console)


def print_estimate(hit_rate: float, context: int, chunk_size: int, console: Console) -> None:
    """Print what this hit rate would give Llama 3.1 8B, with and without the hits beside tensor parallelism."""
    rows = predictions(hit_rate, context, chunk_size)
    console.print(
        f"[bold]estimated tokens/s of Llama 3.1 8B on N150[/bold] (hit rate {hit_rate:.1%}, "
        f"S = {rows[0]['chunk_size']})"
    )
    console.print(_estimate_table(context, rows))
    console.print(gains(rows))
    console.print(
        "[dim]TP: the fastest tensor parallelism on at most as many chips (on how many); SP + TP: half of the chips "
        "speculate for the other half. Device kernels only, by appendix F of the ALSpec paper; python -m "
        "perf.projection tokens prints the assumptions.[/dim]"
    )


def gains(rows: Sequence[dict[str, Any]]) -> str:
    """Return one sentence on what the hits gain, and on where SP + TP with them is faster than tensor parallelism."""
    low, high = (choose(row["gain_of_hits"] for row in rows) for choose in (min, max))
    ahead: dict[int, list[str]] = {}
    for row in rows:
        if row["speedup"] > 1:
            ahead.setdefault(row["context"], []).append(str(row["chips"]))
    places = [f"at {context:,} tokens on {', '.join(chips)} chips" for context, chips in ahead.items()]
    where = f"faster than TP {'; '.join(places)}" if places else "faster than TP nowhere in this table"
    return f"These hits make SP + TP {low:.2f}x to {high:.2f}x as fast as without any; with them it is {where}."


def _speeds(report: RunReport) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("model", Text(report.model))
    compiled = report.warm_up_tokens is not None
    included = ", compilation included" if compiled else ""
    table.add_row("prefill", f"{_rate(report.prefill_tokens_per_s)}  ({report.prefill_tokens} tokens{included})")
    if report.first_token_seconds is not None:
        table.add_row("first token", f"after {report.first_token_seconds:.2f} s{included}")
    counted = f"{report.decode_tokens - (report.warm_up_tokens or 0)} tokens"
    counted += f" of {report.users} users" if report.users > 1 else ""
    counted += f", {report.threads} threads" if report.threads is not None else ""
    if compiled:
        counted += f"; the first {report.warm_up_tokens}, which compile, left out: {report.warm_up_seconds:.2f} s"
    table.add_row("decode", f"{_rate(report.decode_tokens_per_s)}  ({counted})")
    if report.speculates:
        rate = "none verified" if report.hit_rate is None else f"[bold]{report.hit_rate:.1%}[/bold]"
        table.add_row("hit rate", f"{rate}  ({report.hits} hits, {report.misses} misses)")
        table.add_row("bypassed", f"{report.bypassed_positions} positions")
    if report.both is not None and report.both["hit_rate_per_step"] is not None:
        alone = report.both["hit_rate_of_roots_alone"]
        table.add_row(
            "hit rate of steps",
            f"{report.both['hit_rate_per_step']:.1%}"
            + ("" if alone is None else f", of their first tokens without drafts {alone:.1%}"),
        )
    if report.speculation is not None:
        for row in _drafting(report.speculation):
            table.add_row(*row)
    return table


def _told(exchange: dict[str, Any]) -> str:
    failures = exchange["failures"]
    return f"{exchange['ties']} ties, " + (f"refused: {'; '.join(failures)}" if failures else "none refused")


def _drafting(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Return rows on token-level speculation; they say so when nothing was drafted."""
    rows = [("drafts", "none: nothing was found, or drafting did not pay")]
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
    if times := _shares(figures):
        rows.append(("time per step", times))
    return rows


def _shares(figures: dict[str, Any]) -> str | None:
    """Return the shares of drafting, calibrating and verifying; None where no time passed."""
    calibrating = figures["calibration_seconds"]
    parts = {
        "drafting": figures["draft_seconds"] - calibrating,
        "calibrating": calibrating,
        "verifying": figures["target_seconds"],
    }
    whole = sum(parts.values())
    if not whole:
        return None
    return ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in parts.items() if seconds)


def drafting_line(figures: dict[str, Any]) -> str:
    """Return the figures of token-level speculation in one line."""
    return "; ".join(f"{name} {value}" for name, value in _drafting(figures))


def layer_bars(*runs: list[float | None]) -> Columns:
    """Return a line per layer, in columns. runs: the hit rates by layer of each run, one beside the other."""
    lines = []
    for layer, rates in enumerate(zip(*runs, strict=True)):
        line = Text(f"{layer:3d}")
        for rate in rates:
            line.append(" ")
            if rate is None:
                line.append("not verified".ljust(_BAR_WIDTH + 5), style="dim")
            else:
                line.append(bar(rate), style="green" if rate >= 0.8 else "yellow" if rate >= 0.5 else "red")
                line.append(f" {rate:4.0%}")
        lines.append(line)
    return Columns(lines, column_first=True, padding=(0, 3))


def bar(rate: float, width: int = _BAR_WIDTH) -> str:
    """Return a bar of `width` characters, filled to `rate` (0..1) in steps of an eighth."""
    eighths = round(rate * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width, "·")


def _estimate_table(context: int, rows: list[dict[str, Any]]) -> Table:
    here = rows[0]["context"]
    table = Table()
    for heading in ("cached tokens", "chips", "TP", "SP + TP:\nno hits", "\nthese hits", "hits\ngain", "to TP"):
        table.add_column(heading, justify="right")
    for row in rows:
        cached = f"{row['context']:,}" if row["chips"] == CHIPS[0] else ""
        if cached and row["context"] == here != context:
            cached += f" (for {context:,})"
        table.add_row(
            cached,
            str(row["chips"]),
            f"{row['best_tp_tokens_per_s']:.2f} ({row['best_tp_chips']})",
            f"{row['no_hits_tokens_per_s']:.2f}",
            f"{row['sp_tp_tokens_per_s']:.2f}",
            f"{row['gain_of_hits']:.2f}x",
            f"{row['speedup']:.2f}x",
            end_section=row["chips"] == CHIPS[-1],
        )
    return table


def _rate(value: float | None) -> str:
    return "no token" if value is None else f"{value:.1f} tokens/s"
