# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Time the torch reference on this machine, against transformers and by attention policy.

Two comparisons, each in one run and turn by turn (A B, B A, ...) so that a busy machine slows both sides
alike; what counts is the median of the ratios of neighbouring turns, not the tokens/s beside it:
- greedy decoding by the reference against transformers' `generate`, same weights, prompt and float32;
- ALSpec and the sink policy against exact attention at a given number of cached tokens, one token a turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Callable, Mapping, Sequence

import torch
from loguru import logger

from models.llama31_8b.checkpoint.load import LoadedModel, load_model, resolve_source
from models.llama31_8b.reference.alspec.policies import (
    ALSpecAttention,
    AttentionPolicy,
    ExactAttention,
    SinkAttention,
)
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.model import ReferenceLlama
from perf.lib.data_file import add_write_option, write

TRANSFORMERS_TARGET = 1.2  # times the decode speed of transformers' generate
ALSPEC_TARGET = 1.10  # times the time of exact attention, at most
WARM_UP = 2  # turns not counted

PROMPT = (
    "The harbour master kept two books. In the first he wrote every ship that came in with the tide, her "
    "captain, her cargo and the depth of water under her keel; in the second, which nobody had asked for, he "
    "wrote what the sailors said of the places they had seen. By the winter of the great storm the second "
    "book was thicker than the first, and when the council came to inspect his work they found him reading "
    "it aloud to the gulls. "
)


def interleave(turns: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds per token of every contestant, `rounds` times, the order reversed from round to round."""
    times: dict[str, list[float]] = {name: [] for name in turns}
    for index in range(rounds):
        names = list(turns) if index % 2 == 0 else list(turns)[::-1]
        for name in names:
            times[name].append(turns[name]())
    return times


def median_ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """Return the median over rounds of the time of `name` over that of `base`."""
    return statistics.median(a / b for a, b in zip(times[name], times[base]))


class _TokenClock:
    """A transformers streamer that keeps the time of each token; the prompt is its first call."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Part of the streamer protocol; nothing is buffered here."""


def bench_transformers(loaded: LoadedModel, source: str | None, prompt: list[int], tokens: int, rounds: int) -> dict:
    """Compare the reference with transformers: decode seconds per token, their ratio, and whether the tokens agree."""
    from transformers import AutoModelForCausalLM

    folder, _ = resolve_source(source)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    theirs.generation_config.eos_token_id = None
    ids = torch.tensor([prompt])
    produced: dict[str, list[int]] = {}

    def run_theirs() -> float:
        clock = _TokenClock()
        with torch.inference_mode():
            out = theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
                streamer=clock,
            )
        produced["transformers"] = out[0, len(prompt) :].tolist()
        return (clock.times[-1] - clock.times[1]) / (len(clock.times) - 2)

    def run_ours() -> float:
        result = generate(loaded.model, [prompt], max_new_tokens=tokens, eos_token_ids=())
        produced["reference"] = result.token_ids[0]
        return result.decode_seconds / result.decode_tokens

    turns = {"reference": run_ours, "transformers": run_theirs}
    interleave(turns, 1)  # warm up
    times = interleave(turns, rounds)
    speedup = 1 / median_ratio(times, "reference", "transformers")
    return {
        "prompt_tokens": len(prompt),
        "new_tokens": tokens,
        "reference_tokens_per_s": 1 / statistics.median(times["reference"]),
        "transformers_tokens_per_s": 1 / statistics.median(times["transformers"]),
        "speedup": speedup,
        "target": TRANSFORMERS_TARGET,
        "met": speedup >= TRANSFORMERS_TARGET,
        "greedy_tokens_agree": produced["reference"] == produced["transformers"],
    }


