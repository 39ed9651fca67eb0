# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure token-level speculation on this machine: tokens per step and time, by drafter.

Greedy, on prompts of several kinds, turn by turn in one run: a plain run comes before every speculative run of a
prompt, and the ratio of the two is what counts, so a busy machine slows both sides alike. Reported: tokens per target
step, wall-clock and CPU time ratios, what fuzzy drafting loses in acceptance, and whether the text is the plain one.

The "model" drafter is --draft-model or, without it, the target's own weights as a separate draft model:
useless as a draft, but its sequential acceptance is 100%, so what fuzzy drafting loses is seen alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Callable, Sequence

import torch
from loguru import logger
from rich.console import Console
from rich.table import Table

from models.llama31_8b.checkpoint.load import LoadedModel, load_model
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.spec_decode.drafter import Drafter
from models.llama31_8b.reference.spec_decode.generate import speculative_generate
from models.llama31_8b.reference.spec_decode.model_drafter import ModelDrafter, SelfDrafter
from models.llama31_8b.reference.spec_decode.ngram_drafter import NGramDrafter
from models.llama31_8b.spec_decode.draft_shape import DraftShape
from models.llama31_8b.spec_decode.metrics import TokenSpeculationMetrics
from perf.cpu.speculation_prompts import PROMPTS
from perf.lib.data_file import add_write_option, write

CHAIN, TREE, GROWN = DraftShape(4), DraftShape(4, 2, budget=16), DraftShape(4, 3, grown=True, budget=16)
FUZZY_SIZES = (2, 3, 4, 5)


def drafters(target: ReferenceLlama, draft: ReferenceLlama, window: int) -> dict[str, Callable[[], Drafter]]:
    """Return every drafter and shape that is measured, by name; fuzzy ones as far as the draft model has layers."""
    sizes = [size for size in FUZZY_SIZES if size <= draft.config.num_hidden_layers - 2]
    makers: dict[str, Callable[[], Drafter]] = {
        "ngram chain 8": lambda: NGramDrafter(DraftShape(8)),
        "ngram tree 6x3": lambda: NGramDrafter(DraftShape(6, 3, budget=16)),
        "self chain 4": lambda: SelfDrafter(target, CHAIN, window=window),
        "self tree 4x2": lambda: SelfDrafter(target, TREE, window=window),
        "self grown": lambda: SelfDrafter(target, GROWN, window=window),
        "model chain 4": lambda: ModelDrafter(draft, CHAIN),
    }
    for size in sizes:
        makers[f"model chain 4 fuzzy {size}"] = partial(ModelDrafter, draft, CHAIN, fuzzy=size)
    makers["model tree 4x2"] = lambda: ModelDrafter(draft, TREE)
    if 4 in sizes:  # the paper's choice for most models
        makers["model tree 4x2 fuzzy 4"] = lambda: ModelDrafter(draft, TREE, fuzzy=4)
        makers["model grown fuzzy 4"] = lambda: ModelDrafter(draft, GROWN, fuzzy=4)
    return makers


@dataclass
class Measured:
    """One drafter over all prompts."""

    name: str
    metrics: dict[str, TokenSpeculationMetrics] = field(default_factory=dict)
    # Plain over speculative decoding time, by the clock and by this process's CPU time.
    ratios: dict[str, float] = field(default_factory=dict)
    cpu_ratios: dict[str, float] = field(default_factory=dict)
    same_text: dict[str, bool] = field(default_factory=dict)

    def total(self, name: str) -> float:
        return sum(getattr(metrics, name) for metrics in self.metrics.values())

    @property
    def tokens_per_step(self) -> float:
        return self.total("num_output_tokens") / self.total("num_target_steps")

    @property
    def mean_acceptance_length(self) -> float | None:
        drafts = self.total("num_drafts")
        return 1 + self.total("num_accepted_tokens") / drafts if drafts else None

    @property
    def levels_per_step(self) -> float:
        """Levels drafted, over all target steps."""
        levels = sum(
            depth * sum(histogram)
            for metrics in self.metrics.values()
            for depth, histogram in metrics.acceptance_histogram_by_draft_length.items()
        )
        return levels / self.total("num_target_steps")

    @property
    def draft_ms_per_level(self) -> float:
        levels = self.levels_per_step * self.total("num_target_steps")
        return 1e3 * self.total("draft_seconds") / levels if levels else 0.0

    @property
    def accepted_share_of_depth(self) -> float:
        """Accepted tokens over drafted levels: acceptance that chains and trees can be compared by."""
        levels = self.levels_per_step * self.total("num_target_steps")
        return self.total("num_accepted_tokens") / levels if levels else 0.0

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios.values())

    def to_dict(self) -> dict:
        return {
            "drafter": self.name,
            "tokens_per_target_step": self.tokens_per_step,
            "mean_acceptance_length": self.mean_acceptance_length,
            "accepted_share_of_depth": self.accepted_share_of_depth,
            "draft_ms_per_level": self.draft_ms_per_level,
            "wall_clock_ratio_to_plain": self.ratio,
            "wall_clock_ratio_by_prompt": self.ratios,
            "cpu_time_ratio_to_plain": statistics.median(self.cpu_ratios.values()),
            "texts_equal_plain": sum(self.same_text.values()),
            "texts": len(self.same_text),
            "by_prompt": {kind: metrics.to_dict() for kind, metrics in self.metrics.items()},
        }


