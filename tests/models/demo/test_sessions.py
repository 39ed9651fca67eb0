# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts side by side and conversations, whose turns share one cache: on the CPU, and on boards, the whole run but for
the chips, whose model is the reference."""

import builtins
import json
import os
import re
import signal
import sys

import pytest

from models.llama31_8b.config import ContextLengthError, preset
from models.llama31_8b.demo import cli
from models.llama31_8b.demo.backends.cpu import session_on_cpu
from models.llama31_8b.demo.backends.n150 import Plan, expected_prefill, session_on_boards
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.demo.session import Conversation, PrefillBar
from models.llama31_8b.demo.text import TextPrinter, TextsPrinter
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.load import load_model
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.settings import ModelSettings
from tests.support.gguf_files import write_hf_folder
from tests.support.machines import run_json
from tests.support.reference_chips import ReferenceChips, stand_in_for_ttnn
from tests.support.tt_programs import prompt as ids_of

PROMPTS = ["the and the in 12 " * 12, "the end", "12 and the in " * 5]
BLOCK = 32


@pytest.fixture
def chips(monkeypatch, boards, folder) -> list[ReferenceChips]:
    """The models that runs on boards were given."""
    stand_in_for_ttnn(monkeypatch, pytest.importorskip("ttnn"))
    monkeypatch.setattr(MeshShape, "open", lambda *_, **__: None)
    monkeypatch.setattr(MeshShape, "close", lambda *_: None)
    made: list[ReferenceChips] = []

    from models.llama31_8b.tt.model import TtLlama

    def load(loaded, device, settings):
        asked, model = settings.attention, load_model(folder).model
        policy = ALSpecAttention(asked.threshold, asked.chunk_size) if asked.policy == "alspec" else None
        made.append(ReferenceChips(model, settings.users, settings.capacity, BLOCK, policy))
        return made[-1]

    monkeypatch.setattr(TtLlama, "from_host_weights", load)
    return made


both_policies = pytest.mark.parametrize(
    "more", [["--attention", "exact"], ["--threshold", "0.6", "--predictor", "ends"]], ids=["exact", "alspec"]
)
either_interrupt = pytest.mark.parametrize("signals", [True, False], ids=["at its next token", "at once"])
CPU, BOARDS = ["--device", "cpu"], ["--device", "n150", "--mesh", "2x1", "--sample-on", "host"]


@both_policies
def test_texts_side_by_side_are_those_of_each_prompt_alone(capsys, folder, chips, more):
    """On the CPU and on boards, with the same hits, ends and figures. One user ends by --stop, the others go on."""
    common = ["--raw", "--chunk-size", "32", "--max-new-tokens", "9", *more]
    asked = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    unstopped = run_json(capsys, folder, *CPU, *asked, *common)
    # What the second text says early and no other does.
    stop = next(
        text
        for text in (unstopped["texts"][1]["text"][i : i + 2] for i in range(4))
        if not any(text in unstopped["texts"][other]["text"] for other in (0, 2))
    )
    cpu, board = (run_json(capsys, folder, *on, *asked, *common, "--stop", stop) for on in (CPU, BOARDS))
    assert cpu["texts"] == board["texts"] and len(cpu["texts"]) == 3 and "text" not in cpu
    assert [text["finish_reason"] for text in cpu["texts"]].count("stop") == 1
    for number, prompt in enumerate(PROMPTS):
        alone = run_json(capsys, folder, *CPU, "--prompt", prompt, *common, "--stop", stop)
        assert {name: alone[name] for name in ("text", "token_ids", "finish_reason")} == cpu["texts"][number]
        assert "texts" not in alone
    for name in ("hits", "misses", "bypassed", "hit_rate_per_layer", "prefill_tokens", "decode_tokens"):
        assert cpu[name] == board[name]
    assert (cpu["hits"] > 0) == ("exact" not in more) and cpu["options"]["prompt"] == PROMPTS
    # All three users decode in the step that compiles; the second has ended in the next one or later.
    assert board["warm_up_tokens"] == 3 and [model.users for model in chips] == [3]


def test_ctrl_c_ends_every_text_and_says_which_it_ended(capsys, folder, chips, monkeypatch):
    """The second text has come to its end a token before."""
    exact = ["--raw", "--attention", "exact"]
    first = [*CPU, *exact, "--prompt", PROMPTS[0]]
    stop = run_json(capsys, folder, *first, "--max-new-tokens", "3")["text"]
    alone = run_json(capsys, folder, *first, "--max-new-tokens", "30", "--stop", stop)
    count = len(alone["token_ids"])
    assert alone["finish_reason"] == "stop"
    produced = []

    def push(self, user, token):
        produced.append(user)
        if len(produced) == 2 * count + 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TextsPrinter, "push", push)
    for device in (CPU, BOARDS):
        produced.clear()
        asked = ["--prompt", PROMPTS[1], "--prompt", PROMPTS[0], "--stop", stop, *device]
        assert cli.main(["--model", folder, "--json", *exact, *asked]) == 130
        found = json.loads(capsys.readouterr().out)["texts"]
        assert [text["finish_reason"] for text in found] == ["interrupted", "stop"]
        assert [len(text["token_ids"]) for text in found] == [count + 1, count]


@both_policies
def test_a_conversation_on_boards_is_the_one_on_the_cpu(capsys, folder, chips, terminal, more):
    """Replies, refusals and the counts of all turns; later turns prefill whole blocks less than the conversation."""
    said = ["the 12 and the end " * 3, "and then?", "/report", "x" * 2000]
    said += ["the in " * 9, "/reset", "the end", "/exit"]
    told = []
    for device in (CPU, BOARDS):
        terminal(*said)
        asked = [*device, "--chunk-size", "32", "--max-new-tokens", "7", *more]
        assert cli.main(["--model", folder, *asked]) == 0
        told.append(capsys.readouterr())
    cpu, board = [re.split(r"\nreport ─+\n", shown.out) for shown in told]
    assert len(cpu) == len(board) == 3, "one report asked for, one at the end"
    assert cpu[0].split("\n", 1)[1] == board[0].split("\n", 1)[1], "the replies of the first two turns"
    for part in (1, 2):
        counts = [re.findall(r"\(\d+ hits, \d+ misses\)|\d+ positions", text[part]) for text in (cpu, board)]
        assert counts[0] == counts[1] and bool(counts[0]) == ("exact" not in more)
        decoded = [re.search(r"decode .*\((\d+) tokens", text[part])[1] for text in (cpu, board)]
        assert int(decoded[0]) == int(decoded[1]) + 1, "the step that compiles is left out, once"
    assert cpu[1].split("> ", 1)[1] == board[1].split("> ", 1)[1], "the replies of the other turns"
    assert all("the limit is 1024; /reset starts anew" in shown.err for shown in told)
    (model,) = chips
    starts = [start for _, start, _ in model.prefilled]
    assert starts[0] == 0 < starts[1] < starts[2] and starts[3:] == [0]
    assert all(start % BLOCK == 0 for start in starts)


class Interrupting(TextPrinter):
    """Ctrl-C at a token: a signal, or as it is raised."""

    def __init__(self, checkpoint, at: int, signals: bool) -> None:
        super().__init__(checkpoint, None)
        self.at, self.signals, self.said = at, signals, []

    def push(self, token):
        self.said.append(token)
        if len(self.said) == self.at:
            if not self.signals:
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)


def on_boards(folder, chips_of=1024) -> Conversation:
    """On boards of one chip, whose cache has so many positions."""
    from models.llama31_8b.tt.generator import Generator

    loaded = load_model(folder)
    chosen = DemoOptions(max_new_tokens=6, chunk_size=32, attention="exact")
    model = ReferenceChips(loaded.model, 1, chips_of, BLOCK)
    generator = Generator(model, sample_on="host", keep_trace=True)
    plan = Plan(MeshShape(1, 1), ModelSettings(), limit=1000)
    return Conversation(session_on_boards(loaded, chosen, generator, plan))


@pytest.fixture
def host_ttnn(monkeypatch):
    stand_in_for_ttnn(monkeypatch, pytest.importorskip("ttnn"))


@either_interrupt
def test_an_interrupted_reply_on_boards_keeps_what_was_said(host_ttnn, folder, signals):
    talk = on_boards(folder)
    loaded, generator = talk.session.checkpoint, talk.session.generator
    talk.reply("the end and the 12 " * 3, Interrupting(loaded, 3, signals))
    held = generator.cached_ids(0)
    assert talk.cached_ids == held and len(talk.results) == int(signals)
    asked = len(loaded.tokenizer.apply_chat_template(talk.messages[:1]))
    assert len(held) == asked + 2, "of three tokens, the last is not in the cache"
    second = talk.reply("go on", TextPrinter(loaded, None))
    ids = loaded.tokenizer.apply_chat_template(talk.messages[:3])
    fresh = generate(loaded.model, [ids], max_new_tokens=6, eos_token_ids=loaded.tokenizer.eos_token_ids)
    assert loaded.tokenizer.decode(fresh.token_ids[0]) == second
    assert generator.engine.model.prefilled[-1][1] == len(held[:asked]) // BLOCK * BLOCK > 0


def test_a_conversation_ends_where_its_context_does(host_ttnn, folder):
    """At the limit asked for, or where the cache is full."""
    for chips_of, limit in ((1024, 1000), (96, 96)):
        talk = on_boards(folder, chips_of)
        loaded = talk.session.checkpoint
        assert talk.session.capacity == limit
        with pytest.raises(ContextLengthError, match=f"the limit is {limit}"):
            talk.reply("x" * limit, TextPrinter(loaded, None))
        assert talk.messages == []
    start = len(loaded.tokenizer.apply_chat_template([{"role": "user", "content": ""}]))
    talk.reply("x" * (limit - start - 2), TextPrinter(loaded, None))
    assert talk.results[0].finish_reason == ["context"] and len(talk.results[0].token_ids[0]) == 3


def test_a_draft_model_goes_behind_what_its_cache_holds(monkeypatch, host_ttnn):
    """Its cache is a round behind the target's: whole blocks of what both have are kept."""
    from models.llama31_8b.tt.spec_decode import drafters

    monkeypatch.setattr(drafters, "Sampler", lambda *_: None)
    model = ReferenceChips(ReferenceLlama.random(TINY, seed=3), 2, 128, BLOCK)
    drafter = drafters.ModelDrafter(model, prefill_chunk=32)
    for prompts, known, chunks in (
        ([ids_of(70, 1), ids_of(64, 2)], [0, 0], [(0, 0, 32), (0, 32, 32), (0, 64, 6), (1, 0, 32), (1, 32, 32)]),
        ([ids_of(75, 1), ids_of(70, 2)], [66, 65], [(0, 64, 11), (1, 64, 6)]),
        ([ids_of(33, 3)], [0], [(0, 0, 32), (0, 32, 1)]),
    ):
        model.prefilled.clear()
        drafter.prefill(prompts, known, 128)
        assert model.prefilled == chunks


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_the_progress_of_prompts(capsys, monkeypatch, folder, chips, terminal):
    """Tokens of both prompts count together, once a chunk of 2,048; without a terminal no chip is waited for."""
    waited: list[object] = []
    monkeypatch.setattr(pytest.importorskip("ttnn"), "synchronize_device", waited.append)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    shown: list[tuple[int, int]] = []
    monkeypatch.setattr(PrefillBar, "__call__", lambda bar, *counts: shown.append(counts))
    asked = ["--raw", "--max-new-tokens", "2", "--prompt", PROMPTS[0], "--prompt", PROMPTS[1]]
    assert cli.main(["--model", folder, "--json", *BOARDS, *asked]) == 0
    counts = [tokens for _, _, tokens in chips[0].prefilled]
    assert len(counts) == 2
    expected = [(counts[0], sum(counts)), (sum(counts), sum(counts))]
    assert (shown, len(waited)) == ((expected, 2) if terminal else ([], 0))


