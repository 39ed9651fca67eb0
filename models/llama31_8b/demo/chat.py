# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Interactive chat over one key/value cache: a turn only prefills what the conversation added."""

from __future__ import annotations

import sys

from loguru import logger
from rich.console import Console
from rich.markup import escape

from models.llama31_8b.errors import ContextLengthError
from models.llama31_8b.reference.alspec.policies import AttentionPolicy
from models.llama31_8b.results import GenerationResult

from ..weights import LoadedModel
from .drafting import make_drafter
from .generation import generate_texts
from .options import DemoOptions, UserError
from .report import ReportConsole, make_report, print_report
from .text import EndAtToken, TextPrinter, token_callback

# A cache for the whole 128K context of a Llama 3.1 takes gigabytes; --max-context asks for more.
DEFAULT_CONTEXT = 8192
HELP = "/exit ends, /reset forgets the conversation, /report shows the figures so far; Ctrl-C stops a reply"


class Conversation:
    """Messages so far, and the cache with the ids it holds."""

    def __init__(self, loaded: LoadedModel, options: DemoOptions, policy: AttentionPolicy) -> None:
        self.loaded, self.options, self.policy = loaded, options, policy
        limit = loaded.config.max_position_embeddings
        self.cache = loaded.model.new_cache(
            capacity=limit if options.max_context else min(limit, DEFAULT_CONTEXT)
        )
        self.drafter = make_drafter(loaded, options)
        self.results: list[GenerationResult] = []
        self.messages: list[dict[str, str]] = []
        self.cached_ids: list[int] = []

    def reset(self) -> None:
        """Forget the messages and the cache; figures stay."""
        self.messages.clear()
        self._keep(0)

    def reply(self, text: str, printer: TextPrinter) -> str:
        """Answer one message of the user through `printer`; returns the reply.

        Raises ContextLengthError when the conversation no longer fits; the message is then not part of it.
        KeyboardInterrupt ends the reply where it is and keeps what was said.
        """
        tokenizer = self.loaded.tokenizer
        message = {"role": "user", "content": text}
        ids = tokenizer.apply_chat_template([*self.messages, message])
        if len(ids) > self.cache.capacity:
            raise ContextLengthError(
                f"the conversation has {len(ids)} tokens, the limit is {self.cache.capacity}"
            )
        # The template may render earlier turns otherwise than they were generated: keep what still agrees,
        # and always compute the last token, whose logits are needed.
        self._keep(min(_common_prefix(ids, self.cached_ids), len(ids) - 1))
        new: list[int] = []

        def push(user: int, token: int) -> None:
            new.append(token)
            printer.push(token)

        kept, statistics = len(self.cached_ids), self.policy.statistics
        steps = statistics.step_count if statistics else 0
        ending = EndAtToken(token_callback(self.loaded, self.options, push))
        try:
            with ending:
                result = generate_texts(
                    self.loaded,
                    self.options,
                    self.policy,
                    [ids[kept:]],
                    ending,
                    cache=self.cache,
                    context=[ids[:kept]],
                    drafter=self.drafter,
                )
            self.results.append(result)
            if ending.asked:
                logger.info("stopped")
        except KeyboardInterrupt:
            logger.info("stopped; this reply does not count in the report")
            if statistics:
                statistics.forget_after(steps)
        printer.finish()
        self.cached_ids = (ids + new)[: int(self.cache.lengths[0])]
        answer = tokenizer.decode(new)
        self.messages += [message, {"role": "assistant", "content": answer}]
        return answer

    def _keep(self, length: int) -> None:
        self.cache.truncate(length)
        self.cached_ids = self.cached_ids[:length]


def chat(loaded: LoadedModel, options: DemoOptions, policy: AttentionPolicy) -> int:
    """Talk until /exit or end of input, then report over all turns. Returns the exit code.

    Raises UserError for a model without a chat template.
    """
    if not loaded.tokenizer.chat_template:
        raise UserError(f"{loaded.source} has no chat template to chat with; give --prompt for plain text")
    _enable_line_editing()
    conversation = Conversation(loaded, options, policy)
    console = ReportConsole(file=sys.stdout, highlight=False)
    # The terminal wraps: a line broken here at a width that is not the terminal's reads, and copies, badly.
    console.print(
        f"[bold]{escape(loaded.source)}[/bold] with {options.attention} attention. {HELP}", soft_wrap=True
    )
    while True:
        try:
            line = input("\n> ").strip()
        except EOFError:
            break
        except KeyboardInterrupt:
            print()
            continue
        if line in ("/exit", "/quit"):
            break
        if line == "/reset":
            conversation.reset()
            print("forgotten")
        elif line == "/report":
            if conversation.results:
                _report(conversation, console)
            else:
                print("nothing to report: no reply yet")
        elif line.startswith("/"):
            print(HELP)
        elif line:
            try:
                conversation.reply(line, TextPrinter(loaded, sys.stdout))
            except ContextLengthError as error:
                print(f"{error}; /reset starts anew", file=sys.stderr)
    if conversation.results:
        _report(conversation, console)
    return 0


def _report(conversation: Conversation, console: Console) -> None:
    context = len(conversation.cached_ids) or max(result.prefill_tokens for result in conversation.results)
    report = make_report(
        conversation.loaded.source,
        conversation.options,
        conversation.results,
        context,
        conversation.policy.statistics,
    )
    print_report(report, console)


def _common_prefix(a: list[int], b: list[int]) -> int:
    length = min(len(a), len(b))
    return next((index for index in range(length) if a[index] != b[index]), length)


def _enable_line_editing() -> None:
    try:
        import readline  # noqa: F401  input() edits lines and keeps a history once this is imported
    except ImportError:
        logger.debug("no readline: lines cannot be edited")