def bench_policies(model: ReferenceLlama, prompt: list[int], tokens: int, chunk_size: int, threshold: float) -> dict:
    """Compare ALSpec and sink with exact attention after `prompt`, one token per turn: speeds and ratios."""
    prefilled = model.new_cache(1, len(prompt) + tokens + WARM_UP)
    first = model.prefill([prompt], prefilled).argmax(-1, keepdim=True)
    alspec = ALSpecAttention(threshold, chunk_size)
    policies: dict[str, AttentionPolicy] = {
        "exact": ExactAttention(chunk_size),
        "alspec": alspec,
        "sink": SinkAttention(chunk_size),
    }
    caches = {name: prefilled.clone() for name in policies}
    last = {name: first for name in policies}

    def step(name: str) -> float:
        start = time.perf_counter()
        logits = model.forward(last[name], caches[name], policy=policies[name])
        last[name] = logits[:, 0].argmax(-1, keepdim=True)
        return time.perf_counter() - start

    turns = {name: partial(step, name) for name in policies}
    interleave(turns, WARM_UP)
    alspec.statistics.reset()
    times = interleave(turns, tokens)
    ratio = median_ratio(times, "alspec", "exact")
    return {
        "cached_tokens": len(prompt),
        "new_tokens": tokens,
        "chunk_size": chunk_size,
        "threshold": threshold,
        "hit_rate": alspec.statistics.hit_rate,
        **{f"{name}_tokens_per_s": 1 / statistics.median(times[name]) for name in policies},
        "alspec_time_over_exact": ratio,
        "sink_time_over_exact": median_ratio(times, "sink", "exact"),
        "target": ALSPEC_TARGET,
        "met": ratio <= ALSPEC_TARGET,
    }


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perf.cpu.bench_reference", description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="Hugging Face folder or hub id, or .gguf file (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--text", type=Path, help="file whose text is the prompt (default: a paragraph, repeated)")
    parser.add_argument("--new-tokens", type=_positive, default=64, help="tokens a turn against transformers (64)")
    parser.add_argument("--prompt-tokens", type=_positive, default=64, help="prompt length against transformers (64)")
    parser.add_argument("--cached-tokens", type=_positive, default=2048, help="context of the policies (2048)")
    parser.add_argument("--policy-tokens", type=_positive, default=96, help="turns of each policy (96)")
    parser.add_argument("--rounds", type=_positive, default=9, help="turns against transformers (9)")
    parser.add_argument("--chunk-size", type=_positive, default=128, help="S, keys read at either end (128)")
    parser.add_argument("--threshold", type=float, default=0.10, help="lambda of the verification (0.10)")
    parser.add_argument("--threads", type=_positive, help="torch threads (default: torch's choice)")
    parser.add_argument("--skip-transformers", action="store_true", help="only compare the policies")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_write_option(parser)
    return parser


def prompt_ids(loaded: LoadedModel, text: Path | None, count: int) -> list[int]:
    """Return the first `count` ids of the text, repeated if it is shorter. Raises ValueError for an empty text."""
    ids = loaded.tokenizer.encode(text.read_text(encoding="utf-8") if text else PROMPT)
    if not ids:
        raise ValueError(f"{text} holds no tokens")
    return (ids * (count // len(ids) + 1))[:count]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; 0 when all targets are met and the greedy tokens agree, else 1."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    loaded = load_model(args.model)
    report: dict = {"model": loaded.source, "threads": torch.get_num_threads(), "rounds": args.rounds}
    if not args.skip_transformers:
        logger.info("decoding turn by turn with transformers")
        prompt = prompt_ids(loaded, args.text, args.prompt_tokens)
        report["transformers"] = bench_transformers(loaded, args.model, prompt, args.new_tokens, args.rounds)
    logger.info("attention policies turn by turn after {} cached tokens", args.cached_tokens)
    prompt = prompt_ids(loaded, args.text, args.cached_tokens)
    report["policies"] = bench_policies(loaded.model, prompt, args.policy_tokens, args.chunk_size, args.threshold)
    if args.json:
        print(json.dumps(report))
    else:
        print_report(report)
    if args.write:
        parts = [{"part": name, **report[name]} for name in ("transformers", "policies") if name in report]
        write(args.write, parser, argv, parts, model=report["model"], threads=report["threads"])
    passed = report["policies"]["met"]
    if "transformers" in report:
        passed = passed and report["transformers"]["met"] and report["transformers"]["greedy_tokens_agree"]
    return 0 if passed else 1


def print_report(report: dict) -> None:
    """Print the report for people; ratios are medians over the turns of one run."""
    print(f"{report['model']}, float32, {report['threads']} threads")
    if "transformers" in report:
        r = report["transformers"]
        tokens = f"{r['prompt_tokens']} prompt + {r['new_tokens']} new tokens"
        print(f"decode, {tokens}, {report['rounds']} turns each:")
        print(f"  reference    {r['reference_tokens_per_s']:7.2f} tokens/s")
        print(f"  transformers {r['transformers_tokens_per_s']:7.2f} tokens/s")
        print(f"  ratio        {r['speedup']:7.2f}x  target at least {r['target']}x: {_verdict(r['met'])}")
        print(f"  greedy tokens {'agree' if r['greedy_tokens_agree'] else 'DIFFER'}")
    r = report["policies"]
    rate = "nothing verified" if r["hit_rate"] is None else f"{r['hit_rate']:.1%} hits"
    print(f"decode at {r['cached_tokens']} cached tokens, S {r['chunk_size']}, threshold {r['threshold']} ({rate}):")
    for name in ("exact", "alspec", "sink"):
        print(f"  {name:12s} {r[f'{name}_tokens_per_s']:7.2f} tokens/s")
    cost = r["alspec_time_over_exact"]
    print(f"  alspec/exact {cost:7.3f}x time  target at most {r['target']:.2f}x: {_verdict(r['met'])}")
    print(f"  sink/exact   {r['sink_time_over_exact']:7.3f}x time")


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