def test_a_long_prefill_is_announced_with_what_is_projected(capsys, monkeypatch, folder, chips):
    """In the log, before the prompt; of each user's prompt after what is cached. Not for the tiny model of `folder`."""

    def told(prompts, cached, mesh=(1, 1), precision="performance", layers=32) -> str | None:
        plan = Plan(MeshShape(*mesh), ModelSettings(precision=precision), limit=131072)
        return expected_prefill(plan, preset("llama-3.1-8b").with_layers(layers), prompts, cached)

    assert told([65536], [0]) == "prefill of 65536 tokens, projected for N150 boards: at least 24.7 s"
    later, both, whole = told([65536], [65536]), told([65536] * 2, [0, 0]), told([131072], [0])
    assert [text.split()[-2] for text in (later, both, whole)] == ["57.5", "49.5", "82.3"]
    assert told([65536], [0], mesh=(2, 4), layers=2).endswith(" 0.6 s")
    assert told([2047, 10], [0, 0]) is None and told([65536], [0], precision="accuracy") is None
    asked = ["--model", folder, "--raw", "--max-new-tokens", "2", "--prompt", PROMPTS[1], *BOARDS]
    assert cli.main(asked) == 0 and "projected" not in capsys.readouterr().err
    monkeypatch.setattr("models.llama31_8b.demo.backends.n150.expected_prefill", lambda *asked: f"{asked[2:]}")
    assert cli.main(asked) == 0
    (length,) = {tokens for _, _, tokens in chips[0].prefilled}
    assert f"([{length}], [0])" in capsys.readouterr().err


@either_interrupt
def test_an_interrupted_reply_counts_as_its_result_does(folder, signals):
    """It ends at its next token, and hits, misses and speeds are of the same tokens; or at once, and counts nowhere."""
    chosen = DemoOptions(max_new_tokens=6, chunk_size=32, threshold=0.9)
    talk = Conversation(session_on_cpu(load_model(folder), chosen, chats=True))
    before = signal.getsignal(signal.SIGINT)
    printer = Interrupting(talk.session.checkpoint, 3, signals)
    talk.reply("the 12 and the end " * 10, printer)
    assert talk.messages[1]["content"] == talk.session.checkpoint.tokenizer.decode(printer.said)
    assert len(talk.results) == int(signals) and len(talk.cached_ids) == talk.session.cached
    assert signal.getsignal(signal.SIGINT) is before
    talk.reply("go on", TextPrinter(talk.session.checkpoint, None))
    assert len(talk.messages) == 4 and len(talk.results) == 1 + int(signals)
    assert all(len(result.statistics.steps) == result.decode_tokens for result in talk.results)


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
