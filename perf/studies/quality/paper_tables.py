# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure tables 1 and 2 and figure 3 of the ALSpec paper with your own model, beside the printed figures.

The tables are tasks of the LM Evaluation Harness by its default prompts, under transformers with the attention function
"alspec"; figure 3 is the needles and the acceptance by layer, for which --data names the folder with the book. A
stopped run is continued. Needs `pip install -e perf/studies/quality`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from loguru import logger
from tqdm import tqdm

from models.llama31_8b.reference.load import LoadedModel
from perf.lib.tables import Table
from perf.lib.tables import shown as cell_text
from runtime_patches.board.command_line import OneLineParser, run_command

from .cli import measure
from .inputs import DTYPES, Texts, add_torch_options, loaded_on, threshold
from .lm_eval import add_harness_options, harness_of
from .study import Settings, Study, split_rates

if TYPE_CHECKING:
    from .harness import Harness

PRINTED = Path(__file__).resolve().parents[2] / "data" / "hit_rates.csv"
PAPER = {"1": "llama-3.1-8b", "2": "llama-3.1-70b"}
FIGURE = "figure3"
THRESHOLDS = (0.0, 0.05, 0.10, 0.15, 0.20, 0.25)
KEY = ("model", "task", "threshold", "chunk_size", "tail_alignment", "limit", "chat", "metric")
VALUES = ("score", "hits", "misses", "bypassed", "requests", "seconds")


# lm-eval's name of each task of the paper, and the metric that is shown, by lm-eval's "metric,filter". The paper does
# not say which it took, so all metrics of a task are in the results.
TASKS = {
    "IFEVAL": ("ifeval", "inst_level_strict_acc,none"),
    "GPQA_COT": ("gpqa_main_cot_n_shot", "exact_match,flexible-extract"),
    "SWDE": ("swde", "contains,none"),
    "FDA": ("fda", "contains,none"),
    "GSM8K_COT": ("gsm8k_cot", "exact_match,flexible-extract"),
    "MATH": ("mmlu_pro_math", "exact_match,custom-extract"),
    "MGSM_COT_SW": ("mgsm_native_cot_sw", "exact_match,flexible-extract"),
    "HOTPOTQA": ("longbench_hotpotqa", "score,none"),
    "REPOBENCH_P": ("longbench_repobench-p", "score,none"),
    "ECON": ("mmlu_pro_economics", "exact_match,custom-extract"),
    "BUSINESS": ("mmlu_pro_business", "exact_match,custom-extract"),
    "PSYCH": ("mmlu_pro_psychology", "exact_match,custom-extract"),
}


