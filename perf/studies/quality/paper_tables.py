# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure tables 1 and 2 and figure 3 of the ALSpec paper with your own model, beside the printed figures.

The tables are tasks of the LM Evaluation Harness by its default prompts, under transformers with the attention function
"alspec"; figure 3 is the needles and the acceptance by layer, for which --data names the folder with
the book. A stopped run is continued. Needs `pip install -e perf/studies/quality`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from loguru import logger
from tqdm import tqdm

from models.llama31_8b.reference.alspec.acceptance import check_threshold
from perf.lib.tables import Table
from perf.lib.tables import shown as cell_text
from perf.projection.published import read_rows
from perf.studies.quality.figure3 import figure3
from perf.studies.quality.study import Settings
from perf.studies.quality.texts import Texts
from perf.studies.quality.torch_device import DTYPES, loaded_on, torch_device

PAPER = {"1": "llama-3.1-8b", "2": "llama-3.1-70b"}
FIGURE = "figure3"
THRESHOLDS = (0.0, 0.05, 0.10, 0.15, 0.20, 0.25)
KEY = ("model", "task", "threshold", "chunk_size", "tail_alignment", "limit", "chat", "metric")
VALUES = ("score", "hits", "misses", "bypassed", "requests", "seconds")


class HarnessTask(NamedTuple):
    """Hold lm-eval's name of a task, and the metric that is shown, by lm-eval's "metric,filter".

    The paper does not say which it took, so all metrics of a task are in the results.
    """

    name: str
    metric: str


TASKS = {
    "IFEVAL": HarnessTask("ifeval", "inst_level_strict_acc,none"),
    "GPQA_COT": HarnessTask("gpqa_main_cot_n_shot", "exact_match,flexible-extract"),
    "SWDE": HarnessTask("swde", "contains,none"),
    "FDA": HarnessTask("fda", "contains,none"),
    "GSM8K_COT": HarnessTask("gsm8k_cot", "exact_match,flexible-extract"),
    "MATH": HarnessTask("mmlu_pro_math", "exact_match,custom-extract"),
    "MGSM_COT_SW": HarnessTask("mgsm_native_cot_sw", "exact_match,flexible-extract"),
    "HOTPOTQA": HarnessTask("longbench_hotpotqa", "score,none"),
    "REPOBENCH_P": HarnessTask("longbench_repobench-p", "score,none"),
    "ECON": HarnessTask("mmlu_pro_economics", "exact_match,custom-extract"),
    "BUSINESS": HarnessTask("mmlu_pro_business", "exact_match,custom-extract"),
    "PSYCH": HarnessTask("mmlu_pro_psychology", "exact_match,custom-extract"),
}


@dataclass(frozen=True)
class PaperCell:
    """Hold a printed figure: score and hit rate in [0, 1]."""

    table: str
    task: str
    threshold: float
    score: float
    hit_rate: float


def paper_cells(tables: Sequence[str]) -> list[PaperCell]:
    """Return the figures of tables 1 and 2, perf/data/hit_rates.csv, in their order."""
    return [
        PaperCell(table, row["task"], float(row["threshold"]), float(row["score"]), float(row["hit_rate"]))
        for table in tables
        for row in read_rows("hit_rates.csv")
        if row["model"] == PAPER[table]
    ]


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="perf.studies.quality.paper_tables", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--model", required=True, help="Hugging Face folder or hub id, or .gguf file")
    add("--parts", nargs="+", choices=(*PAPER, FIGURE), default=(*PAPER, FIGURE), help="default: all")
    add("--tasks", nargs="+", choices=TASKS, help="only these tasks of the tables")
    add("--data", type=Path, help="folder with the book for figure 3 (perf/studies/quality/texts.py)")
    add("--context", type=int, default=16384, help="tokens of figure 3's text (16384, as in the paper)")
    add("--thresholds", nargs="+", type=_threshold, default=THRESHOLDS, metavar="X")
    add("--chunk-size", type=int, default=128, help="tokens the guess reads at either end (128)")
    add("--tail-alignment", type=int, default=32, help="32 as on the device (default), 1 as in the paper")
    add(
        "--torch-device",
        type=torch_device,
        metavar="DEVICE",
        help="cpu, cuda or cuda:N (default: cuda where there is one)",
    )
    add("--dtype", choices=DTYPES, default="bfloat16", help="of weights and activations (bfloat16)")
    add("--batch-size", type=int, default=16, help="prompts of a generation (16)")
    add("--limit", type=int, help="only the first documents of each task")
    add("--chat", action="store_true", help="put prompts in the model's chat template")
    add("--include-path", type=Path, metavar="FOLDER", help="take the tasks of this folder alone")
    add("--out", type=Path, default=Path("generated/paper_tables"), help="folder of the results")
    args = parser.parse_args(argv)
    if FIGURE in args.parts and args.data is None:
        parser.error(f"{FIGURE} needs --data with the book; without it: --parts {' '.join(PAPER)}")
    if args.torch_device is None:
        args.torch_device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return args


