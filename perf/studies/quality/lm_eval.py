# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run tasks of the LM Evaluation Harness under an attention policy, with hit rates (ALSpec paper, table 1).

`python -m perf.studies.quality.lm_eval --threshold 0.1 --tasks gsm8k_cot`, for example. With --torch-device
the model is transformers' own, in batches: `--torch-device cuda --dtype bfloat16 --batch-size 32`. Without it the
reference runs on the CPU, one request at a time.

Needs `pip install -e perf/studies/quality`. Tasks and data come from the Hugging Face hub, unless --include-path names
a folder with task files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loguru import logger

from models.llama31_8b.checkpoint.load import load_model
from models.llama31_8b.demo.options import ATTENTIONS, DemoOptions, UserError
from models.llama31_8b.reference.alspec import policies
from models.llama31_8b.reference.alspec.acceptance import check_threshold
from perf.lib.files import new_file
from perf.studies.quality.torch_device import DTYPES, torch_device


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="perf.studies.quality.lm_eval", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--tasks", nargs="+", required=True, metavar="NAME", help="tasks of lm-eval, such as gsm8k_cot ifeval")
    add("--model", help="Hugging Face folder or hub id, or .gguf file (default: SmolLM2-135M-Instruct)")
    add("--attention", choices=ATTENTIONS, default="alspec", help="the policy (alspec)")
    add("--threshold", type=float, default=0.10, help="of alspec (0.10)")
    add(
        "--chunk-size",
        type=int,
        default=128,
        help="tokens the guess reads at either end (128, as in the paper)",
    )
    add("--tail-alignment", type=int, default=32, help="32 as on the device (default), 1 as in the paper")
    add("--static-layers", help="layers of --attention static, such as 0,4,10-12")
    add("--include-path", type=Path, metavar="FOLDER", help="take the tasks of this folder alone")
    add("--num-fewshot", type=int, help="examples in the prompt (default: the task's)")
    add("--limit", type=int, help="only the first documents of each task")
    add(
        "--torch-device",
        type=torch_device,
        metavar="DEVICE",
        help="transformers' model, on cpu, cuda or cuda:N",
    )
    add("--dtype", choices=DTYPES, help="with --torch-device: of weights and activations (float32)")
    add("--batch-size", type=int, help="with --torch-device: prompts of a generation (1)")
    add("--chat", action="store_true", help="put prompts in the model's chat template")
    add("--json", type=new_file, metavar="FILE", help="write the results there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tasks and print their scores; 0, or 2 with one line for what cannot be done."""
    args = parse_args(argv)
    try:
        results = run(args)
    except (ImportError, UserError, ValueError, OSError, KeyError) as error:
        print(f"perf.studies.quality.lm_eval: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    for result in results:
        rate = "no guess" if result["hit_rate"] is None else f"{result['hit_rate']:.1%}"
        scores = ", ".join(f"{name} {value:.4g}" for name, value in result["scores"].items())
        print(f"{result['task']}: {scores}; hit rate {rate}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def policy(args: argparse.Namespace) -> policies.AttentionPolicy:
    """Return a new attention policy. Raises UserError and ValueError."""
    if args.attention == "alspec":
        return policies.ALSpecAttention(args.threshold, args.chunk_size, args.tail_alignment)
    if args.attention == "static":
        layers = DemoOptions(static_layers=args.static_layers).static_layer_set()
        return policies.StaticAttention(args.chunk_size, layers, args.tail_alignment)
    kind = policies.ExactAttention if args.attention == "exact" else policies.SinkAttention
    return kind(args.chunk_size, args.tail_alignment)


def run(args: argparse.Namespace) -> list[dict]:
    """Return for each task its scores and standard errors by lm-eval's names, hits, misses, bypassed and hit rate.

    Raises ImportError without lm-eval, UserError and ValueError for options and tasks that make no sense.
    """
    try:
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise ImportError(f"{error}: install lm-eval with pip install -e perf/studies/quality") from error
    from perf.studies.quality.harness import PolicyLM

    if args.torch_device is None and (args.dtype is not None or args.batch_size is not None):
        raise UserError("--dtype and --batch-size go with --torch-device")
    if args.torch_device is not None and args.attention == "static":
        raise UserError("--attention static is the reference's: leave out --torch-device")
    if (args.static_layers is None) == (args.attention == "static"):
        raise UserError("--attention static and --static-layers go together")
    check_threshold(args.threshold)
    policy(args)  # refuses what makes no sense before tasks are read
    # lm-eval reads some thousand task files, which takes half a minute: not where the tasks are the user's own.
    own = None if args.include_path is None else str(args.include_path)
    manager = TaskManager(include_path=own, include_defaults=own is None)
    unknown = [name for name in args.tasks if not manager.match_tasks([name])]
    if unknown:
        raise UserError(f"no task {', '.join(map(repr, unknown))} in {own or 'lm-eval'}")
    make: Callable[[], Any]
    if args.torch_device is not None:
        make = _batched(args)
    else:
        loaded = load_model(args.model)

        def make() -> PolicyLM:
            return PolicyLM(loaded, policy(args))

    results = []
    for task in args.tasks:
        model = make()
        report = simple_evaluate(
            model=model,
            tasks=[task],
            task_manager=manager,
            num_fewshot=args.num_fewshot,
            limit=args.limit,
            apply_chat_template=args.chat,
            log_samples=False,
        )
        for name, scores in report["results"].items():
            results.append({"task": name, **_figures(scores, model)})
        if isinstance(model, PolicyLM):
            logger.info("{}: {} contexts cut", task, model.cut)
    return results


def _batched(args: argparse.Namespace) -> Callable[[], Any]:
    """Return what makes the model of a task, its counts at 0: transformers' in batches, loaded once."""
    from models.llama31_8b.huggingface import AttentionSpeculation
    from models.llama31_8b.huggingface.load import load_transformers
    from perf.studies.quality.transformers_harness import SpeculatingLM

    threshold = float("inf") if args.attention == "sink" else args.threshold
    speculation = AttentionSpeculation(threshold, args.chunk_size, args.tail_alignment)
    dtype = DTYPES[args.dtype or "float32"]
    loaded = load_transformers(args.model, dtype, args.torch_device, speculation)
    return lambda: SpeculatingLM(loaded, args.batch_size or 1, exact=args.attention == "exact")


def _figures(scores: dict, model) -> dict:
    """Return lm-eval's scores, and the counts of the policy (None for one without speculation)."""
    if hasattr(model, "policy"):
        statistics = model.policy.statistics
    else:
        statistics = None if model.exact else model
    numbers = {
        name: float(value)
        for name, value in scores.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "sample_len"
    }
    counted = ("hits", "misses", "bypassed", "hit_rate")
    return {"scores": numbers} | {name: None if statistics is None else getattr(statistics, name) for name in counted}


if __name__ == "__main__":
    sys.exit(main())