def printed() -> pd.DataFrame:
    """Return the figures of tables 1 and 2 in their order: model, task, threshold, score and hit rate in [0, 1]."""
    return pd.read_csv(PRINTED, comment="#")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = OneLineParser(prog="perf.studies.quality.paper_tables", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--model", required=True, help="Hugging Face folder or hub id, or .gguf file")
    add("--parts", nargs="+", choices=(*PAPER, FIGURE), default=(*PAPER, FIGURE), help="default: all")
    add("--tasks", nargs="+", choices=TASKS, default=tuple(TASKS), help="only these tasks of the tables")
    add("--data", type=Path, help="folder with the book for figure 3")
    add("--context", type=int, default=16384, help="tokens of figure 3's text (16384, as in the paper)")
    add("--thresholds", nargs="+", type=threshold, default=THRESHOLDS, metavar="X")
    add_harness_options(add, batch_size=16)
    add_torch_options(add, "cuda" if torch.cuda.is_available() else "cpu", "bfloat16")
    add("--out", type=Path, default=Path("generated/paper_tables"), help="folder of the results")
    args = parser.parse_args(argv)
    if FIGURE in args.parts and args.data is None:
        parser.error(f"{FIGURE} needs --data with the book; without it: --parts {' '.join(PAPER)}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is missing and print; 0, or 2 with one line for what cannot be done."""
    args = parse_args(argv)
    return run_command("perf.studies.quality.paper_tables", lambda: run(args), (ImportError, ValueError))


def run(args: argparse.Namespace) -> int:
    logger.info("on {}, {}", args.torch_device, args.dtype)
    tables = [part for part in args.parts if part in PAPER]
    if tables:
        wanted = printed()[printed().model.isin([PAPER[number] for number in tables])].task.unique()
        table, missing = fill_tables(args, [task for task in wanted if task in args.tasks])
        for number in tables:
            print(shown(number, table, args, missing))
    if FIGURE in args.parts:
        with loaded_on(args.torch_device, args.dtype, args.model) as loaded:
            print(figure3(loaded, Texts(args.data), args))
    return 0


def fill_tables(args: argparse.Namespace, tasks: Sequence[str]) -> tuple[Table, dict[str, str]]:
    """Run what the results lack; return them, and why each task that is missing cannot be run here."""
    from models.llama31_8b.huggingface import ATTENTION_NAME, AttentionSpeculation
    from models.llama31_8b.huggingface.load import load_transformers

    harness = harness_of(args.include_path)
    requests, missing = available(harness, tasks, args.limit)
    for task, why in missing.items():
        logger.warning("{} ({}) cannot be run: {}", task, TASKS[task][0], why)
    table = Table(args.out / "tables.csv", KEY, VALUES)
    todo = [(task, at) for task in requests for at in args.thresholds if not table.has(_key(args, task, at))]
    if not todo:
        return table, missing
    loaded = load_transformers(args.model, DTYPES[args.dtype], args.torch_device)
    options = {"limit": args.limit, "apply_chat_template": args.chat}
    with tqdm(total=sum(requests[task] for task, _ in todo), desc="requests", unit="request") as bar:
        for task, at in todo:
            bar.set_postfix_str(f"{task} at {at:g}")
            loaded.model.set_attn_implementation(ATTENTION_NAME)
            speculation = AttentionSpeculation(at, args.chunk_size, args.tail_alignment).attach(loaded.model)
            start = time.perf_counter()
            found, lm = harness.run(
                TASKS[task][0], loaded._replace(speculation=speculation), args.batch_size, exact=at == 0, **options
            )
            values = {name: getattr(lm, name) for name in ("hits", "misses", "bypassed")}
            values |= {"requests": requests[task], "seconds": round(time.perf_counter() - start, 1)}
            scores = found[TASKS[task][0]].items()  # standard errors are metrics too
            table.append(
                [_key(args, task, at) | {"metric": metric, "score": score} | values for metric, score in scores]
            )
            bar.update(requests[task])
    return table, missing


def available(
    harness: Harness, tasks: Sequence[str], limit: int | None = None
) -> tuple[dict[str, int], dict[str, str]]:
    """Return (requests of each task whose data can be had, why not for the others)."""
    requests, missing = {}, {}
    for task in tasks:
        if harness.missing([TASKS[task][0]]):
            missing[task] = "the harness has no such task"
            continue
        try:
            requests[task] = harness.requests(TASKS[task][0], limit)
        except Exception as error:  # gated data, no network, a missing package: datasets has errors of its own
            missing[task] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return requests, missing


def _key(args: argparse.Namespace, task: str, at: float) -> dict[str, object]:
    """Return the key columns but `metric`, of which a run has several."""
    name = Path(args.model).stem if args.model.endswith(".gguf") else Path(args.model).name
    values = (f"{name} {args.dtype}", TASKS[task][0], at, args.chunk_size, args.tail_alignment, args.limit)
    return dict(zip(KEY, (*values, int(args.chat))))


def shown(number: str, table: Table, args: argparse.Namespace, missing: Mapping[str, str]) -> str:
    """Return a table of the paper in Markdown: for each task and threshold the printed score / hit rate and ours."""
    header = f"Table {number} ({PAPER[number]}) beside {_key(args, 'SWDE', 0)['model']}"
    lines = [header, "", "| task (metric) | threshold | paper | here |", "|---|---:|---:|---:|"]
    ours = {tuple(row[name] for name in KEY): row for row in table.rows()}
    for cell in printed()[printed().model == PAPER[number]].itertuples():
        if cell.threshold not in args.thresholds or cell.task not in args.tasks:
            continue
        metric = TASKS[cell.task][1]
        key = {**_key(args, cell.task, cell.threshold), "metric": metric}
        row = ours.get(tuple(cell_text(value) for value in key.values()))
        here = "not run" + (f": {missing[cell.task]}" if cell.task in missing else "")
        if row:
            verified = int(row["hits"]) + int(row["misses"])
            here = _pair(float(row["score"]), int(row["hits"]) / verified if verified else None)
        paper = _pair(cell.score, cell.hit_rate if cell.threshold else None)
        lines.append(f"| {cell.task} ({metric}) | {cell.threshold:g} | {paper} | {here} |")
    return "\n".join(lines) + "\n"


def _pair(score: float, hit_rate: float | None) -> str:
    return f"{score:.3f}" + ("" if hit_rate is None else f" / {hit_rate:.1%}")


def figure3(loaded: LoadedModel, texts: Texts, args: argparse.Namespace) -> str:
    """Measure needles and acceptance by layer on one text, as far as the results lack them, and show both in Markdown.

    Raises ValueError for a text that is too short or a context beyond the model's.
    """
    settings = Settings(
        out=args.out,
        thresholds=(*args.thresholds, float("inf")),
        chunk_sizes=(args.chunk_size,),
        contexts=(args.context,),
        windows=1,
        tail_alignment=args.tail_alignment,
    )
    study, tables = Study(loaded, texts, settings), {}
    for name in ("needle", "perplexity"):
        rows = pd.read_csv(measure(name, study).path, dtype={"tail_alignment": str})
        mine = (rows.model == loaded.config.name) & (rows.context == args.context)
        mine &= (rows.chunk_size == args.chunk_size) & (rows.tail_alignment == settings.tail)
        tables[name] = rows[mine & (rows.predictor == "ends") & rows.threshold.isin(settings.thresholds)]
    lines = [
        f"Figure 3 beside {loaded.config.name}, {args.context} tokens, S = {args.chunk_size} "
        "(paper, 16K: 8 of 10 at threshold 0, none by unverified guesses)",
        "",
        "| threshold | needles found | tokens of needles right | hit rate |",
        "|---:|---:|---:|---:|",
    ]
    for at, same in tables["needle"].groupby("threshold"):
        rates = f"{same.tokens_right.mean():.1%} | {same.hit_rate.fillna(0).mean():.1%}"
        lines.append(f"| {at:g} | {same.right.sum()} of {len(same)} | {rates} |")
    lines += ["", "Guesses accepted by layer (%), first layer first:"]
    for row in tables["perplexity"].itertuples():
        if row.threshold in settings.finite:
            rates = " ".join(f"{100 * rate:.0f}" for rate in split_rates(row.hit_rate_by_layer))
            lines.append(f"- threshold {row.threshold:g}: {rates}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
