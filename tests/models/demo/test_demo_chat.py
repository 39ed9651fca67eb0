# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Interactive chat: turns share one cache and still say what a fresh run over all messages says."""

import builtins
import os
import signal

from models.llama31_8b.demo import cli
from models.llama31_8b.demo.backends.cpu import ReferenceSession
from models.llama31_8b.demo.chat import Conversation
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.demo.text import TextPrinter
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.load import load_model
from tests.support.gguf_files import write_hf_folder


def conversation(folder, **options) -> Conversation:
    loaded = load_model(folder)
    chosen = DemoOptions(max_new_tokens=6, chunk_size=32, threshold=0.9, **options)
    return Conversation(ReferenceSession(loaded, chosen, chat=True), chosen)


def test_turns_reuse_the_cache_and_equal_a_fresh_run(folder):
    talk = conversation(folder, attention="exact")
    printer = TextPrinter(talk.session.checkpoint, None)
    first = talk.reply("the 12 and the end", printer)
    second = talk.reply("and then?", printer)
    messages = talk.messages[:1] + [{"role": "assistant", "content": first}] + talk.messages[2:3]
    assert [m["role"] for m in talk.messages] == ["user", "assistant"] * 2 and talk.messages[3]["content"] == second
    ids = talk.session.checkpoint.tokenizer.apply_chat_template(messages)
    # The reply's random bytes may be tokenized otherwise when rendered again; the first prompt never is.
    already = talk.results[0].prefill_tokens
    assert talk.results[1].prefill_tokens <= len(ids) - already, "the second turn prefilled the first prompt again"
    fresh = generate(
        talk.session.checkpoint.model,
        [ids],
        max_new_tokens=6,
        eos_token_ids=talk.session.checkpoint.tokenizer.eos_token_ids,
    )
    assert talk.session.checkpoint.tokenizer.decode(fresh.token_ids[0]) == second
    assert talk.cached_ids == (ids + fresh.token_ids[0])[: talk.session.cached]


def test_an_interrupted_reply_stays_in_the_conversation(folder, capsys):
    talk = conversation(folder)
    said = []

    class Interrupting(TextPrinter):
        def push(self, token):
            said.append(token)
            if len(said) == 3:
                raise KeyboardInterrupt

    talk.reply("the end", Interrupting(talk.session.checkpoint, None))
    assert talk.messages[1]["content"] == talk.session.checkpoint.tokenizer.decode(said) and not talk.results
    assert talk.session.policy.statistics.step_count == 0, "what has no result counts nowhere"
    assert len(talk.cached_ids) == talk.session.cached
    talk.reply("go on", TextPrinter(talk.session.checkpoint, None))
    assert len(talk.messages) == 4 and len(talk.results) == 1


def test_a_reply_stopped_by_ctrl_c_counts_in_every_figure(folder):
    """It ends at its next token: hits, misses and speeds are of the same tokens."""
    talk, before = conversation(folder), signal.getsignal(signal.SIGINT)

    class Stopping(TextPrinter):
        def push(self, token):
            os.kill(os.getpid(), signal.SIGINT)

    talk.reply("the 12 and the end " * 10, Stopping(talk.session.checkpoint, None))
    (result,) = talk.results
    assert len(result.token_ids[0]) == 1 and talk.session.policy.statistics.step_count == result.decode_tokens == 0
    assert signal.getsignal(signal.SIGINT) is before
    talk.reply("go on", TextPrinter(talk.session.checkpoint, None))
    assert talk.session.policy.statistics.step_count == sum(result.decode_tokens for result in talk.results)


def test_the_whole_session(folder, terminal, capsys):
    terminal("/report", "the 12", "/help", "", "and?", "/report", "/reset", "again", "/exit")
    assert cli.main(["--model", str(folder), "--chunk-size", "32", "--max-new-tokens", "6"]) == 0
    out = capsys.readouterr().out
    assert ", alspec attention" in out and "forgotten" in out
    assert out.count("/exit ends") == 2, "greeting and /help"
    assert out.count("nothing to report: no reply yet") == 1
    assert out.count("report ──") == 2, "one asked for, one at the end"
    assert f"({3 * 5} tokens, " in out.rsplit("report ──", 1)[1], "decode tokens of all three turns"


def test_lines_that_are_not_utf8_are_named_and_the_session_goes_on(folder, terminal, capsys, monkeypatch):
    """By the C locale such bytes arrive as surrogates; by a UTF-8 one reading them fails."""
    terminal("caf\udce9", "the end", "/exit")
    real, failed = builtins.input, []

    def reading(prompt):
        if not failed:
            failed.append(True)
            b"\xff".decode("utf-8")
        return real(prompt)

    monkeypatch.setattr(builtins, "input", reading)
    assert cli.main(["--model", str(folder), "--max-new-tokens", "2"]) == 0
    shown = capsys.readouterr()
    assert "that line is not text: 'utf-8' codec can't decode byte 0xff" in shown.err
    assert "that line is not UTF-8 text: byte 0xe9 after 3 characters" in shown.err
    assert shown.out.count("report ──") == 1 and "Traceback" not in shown.err


def test_end_of_input_ends_the_session(folder, terminal, capsys):
    terminal()
    assert cli.main(["--model", str(folder)]) == 0
    assert "report" not in capsys.readouterr().out.split("/report", 1)[1]


def test_a_template_that_fails_is_named_and_the_session_goes_on(tmp_path, terminal, capsys):
    write_hf_folder(tmp_path)
    template = "{% if 'bad' in messages[-1].content %}{{ 1 / 0 }}{% endif %}{{ messages[-1].content }}"
    (tmp_path / "chat_template.jinja").write_text(template)
    terminal("bad", "the end", "/exit")
    assert cli.main(["--device", "cpu", "--model", str(tmp_path), "--max-new-tokens", "2"]) == 0
    shown = capsys.readouterr()
    assert "refuses these messages: division by zero" in shown.err and "report ──" in shown.out
