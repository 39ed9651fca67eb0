# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure tables 1 and 2 of the ALSpec paper, or other tasks, with your own model, beside the printed figures.

The tasks are those of the LM Evaluation Harness by its default prompts, under transformers with the attention function
"alspec". At threshold 0 attention is exact, at inf every guess is taken. A stopped run is continued. Tasks and data
come from the Hugging Face hub, unless --include-path names a folder with task files. Needs `pip install -e
perf/studies/quality`.
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

from perf.lib.tables import Table
from perf.lib.tables import shown as cell_text
from runtime_patches.board.command_line import OneLineParser, run_command

from .inputs import DTYPES, add_torch_options, positive, threshold

if TYPE_CHECKING:
    from .harness import Harness

PRINTED = Path(__file__).resolve().parents[2] / "data" / "hit_rates.csv"
PAPER = {"1": "llama-3.1-8b", "2": "llama-3.1-70b"}
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


def named(task: str) -> str:
    """Return lm-eval's name of a task of the paper, or of its own."""
    return TASKS[task][0] if task in TASKS else task


def printed() -> pd.DataFrame:
    """Return the figures of tables 1 and 2 in their order: model, task, threshold, score and hit rate in [0, 1]."""
    return pd.read_csv(PRINTED, comment="#")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = OneLineParser(prog="perf.studies.quality.paper_tables", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--model", required=True, help="Hugging Face folder or hub id, or .gguf file")
    add("--parts", nargs="+", choices=PAPER, default=tuple(PAPER), help="the tables (both)")
    add("--tasks", nargs="+", metavar="NAME", help="only these tasks of the tables, or any of lm-eval by its name")
    add("--thresholds", nargs="+", type=threshold, default=THRESHOLDS, metavar="X")
    add("--chunk-size", type=int, default=128, help="tokens the guess reads at either end (128, as in the paper)")
    add("--tail-alignment", type=int, default=32, help="32 as on the device (default), 1 as in the paper")
    add("--batch-size", type=int, default=16, help="prompts of a generation (16)")
    add("--limit", type=positive, help="only the first documents of each task")
    add("--chat", action="store_true", help="put prompts in the model's chat template")
    add("--include-path", type=Path, metavar="FOLDER", help="take the tasks of this folder alone")
    add_torch_options(add, "cuda" if torch.cuda.is_available() else "cpu", "bfloat16")
    add("--out", type=Path, default=Path("generated/paper_tables"), help="folder of the results")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is missing and print; 0, or 2 with one line for what cannot be done."""
    args = parse_args(argv)
    return run_command("perf.studies.quality.paper_tables", lambda: run(args), (ImportError, ValueError))


def run(args: argparse.Namespace) -> int:
    logger.info("on {}, {}", args.torch_device, args.dtype)
    figures = printed()
    figures = figures[figures.model.isin([PAPER[number] for number in args.parts])]
    of_paper, others = [*figures.task.unique()], []
    if args.tasks is not None:
        names = {name: task for task, (name, _) in TASKS.items()}
        asked = [names.get(task, task) for task in args.tasks]
        of_paper, others = [task for task in of_paper if task in asked], [task for task in asked if task not in TASKS]
    table, missing = fill_tables(args, of_paper, others)
    for number in args.parts if of_paper else ():
        print(shown(number, figures[figures.task.isin(of_paper)], table, args, missing))
    if others:
        print(shown_others(others, table, args))
    return 0


def harness_of(include_path: Path | None) -> Harness:
    """Return the tasks. Raises ImportError that says what to install."""
    try:
        from .harness import Harness
    except ImportError as error:
        raise ImportError(f"{error}: install the study with pip install -e perf/studies/quality") from error
    return Harness(include_path)


def fill_tables(
    args: argparse.Namespace, of_paper: Sequence[str], others: Sequence[str]
) -> tuple[Table, dict[str, str]]:
    """Run what the results lack; return them, and why each task of the paper that is missing cannot be run here.

    Raises ValueError for another task that is missing.
    """
    from models.llama31_8b.huggingface import ATTENTION_NAME, AttentionSpeculation
    from models.llama31_8b.huggingface.load import load_transformers

    harness = harness_of(args.include_path)
    requests, missing = available(harness, [*of_paper, *others], args.limit)
    for task, why in missing.items():
        if task in others:
            raise ValueError(f"{task} cannot be run: {why}")
        logger.warning("{} ({}) cannot be run: {}", task, named(task), why)
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
                named(task), loaded._replace(speculation=speculation), args.batch_size, exact=at == 0, **options
            )
            values = {name: getattr(lm, name) for name in ("hits", "misses", "bypassed")}
            values |= {"requests": requests[task], "seconds": round(time.perf_counter() - start, 1)}
            scores = found[named(task)].items()  # standard errors are metrics too
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
        if harness.missing([named(task)]):
            missing[task] = "the harness has no such task"
            continue
        try:
            requests[task] = harness.requests(named(task), limit)
        except Exception as error:  # gated data, no network, a missing package: datasets has errors of its own
            missing[task] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return requests, missing


def _key(args: argparse.Namespace, task: str, at: float) -> dict[str, object]:
    """Return the key columns but `metric`, of which a run has several."""
    name = Path(args.model).stem if args.model.endswith(".gguf") else Path(args.model).name
    values = (f"{name} {args.dtype}", named(task), at, args.chunk_size, args.tail_alignment, args.limit)
    return dict(zip(KEY, (*values, int(args.chat))))


def shown(
    number: str, figures: pd.DataFrame, table: Table, args: argparse.Namespace, missing: Mapping[str, str]
) -> str:
    """Return a table of the paper in Markdown: for each task and threshold the printed score / hit rate and ours."""
    header = f"Table {number} ({PAPER[number]}) beside {_key(args, 'SWDE', 0)['model']}"
    lines = [header, "", "| task (metric) | threshold | paper | here |", "|---|---:|---:|---:|"]
    ours = measured(table)
    for cell in figures[figures.model == PAPER[number]].itertuples():
        if cell.threshold not in args.thresholds:
            continue
        metric = TASKS[cell.task][1]
        here = ours.get((*_cells(args, cell.task, cell.threshold), metric))
        here = here or "not run" + (f": {missing[cell.task]}" if cell.task in missing else "")
        paper = _pair(cell.score, cell.hit_rate if cell.threshold else None)
        lines.append(f"| {cell.task} ({metric}) | {cell.threshold:g} | {paper} | {here} |")
    return "\n".join(lines) + "\n"


def shown_others(tasks: Sequence[str], table: Table, args: argparse.Namespace) -> str:
    """Return a table in Markdown of what tasks give that are not the paper's: every metric / hit rate."""
    lines, ours = ["| task (metric) | threshold | here |", "|---|---:|---:|"], measured(table)
    for task in tasks:
        for at in args.thresholds:
            for (*key, metric), here in ours.items():
                if tuple(key) == _cells(args, task, at) and "_stderr" not in metric:
                    lines.append(f"| {task} ({metric}) | {at:g} | {here} |")
    return "\n".join(lines) + "\n"


def measured(table: Table) -> dict[tuple[str, ...], str]:
    """Return the score / hit rate of each row by its key."""
    found = {}
    for row in table.rows():
        verified = int(row["hits"]) + int(row["misses"])
        rate = int(row["hits"]) / verified if verified else None
        found[tuple(row[name] for name in KEY)] = _pair(float(row["score"]), rate)
    return found


def _cells(args: argparse.Namespace, task: str, at: float) -> tuple[str, ...]:
    """Return `_key` as the table's cells."""
    return tuple(cell_text(value) for value in _key(args, task, at).values())


def _pair(score: float, hit_rate: float | None) -> str:
    return f"{score:.3f}" + ("" if hit_rate is None else f" / {hit_rate:.1%}")


if __name__ == "__main__":
    sys.exit(main())