def _threshold(text: str) -> float:
    try:
        return check_threshold(float(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a number >= 0 or inf, got {text!r}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is missing and print; 0, or 2 with one line for what cannot be done."""
    args = parse_args(argv)
    logger.info("on {}, {}", args.torch_device, args.dtype)
    tables = [part for part in args.parts if part in PAPER]
    try:
        if tables:
            table, missing = fill_tables(args, tables)
            for number in tables:
                print(shown(number, table, args, missing))
        if FIGURE in args.parts:
            with loaded_on(args.torch_device, args.dtype, args.model) as loaded:
                print(figure3(loaded, Texts(args.data), settings_of(args)))
    except (ImportError, ValueError, OSError) as error:
        print(f"perf.studies.quality.paper_tables: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings of figure 3: one text, ten needles, and unverified guesses beside the thresholds."""
    return Settings(
        out=args.out,
        thresholds=(*args.thresholds, float("inf")),
        chunk_sizes=(args.chunk_size,),
        contexts=(args.context,),
        tail_alignment=args.tail_alignment,
        short_tail=False,
        windows=1,
        questions=1,
        hashes=7,
        new_tokens=1,
        seed=0,
    )


class Remaining:
    """Estimates the time that is left from what requests of the same task, else of all tasks, took so far."""

    def __init__(self, requests: Mapping[str, int]) -> None:
        self.requests = requests
        self._spent: dict[str, tuple[float, int]] = {}

    def add(self, task: str, seconds: float, requests: int) -> None:
        spent, count = self._spent.get(task, (0.0, 0))
        self._spent[task] = spent + seconds, count + requests

    def seconds(self, tasks: Sequence[str]) -> float | None:
        """Return the seconds of one more run of each of these; None before anything was measured."""
        total, count = (sum(part) for part in zip(*self._spent.values())) if self._spent else (0.0, 0)
        if not count:
            return None
        rates = {task: spent / number for task, (spent, number) in self._spent.items() if number}
        return sum(self.requests[task] * rates.get(task, total / count) for task in tasks)


def duration(seconds: float | None) -> str:
    """Return it as a reader takes it: '2 h 05 min', '12 min', '40 s'."""
    if seconds is None:
        return "unknown until the first is done"
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def fill_tables(args: argparse.Namespace, tables: Sequence[str]) -> tuple[Table, dict[str, str]]:
    """Run what the results lack; return them, and why each task that is missing cannot be run here."""
    try:
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager, get_task_dict
    except ImportError as error:
        raise ImportError(f"{error}: install lm-eval with pip install -e perf/studies/quality") from error
    from models.llama31_8b.huggingface import ATTENTION_NAME, AttentionSpeculation
    from models.llama31_8b.huggingface.load import load_transformers
    from perf.studies.quality.transformers_harness import SpeculatingLM

    wanted = [task for task in TASKS if any(task == cell.task for cell in paper_cells(tables))]
    wanted = [task for task in wanted if args.tasks is None or task in args.tasks]
    own = None if args.include_path is None else str(args.include_path)
    manager = TaskManager(include_path=own, include_defaults=own is None)
    requests, missing = available(wanted, manager, get_task_dict, args.limit)
    for task, why in missing.items():
        logger.warning("{} ({}) cannot be run: {}", task, TASKS[task].name, why)
    table = Table(args.out / "tables.csv", KEY, VALUES)
    cells = [(task, threshold) for task in requests for threshold in args.thresholds]
    todo = [cell for cell in cells if not table.has(_key(args, *cell))]
    if not todo:
        return table, missing
    loaded = load_transformers(args.model, DTYPES[args.dtype], args.torch_device)
    remaining = Remaining(requests)
    for row in table.rows():
        known = next((task for task in requests if TASKS[task].name == row["task"]), None)
        if known is not None and row["metric"] == TASKS[known].metric:
            remaining.add(known, float(row["seconds"]), int(row["requests"]))
    with tqdm(total=sum(requests[task] for task, _ in todo), desc="requests", unit="request") as bar:
        while todo:
            task, threshold = todo[0]
            left = duration(remaining.seconds([name for name, _ in todo]))
            bar.set_postfix_str(f"{task} at {threshold:g}, left: {left}")
            logger.info("{} at threshold {:g}; {} runs to go, left: {}", task, threshold, len(todo), left)
            loaded.model.set_attn_implementation(ATTENTION_NAME)
            AttentionSpeculation(threshold, args.chunk_size, args.tail_alignment).attach(loaded.model)
            lm = SpeculatingLM(with_settings(loaded), args.batch_size, exact=threshold == 0)
            start = time.perf_counter()
            report = simple_evaluate(
                model=lm,
                tasks=[TASKS[task].name],
                task_manager=manager,
                limit=args.limit,
                apply_chat_template=args.chat,
                log_samples=False,
            )
            seconds = round(time.perf_counter() - start, 1)
            table.append(list(_rows(args, task, threshold, report, lm, requests[task], seconds)))
            remaining.add(task, seconds, requests[task])
            bar.update(requests[task])
            todo.pop(0)
    return table, missing


def with_settings(loaded: Any) -> Any:
    """Return the loaded model with the settings that are attached to it now."""
    from models.llama31_8b.huggingface import speculation_of

    return loaded._replace(speculation=speculation_of(loaded.model))


def available(
    tasks: Sequence[str], manager: Any, load: Callable[[list[str], Any], dict], limit: int | None
) -> tuple[dict[str, int], dict[str, str]]:
    """Return (requests of each task whose data can be had, why not for the others)."""
    requests, missing = {}, {}
    for task in tasks:
        name = TASKS[task].name
        if not manager.match_tasks([name]):
            missing[task] = "the harness has no such task"
            continue
        try:
            count = len(list(load([name], manager)[name].eval_docs))
        except Exception as error:  # gated data, no network, a missing package: datasets has errors of its own
            missing[task] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            continue
        requests[task] = count if limit is None else min(count, limit)
    return requests, missing


def _key(args: argparse.Namespace, task: str, threshold: float) -> dict[str, object]:
    """Return the key columns but `metric`, of which a run has several."""
    name = Path(args.model).stem if args.model.endswith(".gguf") else Path(args.model).name
    values = (
        f"{name} {args.dtype}",
        TASKS[task].name,
        threshold,
        args.chunk_size,
        args.tail_alignment,
        args.limit,
        int(args.chat),
    )
    return dict(zip(KEY, values))


def _rows(
    args: argparse.Namespace,
    task: str,
    threshold: float,
    report: dict,
    lm: Any,
    requests: int,
    seconds: float,
) -> Iterator[dict[str, object]]:
    """Yield one row per metric; standard errors are metrics too."""
    scores = report["results"][TASKS[task].name]
    for metric, value in scores.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and metric != "sample_len":
            yield {
                **_key(args, task, threshold),
                "metric": metric,
                "score": float(value),
                "hits": lm.hits,
                "misses": lm.misses,
                "bypassed": lm.bypassed,
                "requests": requests,
                "seconds": seconds,
            }


def shown(number: str, table: Table, args: argparse.Namespace, missing: Mapping[str, str]) -> str:
    """Return a table of the paper in Markdown: for each task and threshold the printed score / hit rate and ours."""
    rows = table.rows()
    header = f"Table {number} ({PAPER[number]}) beside {_key(args, 'SWDE', 0)['model']}"
    lines = [header, "", "| task (metric) | threshold | paper | here |", "|---|---:|---:|---:|"]
    for cell in paper_cells([number]):
        harness = TASKS[cell.task]
        if cell.threshold not in args.thresholds or (args.tasks and cell.task not in args.tasks):
            continue
        key = {name: cell_text(value) for name, value in _key(args, cell.task, cell.threshold).items()}
        ours = [row for row in rows if row["metric"] == harness.metric and row.items() >= key.items()]
        here = "not run: " + missing[cell.task] if cell.task in missing else "not run"
        if ours:
            verified = int(ours[0]["hits"]) + int(ours[0]["misses"])
            rate = int(ours[0]["hits"]) / verified if verified else None
            here = _pair(float(ours[0]["score"]), rate)
        paper = _pair(cell.score, cell.hit_rate if cell.threshold else None)
        lines.append(f"| {cell.task} ({harness.metric}) | {cell.threshold:g} | {paper} | {here} |")
    return "\n".join(lines) + "\n"


def _pair(score: float, hit_rate: float | None) -> str:
    return f"{score:.3f}" + ("" if hit_rate is None else f" / {hit_rate:.1%}")


if __name__ == "__main__":
    sys.exit(main())
