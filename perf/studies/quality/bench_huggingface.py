# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure what attention "alspec" in transformers costs beside sdpa, and whether a GPU decides as the CPU does.

Parts: scoring (a whole text in one forward) and decode (steps after a prefill) of a randomly initialised model of a
preset's shape, time and peak memory; decisions of a trained model, on the CPU and on the device, at once and step by
step. Each goes to a CSV file of the output folder.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from loguru import logger

from models.llama31_8b.config import PRESETS, preset
from models.llama31_8b.huggingface import AttentionSpeculation, score
from models.llama31_8b.huggingface import scoring as whole_texts
from models.llama31_8b.huggingface.load import load_transformers
from models.llama31_8b.reference.model.text_attention import text_guess
from perf.lib.tables import Table
from runtime_patches.board.command_line import OneLineParser, run_command

from .inputs import DTYPES, Texts, add_torch_options

ON = ("device", "torch", "transformers", "model", "dtype")
COSTS = ((*ON, "part", "attention", "context"), ("milliseconds", "min", "max", "repeats", "peak_gb", "of_sdpa"))
DECISIONS = (
    (*ON, "text", "context", "threshold", "chunk_size", "against"),
    ("decisions", "different", "hit_rate", "hit_rate_against", "loss_difference"),
)
PARTS = ("scoring", "decode", "decisions")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = OneLineParser(prog="perf.studies.quality.bench_huggingface", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=PARTS)
    add("--preset", choices=PRESETS, default="llama-3.1-8b", help="shape of the random model (llama-3.1-8b)")
    add("--layers", type=int, help="only so many layers of it, for a small machine")
    add("--model", help="trained model for decisions: folder, hub id or .gguf (SmolLM2-135M-Instruct)")
    add("--data", type=Path, help="folder with the book for decisions")
    add("--contexts", type=int, nargs="+", default=(4096, 16384, 32768), help="tokens of a text")
    add("--decision-tokens", type=int, default=2048, help="tokens of the text for decisions")
    add("--steps", type=int, default=32, help="decode steps timed at once")
    add("--repeats", type=int, default=3)
    add("--threshold", type=float, default=0.10)
    add("--chunk-size", type=int, default=128)
    add("--out", type=Path, default=Path("generated/huggingface"), help="folder of the results")
    add_torch_options(add)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 0, 1 where calls failed, or 2 with one line for what cannot be done."""
    args = parse_args(argv)

    def run() -> int:
        failed = costs(args) if {"scoring", "decode"} & set(args.parts) else 0
        if "decisions" in args.parts:
            decisions(args)
        return 1 if failed else 0

    return run_command("perf.studies.quality.bench_huggingface", run, (ValueError,))


def surroundings(args: argparse.Namespace, model: str) -> dict[str, object]:
    """Return the columns ON."""
    import transformers

    cuda = args.torch_device.type == "cuda"
    device = torch.cuda.get_device_name(args.torch_device) if cuda else "cpu"
    return dict(zip(ON, (device, torch.__version__, transformers.__version__, model, args.dtype)))


def random_model(args: argparse.Namespace) -> Any:
    """Return a transformers model of the preset's shape and transformers' own random weights, on the device."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    shape = preset(args.preset) if args.layers is None else preset(args.preset).with_layers(args.layers)
    config = LlamaConfig(**shape.to_hf_dict())
    torch.manual_seed(0)
    with torch.device(args.torch_device):
        return AutoModelForCausalLM.from_config(config, dtype=DTYPES[args.dtype], attn_implementation="alspec").eval()


def timed(call: Callable[[], object], device: torch.device, repeats: int, steps: int) -> dict[str, object]:
    """Return times, per step of the call, and peak memory of a call on a device; one call before is not counted."""

    def finished() -> None:
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    finished()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        finished()
        took.append((time.perf_counter() - start) / steps * 1e3)
    peak = torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None
    return dict(zip(COSTS[1], (statistics.median(took), min(took), max(took), repeats, peak)))


def costs(args: argparse.Namespace) -> int:
    """Fill costs.csv and return how many calls failed, of too little memory say, which does not stop the others."""
    failed, table, model = 0, Table(args.out / "costs.csv", *COSTS), random_model(args)
    name = args.preset if args.layers is None else f"{args.preset} of {args.layers} layers"
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(model.config.vocab_size, (max(args.contexts) + args.steps,), generator=draw)
    speculation = AttentionSpeculation(args.threshold, args.chunk_size).attach(model)
    for context in args.contexts:
        for part, attention, make, steps in calls(model, speculation, ids.to(args.torch_device), context, args.steps):
            key = {**surroundings(args, name), "part": part, "attention": attention, "context": context}
            if part not in args.parts or table.has(key):
                continue
            try:
                found = timed(make(), args.torch_device, args.repeats, steps)
            except RuntimeError as error:
                logger.exception("{} {} {}: {}", part, attention, context, error)
                failed += 1
                continue
            logger.info("{} {} {}: {}", part, attention, context, found)
            table.append([{**key, **found, "of_sdpa": of_sdpa(table, key, found)}])
    return failed


