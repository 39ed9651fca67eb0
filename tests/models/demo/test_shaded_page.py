# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""--html: the page of a text shaded by speculation rate."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from models.llama31_8b.demo import cli
from models.llama31_8b.demo.shaded_page import colour, shaded_page, text_page
from tests.support.gguf_files import untied, write_hf_folder


class Spans(HTMLParser):
    """Titles of the spans that are tokens, and everything a browser would fetch."""

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
    tokens = [("<b>", None), (" & one", [True, False, False, False]), ("", [True] * 4)]
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
    assert colour(0) == "rgb(255, 140, 40)" and colour(1) == "rgb(255, 255, 255)"
    for nothing in ([("a", None)], []):
        assert "fewer than two chunks" in shaded_page({}, "", nothing)


def test_too_few_decisions_are_refused():
    with pytest.raises(ValueError, match="1 decisions for 2 tokens"):
        text_page({}, None, [], [1, 2], [None])


@pytest.mark.parametrize("drafting", [(), ("--draft", "ngram", "--no-adapt")])
def test_the_demo_writes_it(tmp_path, drafting):
    write_hf_folder(tmp_path / "model", untied(eos_token_ids=()))
    path = tmp_path / "page.html"
    arguments = ["--chunk-size", "32", "--raw", "--max-new-tokens", "8", "--threshold", "0.9", *drafting]
    prompt = ["--prompt", "the and the in 12 " * 12]
    model = ["--device", "cpu", "--model", str(tmp_path / "model")]
    assert cli.main([*model, *arguments, *prompt, "--html", str(path)]) == 0
    spans = Spans(path.read_text(encoding="utf-8"))
    assert len(spans.titles) == 8
    assert spans.titles[0] == "token 0: not speculated", "the first token comes from the prefill"
    assert all("of 2 layers" in title for title in spans.titles[1:])
