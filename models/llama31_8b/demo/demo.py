# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The demo: stream text for a prompt, or chat, and report how often attention-level speculation hit.

`python -m models.llama31_8b.demo --help`; exit codes: 0 done, 2 a request that cannot be met (one line says
why), 130 interrupted.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from loguru import logger
from tqdm import tqdm

from .board import choose_device
from .options import AUTO, DemoOptions, UserError, parse

if TYPE_CHECKING:
    from models.llama31_8b.reference.alspec.policies import AttentionPolicy
    from models.llama31_8b.reference.model.kv_cache import KVCache
    from models.llama31_8b.reference.token_speculation.drafter import Drafter
    from models.llama31_8b.results import GenerationResult

    from ..weights import LoadedModel
    from .report import RunReport


def main(argv: list[str] | None = None) -> int:
    """Run the demo with these arguments (default: the command line's); returns the exit code."""
    logger.remove()
    logger.add(sys.stderr, format="<dim>{message}</dim>", level="INFO")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in a terminal without UTF-8 an emoji must not end the run
            stream.reconfigure(errors="replace")
    try:
        return _run(parse(argv))
    except BrokenPipeError:
        # The reader went away (`| head`): the interpreter must not flush into the closed pipe at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, OSError) as error:
        return _fail(error)  # of the system: a model's files, a cache where none can be, a full disk
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _run(options: DemoOptions) -> int:
    if options.device == AUTO:
        device, why = choose_device()
        logger.info("--device {}: {}", device, why)
        options = replace(options, device=device)
    if options.device == "sim":
        from .simulated import run as run_simulated

        return run_simulated(options)
    text = options.prompt_text()
    # Torch takes seconds to import: nothing above needs it but the option values.
    from models.llama31_8b.errors import ContextLengthError

    from ..config import UnsupportedModelError
    from ..errors import ModelLoadError
    from ..weights import load_model

    try:
        if options.device == "n150":
            from .board import run as run_on_boards

            return run_on_boards(options, text)
        loaded = load_model(options.model, max_context=options.max_context)
        policy = make_policy(loaded, options)
        if text is None:
            from .chat import chat

            return chat(loaded, options, policy)
        ids = encode_prompt(loaded, options, text)
        return run_once(loaded, options, policy, ids)
    except (ModelLoadError, UnsupportedModelError, ContextLengthError) as error:
        return _fail(error)


def run_once(loaded: LoadedModel, options: DemoOptions, policy: AttentionPolicy, ids: list[int]) -> int:
    """Generate once for the prompt `ids` and print text and report, or the JSON object."""
    from .drafting import make_drafter

    drafter = make_drafter(loaded, options)
    logger.info(
        "{}: {} prompt tokens, {} attention{}",
        loaded.source,
        len(ids),
        options.attention,
        "" if drafter is None else f", {options.drafter} drafts",
    )
    printer = TextPrinter(loaded, None if options.json else sys.stdout)
    result = generate_text(loaded, options, policy, ids, on_token=printer.push, drafter=drafter)
    printer.finish()
    return show_result(loaded, options, policy, ids, result)


def show_result(
    loaded: LoadedModel,
    options: DemoOptions,
    policy: AttentionPolicy,
    ids: list[int],
    result: GenerationResult,
    warm_up: tuple[int, float] | None = None,
) -> int:
    """Print the report of one text behind the prompt `ids`, or with --json the object; exit code 0.

    warm_up: of a run that compiled its programs, the first decode steps that did, and their seconds.
    """
    from .report import print_report

    report = make_report(loaded, options, policy, [result], context=len(ids) + len(result.token_ids[0]))
    if warm_up is not None:
        report = replace(report, warm_up_tokens=warm_up[0], warm_up_seconds=warm_up[1])
    if options.json:
        print(json.dumps(to_json(loaded, options, result, report), ensure_ascii=False, allow_nan=False))
        return 0
    from rich.console import Console

    print_report(report, Console(file=sys.stdout, highlight=False))
    return 0


def generate_text(
    loaded: LoadedModel,
    options: DemoOptions,
    policy: AttentionPolicy,
    ids: Sequence[int],
    on_token: Callable[[int], None],
    cache: KVCache | None = None,
    context: Sequence[int] = (),
    drafter: Drafter | None = None,
) -> GenerationResult:
    """One user's text after the prompt `ids`, behind what `cache` holds; prefill progress on stderr."""
    from models.llama31_8b.reference.token_speculation.generate import speculative_generate

    from ..reference.generate import generate

    bar = tqdm(
        total=len(ids),
        desc="prefill",
        unit="token",
        file=sys.stderr,
        leave=False,
        disable=not sys.stderr.isatty(),
    )

    def prefilled(done: int, total: int) -> None:
        bar.update(done - bar.n)
        if done == total:
            bar.close()

    request = {
        "max_new_tokens": options.max_new_tokens,
        "sampling": options.sampling(),
        "policy": policy,
        "eos_token_ids": loaded.tokenizer.eos_token_ids,
        "on_token": token_callback(loaded, options, on_token),
        "on_prefill": prefilled,
        "cache": cache,
    }
    try:
        if drafter is None:
            return generate(loaded.model, [list(ids)], **request)
        return speculative_generate(
            loaded.model,
            [list(ids)],
            drafter,
            adaptive=options.adapt,
            lossy=options.lossy(),
            context=None if cache is None else [list(context)],
            **request,
        )
    finally:
        bar.close()