def of_sdpa(table: Table, key: dict[str, object], found: dict[str, object]) -> float | None:
    """Return a call's time over that of sdpa in the same surroundings; None where that failed."""
    if key["attention"] == "sdpa":
        return 1.0
    same = {name: str(value) for name, value in (key | {"attention": "sdpa"}).items()}
    times = [float(row["milliseconds"]) for row in table.rows() if row.items() >= same.items()]
    return float(str(found["milliseconds"])) / times[0] if times else None


def calls(
    model: Any, speculation: AttentionSpeculation, ids: torch.Tensor, context: int, steps: int
) -> Iterator[tuple[str, str, Callable[[], Callable[[], object]], int]]:
    """Yield (part, attention, what makes the call that is timed, steps of the call)."""

    def scoring(guess: Callable | None) -> Callable[[], object]:
        model.set_attn_implementation("sdpa" if guess is None else "alspec")
        return lambda: scored(model, ids[:context], guess)

    def decode(attention: str) -> Callable[[], object]:
        model.set_attn_implementation(attention)
        speculation.reset()
        return decoder(model, ids, context, steps)

    yield "scoring", "sdpa", lambda: scoring(None), 1
    yield "scoring", "alspec, tiles", lambda: scoring(whole_texts.guess_by_tiles), 1
    yield "scoring", "alspec, windows", lambda: scoring(text_guess), 1
    yield "decode", "sdpa", lambda: decode("sdpa"), steps
    yield "decode", "alspec", lambda: decode("alspec"), steps


@torch.inference_mode()
def scored(model: Any, ids: torch.Tensor, guess: Callable | None) -> object:
    """Return a text's losses: by exact attention, or as `score` with this way to the guess."""
    if guess is None:
        whole = torch.ones_like(ids)[None]
        states = model.base_model(input_ids=ids[None], attention_mask=whole, use_cache=False)[0][0]
        return whole_texts.next_tokens(model.get_output_embeddings(), states, ids)
    return score(model, ids, guess)


def decoder(model: Any, ids: torch.Tensor, context: int, steps: int) -> Callable[[], object]:
    """Return what decodes `steps` given tokens after a prefill of context - steps, again at each call."""
    with torch.inference_mode():
        cache = model(input_ids=ids[None, : context - steps], use_cache=True, logits_to_keep=1).past_key_values

    @torch.inference_mode()
    def run() -> object:
        for token in ids[context - steps : context]:
            out = model(input_ids=token[None, None], past_key_values=cache, use_cache=True)
        cache.crop(-steps)
        return out

    return run


def decisions(args: argparse.Namespace) -> None:
    """Fill decisions.csv: a text at once on the device against the CPU and against steps on the device."""
    table, texts = Table(args.out / "decisions.csv", *DECISIONS), Texts(args.data)
    speculation = AttentionSpeculation(args.threshold, args.chunk_size, keep_decisions=True)
    loaded = load_transformers(args.model, DTYPES[args.dtype], args.torch_device, speculation)
    tokens = loaded.tokenizer(texts.book(), add_special_tokens=False)["input_ids"]
    start = len(tokens) // 2 if len(tokens) > 2 * args.decision_tokens else 0
    ids = torch.tensor(tokens[start : start + args.decision_tokens])
    if len(ids) < args.decision_tokens:
        raise ValueError(f"{texts.name} has {len(tokens)} tokens; --decision-tokens {args.decision_tokens}")
    here = score(loaded.model, ids)

    def add(against: str, accepted: torch.Tensor, verified: torch.Tensor, losses: torch.Tensor) -> None:
        assert torch.equal(verified, here.verified), "which positions speculate is no matter of rounding"
        ours, theirs = here.accepted[:, verified], accepted[:, verified]
        key = (*surroundings(args, loaded.name).values(), texts.name, len(ids), args.threshold, args.chunk_size)
        rates = (float(part.double().mean()) for part in (ours, theirs))
        found = (ours.numel(), int((ours != theirs).sum()), *rates, float((losses - here.losses).abs().max()))
        table.append([dict(zip(table.columns, (*key, against, *found), strict=True))])
        logger.info("{}: {} of {} decisions differ", against, found[1], found[0])

    windows = score(loaded.model, ids, text_guess)
    add("windows on the device", windows.accepted, windows.verified, windows.losses)
    add("step by step on the device", *stepwise(loaded.model, speculation, ids.to(args.torch_device)))
    host = load_transformers(args.model, torch.float32, "cpu", AttentionSpeculation(args.threshold, args.chunk_size))
    exact = score(host.model, ids)
    add("at once on the cpu, float32", exact.accepted, exact.verified, exact.losses)


@torch.inference_mode()
def stepwise(
    model: Any, speculation: AttentionSpeculation, ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (accepted [layers, T], verified [T], losses [T - 1]) of a text decoded token by token."""
    speculation.reset()
    cache, losses = None, []
    for index in range(len(ids)):
        out = model(input_ids=ids[None, index : index + 1], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        if index + 1 < len(ids):
            losses.append(torch.nn.functional.cross_entropy(out.logits[0].float(), ids[index + 1 : index + 2]))
    accepted, verified = speculation.decisions()
    return accepted[:, 0], verified[0], torch.stack(losses).cpu()


if __name__ == "__main__":
    sys.exit(main())
