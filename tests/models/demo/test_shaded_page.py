# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""--html: the page of a text shaded by speculation rate."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from models.llama31_8b.demo import cli
from models.llama31_8b.demo.options import DemoOptions, UserError
from models.llama31_8b.demo.shaded_page import ShadedToken, colour, shaded_page, shaded_tokens
from tests.support.gguf_files import untied, write_hf_folder

PROMPT = "the and the in 12 " * 12


class Spans(HTMLParser):
    """Titles and texts of the spans that are tokens, and everything a browser would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], "an element is left open"

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag not in ("meta", "rect", "path"):
            self.open.append(tag)
        if tag == "span" and "title" in given:
            self.titles.append(given["title"])
        self.fetched += [given[name] for name in ("src", "href") if name in given]

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_page_shows_every_token_and_fetches_nothing():
    tokens = [
        ShadedToken("<b>", None),
        ShadedToken(" & one", [True, False, False, False]),
        ShadedToken("", [True] * 4),
    ]
    page = shaded_page({"model": "<tiny>"}, "a <prompt>", tokens)
    spans = Spans(page)
    assert spans.titles == [
        "token 0: not speculated",
        "token 1: 1 of 4 layers, 25%",
        "token 2: 4 of 4 layers, 100%",
    ]
    assert spans.fetched == [] and "url(" not in page and "@import" not in page
    assert "&lt;b&gt;" in page and "a &lt;prompt&gt;" in page and "<b>" not in page
    picture = ElementTree.fromstring(re.search(r"<svg.*</svg>", page, re.S)[0])
    dark, light = (part.get("d").count("M") for part in picture if part.tag.endswith("path"))
    assert (dark, light) == (3, 5)


def test_colours_run_from_orange_to_white():
    assert colour(0) == "rgb(255, 140, 40)" and colour(1) == "rgb(255, 255, 255)"


def test_nothing_speculated_is_said():
    assert "fewer than two chunks" in shaded_page({}, "", [ShadedToken("a", None)])
    assert "fewer than two chunks" in shaded_page({}, "", [])


def test_too_few_decisions_are_refused():
    with pytest.raises(ValueError, match="1 decisions for 2 tokens"):
        shaded_tokens(None, [1, 2], [None])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_hf_folder(folder, untied(eos_token_ids=()))
    return str(folder)


@pytest.mark.parametrize("drafting", [(), ("--draft", "ngram", "--no-adapt")])
def test_the_demo_writes_it(model, tmp_path, capsys, drafting):
    path = tmp_path / "page.html"
    arguments = [
        "--chunk-size",
        "32",
        "--prompt",
        PROMPT,
        "--raw",
        "--max-new-tokens",
        "8",
        "--threshold",
        "0.9",
    ]
    assert cli.main(["--model", model, "--device", "cpu", *arguments, *drafting, "--html", str(path)]) == 0
    spans = Spans(path.read_text(encoding="utf-8"))
    assert len(spans.titles) == 8
    assert spans.titles[0] == "token 0: not speculated", "the first token comes of the prefill"
    assert all("of 2 layers" in title for title in spans.titles[1:])


def test_a_file_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    for path, why in (
        (tmp_path, "takes a file to write"),
        (tmp_path / "none" / "a.html", "there is no folder"),
    ):
        with pytest.raises(UserError, match=why):
            DemoOptions(html=str(path))


@pytest.mark.parametrize(
    "arguments,why",
    [
        (("--attention", "exact", "--prompt", "a"), "this run has exact attention"),
        (("--device", "sim"), "--html does not go with --device sim"),
    ],
)
def test_runs_without_hits_by_token_refuse_it(arguments, why, tmp_path, capsys):
    device = () if "--device" in arguments else ("--device", "cpu")
    assert cli.main([*arguments, *device, "--html", str(tmp_path / "a.html")]) == 2
    assert why in capsys.readouterr().err


def test_a_conversation_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert cli.main(["--device", "cpu", "--html", str(tmp_path / "a.html")]) == 2
    assert "--html shows one text" in capsys.readouterr().err
