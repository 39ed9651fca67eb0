# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run tasks of the LM Evaluation Harness under an attention policy, with hit rates (ALSpec paper, table 1).

`python -m perf.studies.quality.lm_eval --threshold 0.1 --tasks gsm8k_cot`, for example; on a GPU in batches with
`--torch-device cuda --dtype bfloat16 --batch-size 32`. The model is transformers' own with its attention function
"alspec". Needs `pip install -e perf/studies/quality`. Tasks and data come from the Hugging Face hub, unless
--include-path names a folder with task files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.llama31_8b.reference.alspec.acceptance import check_threshold
from perf.lib.data_file import new_file
from runtime_patches.board.command_line import OneLineParser, run_command

from .inputs import DTYPES, add_torch_options

if TYPE_CHECKING:
    from .harness import Harness

ATTENTIONS = ("exact", "sink", "alspec")


def harness_of(include_path: Path | None) -> Harness:
    """Return the tasks. Raises ImportError that says what to install."""
    try:
        from .harness import Harness
    except ImportError as error:
        raise ImportError(f"{error}: install the study with pip install -e perf/studies/quality") from error
    return Harness(include_path)


def add_harness_options(add: Callable[..., object], batch_size: int) -> None:
    """Add the options of the harness and of the guess by `add`, a parser's add_argument."""
    add("--chunk-size", type=int, default=128, help="tokens the guess reads at either end (128, as in the paper)")
    add("--tail-alignment", type=int, default=32, help="32 as on the device (default), 1 as in the paper")
    add("--batch-size", type=int, default=batch_size, help=f"prompts of a generation ({batch_size})")
    add("--limit", type=int, help="only the first documents of each task")
    add("--chat", action="store_true", help="put prompts in the model's chat template")
    add("--include-path", type=Path, metavar="FOLDER", help="take the tasks of this folder alone")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = OneLineParser(prog="perf.studies.quality.lm_eval", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--tasks", nargs="+", required=True, metavar="NAME", help="tasks of lm-eval, such as gsm8k_cot ifeval")
    add("--model", help="Hugging Face folder or hub id, or .gguf file (default: SmolLM2-135M-Instruct)")
    add("--attention", choices=ATTENTIONS, default="alspec", help="exact, sink (every guess is taken) or alspec")
    add("--threshold", type=float, default=0.10, help="of alspec (0.10)")
    add("--num-fewshot", type=int, help="examples in the prompt (default: the task's)")
    add_harness_options(add, batch_size=1)
    add_torch_options(add)
    add("--json", type=new_file, metavar="FILE", help="write the results there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tasks and print their scores; 0, or 2 with one line for what cannot be done."""
    args = parse_args(argv)
    return run_command("perf.studies.quality.lm_eval", lambda: _main(args), (ImportError, ValueError))


def _main(args: argparse.Namespace) -> int:
    results = run(args)
    for result in results:
        rate = "no guess" if result["hit_rate"] is None else f"{result['hit_rate']:.1%}"
        scores = ", ".join(f"{name} {value:.4g}" for name, value in result["scores"].items())
        print(f"{result['task']}: {scores}; hit rate {rate}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def run(args: argparse.Namespace) -> list[dict]:
    """Return for each task its scores and standard errors by lm-eval's names, hits, misses, bypassed and hit rate.

    Raises ImportError without lm-eval, and ValueError for options out of range and unknown tasks.
    """
    from models.llama31_8b.huggingface import AttentionSpeculation
    from models.llama31_8b.huggingface.load import load_transformers

    threshold = float("inf") if args.attention == "sink" else check_threshold(args.threshold)
    speculation = AttentionSpeculation(threshold, args.chunk_size, args.tail_alignment)
    harness = harness_of(args.include_path)
    if unknown := harness.missing(args.tasks):
        raise ValueError(f"no task {', '.join(map(repr, unknown))} in {args.include_path or 'lm-eval'}")
    loaded = load_transformers(args.model, DTYPES[args.dtype], args.torch_device, speculation)
    options = {"num_fewshot": args.num_fewshot, "limit": args.limit, "apply_chat_template": args.chat}
    exact, results = args.attention == "exact", []
    for task in args.tasks:
        found, lm = harness.run(task, loaded, args.batch_size, exact, **options)
        counts = {name: None if exact else getattr(lm, name) for name in ("hits", "misses", "bypassed", "hit_rate")}
        results += [{"task": name, "scores": scores} | counts for name, scores in found.items()]
    return results


if __name__ == "__main__":
    sys.exit(main())
