# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Interactive chat over one key/value cache: a turn prefills only what the conversation added."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from loguru import logger
from rich.markup import escape

from ..config import ChatTemplateError, ContextLengthError
from ..results import GenerationResult
from .options import UserError, utf8
from .report import ReportConsole, RunReport, print_report
from .session import Session
from .text import EndAtToken, TextPrinter

if TYPE_CHECKING:
    from ..checkpoint.load import Checkpoint

HELP = "/exit ends, /reset starts anew, /report shows figures; Ctrl-C stops a reply"


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


def check_chat(checkpoint: Checkpoint) -> None:
    """Raise UserError for a model without a chat template."""
    if not checkpoint.tokenizer.chat_template:
        raise UserError(f"{checkpoint.source} has no chat template to chat with; give --prompt for plain text")


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
