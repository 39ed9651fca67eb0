# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a run says at its end: speeds, hit rates by layer, and the estimate for Llama 3.1 8B on N150 chips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perf.estimator.latency import CHUNK_SIZES, MAX_CONTEXT, MIN_CONTEXT, estimate

CHIPS = (2, 4, 8)
_BAR_WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class RunReport:
    """One run, or all turns of a chat. Rates are 0..1, None where nothing was verified or decoded.

    context: cached tokens at the end. bypassed: decoded positions with fewer than 2S cached tokens.
    speculates: whether the attention policy verifies guesses at all. speculation: figures of token-level
    speculation, None without a drafter. first_token_seconds: from the prompt to its first token, weights being
    loaded; None for a chat. warm_up_tokens: of a run that compiled its programs, the first of decode_tokens, whose
    steps did that and took warm_up_seconds of decode_seconds; they do not count in the rate. None elsewhere.
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
    hit_rate: float | None
    hit_rate_per_layer: list[float | None]
    speculation: dict[str, Any] | None = None
    first_token_seconds: float | None = None
    warm_up_tokens: int | None = None
    warm_up_seconds: float = 0.0

    @property
    def prefill_tokens_per_s(self) -> float | None:
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds > 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        tokens = self.decode_tokens - (self.warm_up_tokens or 0)
        return tokens / (self.decode_seconds - self.warm_up_seconds) if tokens > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """The measured part of the --json object."""
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
            "speculation": self.speculation,
            "estimate": predictions(self),
        }


def predictions(report: RunReport) -> list[dict[str, Any]]:
    """The estimator's tokens/s/user of Llama 3.1 8B for this hit rate, at this context and at 128K.

    One entry for each context and chip count: full tensor parallelism on all chips against speculative
    parallelism of two halves. A context or chunk size outside the estimator's tables is moved to the nearest
    inside; the entries say what was used. Empty when nothing was verified.
    """
    if report.hit_rate is None:
        return []
    chunk = min(CHUNK_SIZES, key=lambda size: abs(size - report.chunk_size))
    here = min(max(report.context, MIN_CONTEXT), MAX_CONTEXT)
    rows = []
    for context in dict.fromkeys((here, MAX_CONTEXT)):
        for chips in CHIPS:
            full = estimate(context, None, chips, "tp", chunk_size=chunk).tokens_per_s_per_user
            both = estimate(context, report.hit_rate, chips, "sp+tp", chunk_size=chunk)
            speculative = both.tokens_per_s_per_user
            rows.append(
                {
                    "context": context,
                    "chunk_size": chunk,
                    "chips": chips,
                    "tp_tokens_per_s": full,
                    "sp_tp_tokens_per_s": speculative,
                    "speedup": speculative / full,
                }
            )
    return rows


def print_report(report: RunReport, console: Console) -> None:
    """Print the report; about 30 lines for 30 layers at 80 columns."""
    console.print()
    console.rule("[bold]report", align="left")
    console.print(_speeds(report))
    if not report.speculates:
        console.print(
            f"{report.attention} attention verifies nothing, so there is no hit rate to estimate from."
        )
        return
    if report.hit_rate is None:
        console.print(
            f"No guess was verified: speculation starts at {2 * report.chunk_size} cached tokens, 2S."
        )
        return
    console.print()
    console.print("[bold]hit rate by layer[/bold]")
    console.print(_bars(report.hit_rate_per_layer))
    console.print()
    rows = predictions(report)
    console.print(
        f"[bold]estimated tokens/s of Llama 3.1 8B on N150[/bold] "
        f"(hit rate {report.hit_rate:.1%}, S = {rows[0]['chunk_size']})"
    )
    console.print(_estimate_table(report, rows))
    console.print(
        "[dim]TP: tensor parallel; SP + TP: half of the chips speculate for the other half. Device kernels "
        "only, by appendix F of the ALSpec paper; python -m perf.estimator prints the assumptions.[/dim]"
    )


def _speeds(report: RunReport) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("model", Text(report.model))
    compiled = report.warm_up_tokens is not None
    included = ", compilation included" if compiled else ""
    table.add_row(
        "prefill", f"{_rate(report.prefill_tokens_per_s)}  ({report.prefill_tokens} tokens{included})"
    )
    if report.first_token_seconds is not None:
        table.add_row("first token", f"after {report.first_token_seconds:.2f} s{included}")
    counted = f"{report.decode_tokens - (report.warm_up_tokens or 0)} tokens"
    if compiled:
        counted += (
            f"; the first {report.warm_up_tokens}, which compile, left out: {report.warm_up_seconds:.2f} s"
        )
    table.add_row("decode", f"{_rate(report.decode_tokens_per_s)}  ({counted})")
    if report.speculates:
        rate = "none verified" if report.hit_rate is None else f"[bold]{report.hit_rate:.1%}[/bold]"
        table.add_row("hit rate", f"{rate}  ({report.hits} hits, {report.misses} misses)")
        table.add_row("bypassed", f"{report.bypassed} positions")
    if report.speculation is not None:
        for row in _drafting(report.speculation):
            table.add_row(*row)
    return table


def _drafting(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows on token-level speculation; says so when nothing was drafted."""
    rows = [("drafts", "none: drafting did not pay")]
    if figures["num_drafts"]:
        rate = f"{figures['draft_acceptance_rate']:.1%}"
        counts = f"{figures['num_accepted_tokens']} of {figures['num_draft_tokens']} drafted tokens"
        lengths = " ".join(f"{j}:{count}" for j, count in enumerate(figures["acceptance_histogram"]))
        rows = [
            ("drafts", f"{figures['num_drafts']} by {figures['drafter']}"),
            ("accepted", f"[bold]{rate}[/bold]  ({counts})"),
            ("accepted a draft", lengths),
            ("mean acceptance length", f"{figures['mean_acceptance_length']:.2f}, the bonus token counted"),
        ]
    if figures["tokens_per_target_step"] is not None:
        rows.append(("tokens a step", f"{figures['tokens_per_target_step']:.2f}"))
    if not figures["lossless"]:
        rows.append(("verification", "[red]sigmoid: LOSSY, not the model's own distribution[/red]"))
    return rows


