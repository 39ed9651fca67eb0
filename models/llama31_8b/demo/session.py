# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A model that writes texts, on any backend: for some prompts, or in a chat over one key/value cache, whose turns
prefill only what the conversation added."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loguru import logger
from rich.markup import escape
from tqdm import tqdm

from ..config import ChatTemplateError, ContextLengthError
from .options import DemoOptions, UserError, utf8
from .report import ReportConsole, RunReport, print_report, show_result
from .text import EndAtToken, TextPrinter, TextsPrinter

if TYPE_CHECKING:
    from ..checkpoint.load import Checkpoint
    from ..generation.request import TokenCallback
    from ..results import GenerationResult
    from ..spec_decode.loop import Generator

HELP = "/exit ends, /reset starts anew, /report shows figures; Ctrl-C stops a reply"


class PrefillBar(tqdm):
    """Progress of prompts, in a terminal: tokens, tokens/s and the time that is left."""

    def __init__(self) -> None:
        super().__init__(desc="prefill", unit="token", file=sys.stderr, leave=False, disable=None)

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of the prompts' `total` tokens are cached."""
        self.total, self.n = total, done
        self.refresh()
        if done == total:
            self.close()


@dataclass
class Session:
    """A loaded model and what is asked of it, on any backend.

    checkpoint: the model's. generator: its loop. capacity: tokens that a prompt, what is cached before it, and its text
    may take. threads: of torch, None where it does not run the model. expected: what to say of the time that prompts
    will take, by their tokens and those cached before each.
    """

    checkpoint: Checkpoint
    options: DemoOptions
    generator: Generator
    capacity: int
    threads: int | None = None
    expected: Callable[[Sequence[int], Sequence[int]], str | None] = lambda prompts, cached: None

    def generate(
        self, prompts: Sequence[Sequence[int]], on_token: TokenCallback, context: Sequence[Sequence[int]] | None = None
    ) -> GenerationResult:
        """Generate a text per prompt. context: for each user the first of the ids that the cache holds, after which its
        prompt goes; the rest of the cache is forgotten. Texts that KeyboardInterrupt ends count nowhere."""
        cached = [0] * len(prompts) if context is None else [*map(len, context)]
        if (told := self.expected([*map(len, prompts)], cached)) is not None:
            logger.info("{}", told)
        engine: Any = self.generator.engine
        with PrefillBar() as bar:
            if not bar.disable:  # to count, the host waits for each chunk of a board
                engine.on_prefill = bar
            return self.generator.generate(
                prompts,
                max_new_tokens=self.options.max_new_tokens,
                sampling=self.options.sampling(),
                eos_token_ids=self.checkpoint.tokenizer.eos_token_ids,
                on_token=on_token,
                context_limit=self.capacity,
                context=context,
            )

    @property
    def cached(self) -> int:
        """Return the tokens of the first user in the cache."""
        return len(self.generator.cached_ids(0))


def run_session(session: Session, prompts: Sequence[Sequence[int]] | None) -> int:
    """Generate once, a text per prompt, and show texts and report, or the JSON object; chat without prompts. Return the
    exit code, 130 where Ctrl-C ended the texts."""
    if prompts is None:
        return chat(session)
    printer = TextsPrinter(session.checkpoint, len(prompts), None if session.options.json else sys.stdout)
    with EndAtToken(session.checkpoint, session.options, printer.push) as ending:
        result = session.generate(prompts, ending)
    printer.finish(result.token_ids)
    longest = max(len(prompt) + len(text) for prompt, text in zip(prompts, result.token_ids, strict=True))
    show_result(session, result, RunReport(session, [result], longest), interrupted=ending.ended)
    return 130 if ending.asked else 0


class Conversation:
    """The messages so far, and the ids that the cache of `session`, of one user, holds."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.results: list[GenerationResult] = []
        self.messages: list[dict[str, str]] = []
        self.cached_ids: list[int] = []

    def reset(self) -> None:
        """Forget the messages and the cache; figures stay."""
        self.messages.clear()
        self.cached_ids = []

    def reply(self, text: str, printer: TextPrinter) -> str:
        """Answer one message of the user through `printer` and return the reply.

        Raises ContextLengthError when the conversation no longer fits; the message is then not part of it.
        KeyboardInterrupt ends the reply where it is and keeps what was said.
        """
        session, tokenizer = self.session, self.session.checkpoint.tokenizer
        message = {"role": "user", "content": text}
        ids = tokenizer.apply_chat_template([*self.messages, message])
        if len(ids) > session.capacity:
            raise ContextLengthError(
                f"the conversation has {len(ids)} tokens, the limit is {session.capacity}; /reset starts anew"
            )
        # The template may render earlier turns otherwise than they were generated: keep what still agrees,
        # and always compute the last token, whose logits are needed.
        kept = min(len(os.path.commonprefix([ids, self.cached_ids])), len(ids) - 1)
        new: list[int] = []

        def push(user: int, token: int) -> None:
            new.append(token)
            printer.push(token)

        ending = EndAtToken(session.checkpoint, session.options, push)
        try:
            with ending:
                self.results.append(session.generate([ids[kept:]], ending, context=[ids[:kept]]))
            told = "stopped" if ending.asked else None
        except KeyboardInterrupt:
            told = "stopped; this reply does not count in the report"
        printer.finish()
        if told:
            logger.info(told)
        self.cached_ids = (ids + new)[: session.cached]
        answer = tokenizer.decode(new)
        self.messages += [message, {"role": "assistant", "content": answer}]
        return answer

    def report(self) -> None:
        """Print the figures over all turns."""
        context = len(self.cached_ids) or max(result.prefill_tokens for result in self.results)
        print_report(RunReport(self.session, self.results, context), ReportConsole())


def chat(session: Session) -> int:
    """Talk until /exit or the end of input, then report over all turns; return the exit code."""
    try:
        import readline  # noqa: F401  input() edits lines and keeps a history once this is imported
    except ImportError:
        logger.debug("no readline: lines cannot be edited")
    talk = Conversation(session)
    # The terminal wraps: a line broken here at a width that is not the terminal's reads, and copies, badly.
    source = escape(session.checkpoint.source)
    ReportConsole().print(f"[bold]{source}[/bold], {session.options.attention} attention\n{HELP}", soft_wrap=True)
    while True:
        try:
            line = input("\n> ").strip()
            if line in ("/exit", "/quit"):
                break
            _answer(talk, line)
        except EOFError:
            break
        except KeyboardInterrupt:
            print("\n/exit ends")
        except UnicodeDecodeError as error:
            print(f"that line is not text: {error}", file=sys.stderr)
        except (UserError, ContextLengthError, ChatTemplateError) as error:
            print(error, file=sys.stderr)
    if talk.results:
        talk.report()
    return 0


def _answer(talk: Conversation, line: str) -> None:
    """Do what one line asks. Raises UserError, and what `Conversation.reply` raises."""
    if line == "/reset":
        talk.reset()
        print("forgotten")
    elif line == "/report" and talk.results:
        talk.report()
    elif line == "/report":
        print("nothing to report: no reply yet")
    elif line.startswith("/"):
        print(HELP)
    elif line:
        talk.reply(utf8("that line", line), TextPrinter(talk.session.checkpoint, sys.stdout))