class _DecodeCpu:
    """A token callback that takes the CPU time of decoding: from the first token, the prefill's, on."""

    def __init__(self) -> None:
        self._first: float | None = None

    def __call__(self, user: int, token: int) -> None:
        if self._first is None:
            self._first = time.process_time()

    def seconds(self) -> float:
        if self._first is None:
            raise RuntimeError("no token was decoded")
        return time.process_time() - self._first


def bench(
    loaded: LoadedModel,
    makers: dict[str, Callable[[], Drafter]],
    prompts: dict[str, list[int]],
    tokens: int,
    rounds: int = 1,
) -> list[Measured]:
    """Run every drafter on every prompt, greedily, `tokens` new tokens; `rounds` times, each a plain run beside a
    speculative one, in alternating order. Ratios are medians over the rounds."""
    results = [Measured(name) for name in makers]
    for kind, ids in prompts.items():
        generate(loaded.model, [ids], max_new_tokens=4, eos_token_ids=())  # warm up
        for result in results:
            model, request = loaded.model, {"max_new_tokens": tokens, "eos_token_ids": ()}
            clock, cpu = [], []
            for turn in range(rounds):
                runs = {}
                for drafted in (False, True) if turn % 2 == 0 else (True, False):
                    timer = _DecodeCpu()
                    if drafted:
                        drafter = makers[result.name]()
                        run = speculative_generate(model, [ids], drafter, adaptive=False, on_token=timer, **request)
                    else:
                        run = generate(model, [ids], on_token=timer, **request)
                    runs[drafted] = run, timer.seconds()
                (plain, plain_cpu), (speculative, speculative_cpu) = runs[False], runs[True]
                clock.append(plain.decode_seconds / speculative.decode_seconds)
                cpu.append(plain_cpu / speculative_cpu)
            result.metrics[kind] = speculative.speculation
            result.ratios[kind], result.cpu_ratios[kind] = statistics.median(clock), statistics.median(cpu)
            result.same_text[kind] = plain.token_ids == speculative.token_ids
            logger.info(
                "{} on {}: {:.2f} tokens per step, {:.2f}x by the clock, {:.2f}x by CPU time",
                result.name,
                kind,
                speculative.speculation.tokens_per_target_step,
                result.ratios[kind],
                result.cpu_ratios[kind],
            )
    return results


def rows_cost(model: ReferenceLlama, prompt: list[int], rows: Sequence[int] = (1, 2, 4, 8, 16, 32)) -> dict[int, float]:
    """Return the time of a target pass over this many rows, one row being 1: what verification costs here. Median of
    five."""
    cache = model.new_cache(1, min(len(prompt) + max(rows), model.config.max_position_embeddings))
    model.prefill([prompt], cache)
    times: dict[int, list[float]] = {count: [] for count in rows}
    for _ in range(6):
        for count in rows:
            start = time.perf_counter()
            model.forward(torch.tensor([prompt[:count]]), cache, commit=False)
            times[count].append(time.perf_counter() - start)
    medians = {count: statistics.median(values[1:]) for count, values in times.items()}
    return {count: value / medians[rows[0]] for count, value in medians.items()}