def _bars(rates: list[float | None]) -> Columns:
    lines = []
    for layer, rate in enumerate(rates):
        line = Text(f"{layer:3d} ")
        if rate is None:
            line.append("not verified".ljust(_BAR_WIDTH + 5), style="dim")
        else:
            line.append(bar(rate), style="green" if rate >= 0.8 else "yellow" if rate >= 0.5 else "red")
            line.append(f" {rate:4.0%}")
        lines.append(line)
    return Columns(lines, column_first=True, padding=(0, 3))


def bar(rate: float, width: int = _BAR_WIDTH) -> str:
    """A bar of `width` characters, filled to `rate` (0..1) in steps of an eighth."""
    eighths = round(rate * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width, "·")


def _estimate_table(report: RunReport, rows: list[dict[str, Any]]) -> Table:
    here = rows[0]["context"]
    table = Table()
    for heading in ("cached tokens", "chips", "full TP", "SP + TP", "gain"):
        table.add_column(heading, justify="right")
    for row in rows:
        context = f"{row['context']:,}"
        if row["context"] == here and here != report.context:
            context += f" (for {report.context:,})"
        table.add_row(
            context,
            str(row["chips"]),
            f"{row['tp_tokens_per_s']:.2f}",
            f"{row['sp_tp_tokens_per_s']:.2f}",
            f"{row['speedup']:.2f}x",
            end_section=row["chips"] == CHIPS[-1],
        )
    return table


def _rate(value: float | None) -> str:
    return "no token" if value is None else f"{value:.1f} tokens/s"