def token_callback(
    loaded: LoadedModel, options: DemoOptions, on_token: Callable[[int], None]
) -> Callable[[int, int], bool]:
    """A generator's callback: `on_token`, and True where the text reaches a string of --stop."""
    from models.llama31_8b.stop_strings import StopStrings

    stops = StopStrings(options.stop, loaded.tokenizer.stream) if options.stop else None

    def produced(user: int, token: int) -> bool:
        on_token(token)
        return stops is not None and stops(user, token)

    return produced


class TextPrinter:
    """Writes tokens to a stream as whole characters, as they come. Ends of turn are not shown."""

    def __init__(self, loaded: LoadedModel, stream: TextIO | None) -> None:
        self._decoder = loaded.tokenizer.stream()
        self._stream = stream
        # A model can write escape sequences; a terminal must not obey them.
        self._plain = stream is not None and stream.isatty()
        self._last = "\n"

    def push(self, token: int) -> None:
        self._write(self._decoder.push(token))

    def finish(self) -> None:
        """Write what is held back, and a line end if there is none."""
        self._write(self._decoder.flush())
        if self._stream is not None and not self._last.endswith("\n"):
            self._write("\n")

    def _write(self, text: str) -> None:
        if self._stream is None or not text:
            return
        self._last = text
        if self._plain:
            text = "".join(c for c in text if c in "\n\t" or c.isprintable() or c in "\u200d\ufe0f")
        self._stream.write(text)
        self._stream.flush()


def encode_prompt(loaded: LoadedModel, options: DemoOptions, text: str) -> list[int]:
    """The prompt's ids, in the chat template unless there is none or --raw was given.

    Raises UserError for a prompt that has no tokens, or is longer than the context.
    """
    tokenizer = loaded.tokenizer
    if options.chat_template and tokenizer.chat_template:
        try:
            ids = tokenizer.apply_chat_template([{"role": "user", "content": text}])
        except ValueError as error:
            raise UserError(f"{error}; --raw continues the prompt as plain text") from error
    else:
        if options.chat_template:
            logger.info("{} has no chat template: continuing the prompt as plain text", loaded.source)
        ids = tokenizer.encode(text)
    limit = loaded.config.max_position_embeddings
    if not ids:
        raise UserError("the prompt is empty: it has no tokens")
    if len(ids) > limit:
        raise UserError(f"the prompt has {len(ids)} tokens, the context of {loaded.source} is {limit}")
    return ids


def make_policy(loaded: LoadedModel, options: DemoOptions) -> AttentionPolicy:
    """The attention policy, with static layers checked against the model or found by calibration."""
    if options.attention != "static":
        return options.policy()
    if options.static_layers == AUTO:
        from .calibration import calibrated_layers

        logger.info("choosing static layers by a calibration run")
        layers = calibrated_layers(loaded, options)
    else:
        layers = options.static_layer_set()
        beyond = [layer for layer in sorted(layers) if layer >= loaded.config.num_hidden_layers]
        if beyond:
            raise UserError(
                f"--static-layers names layer {beyond[0]}, but {loaded.source} has layers 0 to "
                f"{loaded.config.num_hidden_layers - 1}"
            )
    logger.info("static layers: {}", ", ".join(map(str, sorted(layers))) or "none")
    return options.policy(layers)


def make_report(
    loaded: LoadedModel,
    options: DemoOptions,
    policy: AttentionPolicy,
    results: Sequence[GenerationResult],
    context: int,
) -> RunReport:
    """Sum up the runs made with `policy`."""
    from .drafting import speculation_report
    from .report import RunReport

    statistics = policy.statistics
    return RunReport(
        model=loaded.source,
        attention=options.attention,
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
        bypassed=statistics.bypassed_positions if statistics else 0,
        hit_rate=statistics.hit_rate if statistics else None,
        hit_rate_per_layer=statistics.hit_rate_per_layer if statistics else [],
        speculation=speculation_report(options, results),
    )


def to_json(
    loaded: LoadedModel, options: DemoOptions, result: GenerationResult, report: RunReport
) -> dict[str, Any]:
    """The object --json prints. `text` leaves out special tokens, `token_ids` holds every generated id.

    An infinite threshold is written as the string "inf": JSON has no number for it.
    """
    used = options.to_dict()
    used["threshold"] = "inf" if options.threshold == float("inf") else options.threshold
    return {
        "model": loaded.source,
        "text": loaded.tokenizer.decode(result.token_ids[0]),
        "token_ids": result.token_ids[0],
        # The callback that ends a text is the one of --stop.
        "finish_reason": "stop" if result.finish_reason[0] == "callback" else result.finish_reason[0],
        **report.to_dict(),
        "options": used,
    }


def _fail(error: Exception) -> int:
    print(f"llama-alspec: error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