def fuzzy_table(results: Sequence[Measured]) -> list[dict]:
    """Return what fuzzy drafting loses in acceptance against the same drafter step by step (EasySpec: at most 7 %)."""
    by_name, rows = {result.name: result for result in results}, []
    for name, result in by_name.items():
        base, _, size = name.partition(" fuzzy ")
        if not size or base not in by_name:
            continue
        sequential, acceptance = by_name[base].accepted_share_of_depth, result.accepted_share_of_depth
        rows.append(
            {
                "drafter": base,
                "size": int(size),
                "acceptance": acceptance,
                "sequential_acceptance": sequential,
                "loss": sequential - acceptance,
            }
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.cpu.bench_speculation", description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="target (default: as the demo)")
    parser.add_argument("--draft-model", help="a smaller checkpoint with the same vocabulary")
    parser.add_argument("--tokens", type=int, default=48, help="new tokens per prompt (default: 48)")
    parser.add_argument("--rounds", type=int, default=1, help="plain and speculative runs each (default: 1)")
    parser.add_argument(
        "--window", type=int, default=32, help="positions at either end that self drafts see (default: 32)"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="drafters to measure, by the start of their names")
    parser.add_argument("--kinds", nargs="+", choices=list(PROMPTS), help="kinds of prompts (default: all)")
    parser.add_argument(
        "--prompt-file", type=Path, help="JSON object {kind: text} to use instead of the built-in prompts"
    )
    add_write_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(argv)
    if options.tokens < 2 or options.rounds < 1:
        parser.error(f"--tokens must be at least 2, got {options.tokens}; --rounds at least 1, got {options.rounds}")
    loaded = load_model(options.model)
    draft = load_model(options.draft_model) if options.draft_model else loaded
    texts = PROMPTS if options.prompt_file is None else json.loads(options.prompt_file.read_text(encoding="utf-8"))
    texts = {kind: text for kind, text in texts.items() if not options.kinds or kind in options.kinds}
    tokenizer = loaded.tokenizer
    prompts = {
        kind: tokenizer.apply_chat_template([{"role": "user", "content": text}])
        if tokenizer.chat_template
        else tokenizer.encode(text)
        for kind, text in texts.items()
    }
    makers = drafters(loaded.model, draft.model, options.window)
    if options.only:
        makers = {name: make for name, make in makers.items() if name.startswith(tuple(options.only))}
    if not makers:
        parser.error(f"--only {' '.join(options.only)} leaves no drafter to measure")
    results = bench(loaded, makers, prompts, options.tokens, options.rounds)
    report = {
        "model": loaded.source,
        "draft_model": draft.source if options.draft_model else None,
        "tokens": options.tokens,
        "window": options.window,
        "prompt_tokens": {kind: len(ids) for kind, ids in prompts.items()},
        "cost_of_rows": rows_cost(loaded.model, max(prompts.values(), key=len)),
        "drafters": [result.to_dict() for result in results],
        "fuzzy": fuzzy_table(results),
    }
    if options.json:
        print(json.dumps(report))
    else:
        print_report(report, Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140))
    if options.write:
        rows = [row for row in report["drafters"] if row.pop("by_prompt")]
        write(options.write, parser, argv, rows, fuzzy=report["fuzzy"], model=loaded.source)
    return 0 if all(all(result.same_text.values()) for result in results) else 1


def print_report(report: dict, console: Console) -> None:
    """Print the tables of one run, and what they do not show."""
    kinds = list(report["prompt_tokens"])
    table = Table(title=f"{report['model']}, greedy, {report['tokens']} tokens per prompt", title_justify="left")
    headings = ("tokens per step", "accepted / depth", "ms per level", "by clock", "by CPU", "same text", *kinds)
    table.add_column("drafter", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in report["drafters"]:
        table.add_row(
            row["drafter"],
            f"{row['tokens_per_target_step']:.2f}",
            f"{row['accepted_share_of_depth']:.0%}",
            f"{row['draft_ms_per_level']:.1f}",
            f"{row['wall_clock_ratio_to_plain']:.2f}x",
            f"{row['cpu_time_ratio_to_plain']:.2f}x",
            f"{row['texts_equal_plain']}/{row['texts']}",
            *(f"{row['by_prompt'][kind]['tokens_per_target_step']:.2f}" for kind in kinds),
        )
    console.print(table)
    cost = ", ".join(f"{rows}: {value:.2f}" for rows, value in report["cost_of_rows"].items())
    console.print(f"A target pass over several rows costs here, one row being 1: {cost}.")
    console.print(
        "Drafting with the target's own weights (self on short contexts; model without --draft-model) "
        "cannot be faster here: a drafted level costs a target step. Where the clock says otherwise, the "
        "machine was busy; CPU time is steadier."
    )
    if report["fuzzy"]:
        table = Table(title="fuzzy against sequential drafting", title_justify="left")
        for heading in ("drafter", "N", "acceptance", "loss"):
            table.add_column(heading, justify="left" if heading == "drafter" else "right")
        for row in report["fuzzy"]:
            cells = (str(row["size"]), f"{row['acceptance']:.0%}", f"{100 * row['loss']:.0f} points")
            table.add_row(row["drafter"], *cells)
        console.print(table)
        console.print(
            "The torch reference runs the attentions of a group one after another, so fuzzy drafting saves no time "
            "here by design; it shows the loss of acceptance. On chips: perf.step drafting."
        )


if __name__ == "__main__":
    raise SystemExit(main())
