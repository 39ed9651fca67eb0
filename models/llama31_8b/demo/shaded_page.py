# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A generated text as one HTML file, each token shaded by its speculation rate (ALSpec paper, figure 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from ..checkpoint.tokenizer import Tokenizer

# Which layers accepted the guess in the step of a token; None where no layer speculated.
Decision = Optional[Sequence[bool]]  # noqa: UP045 (read when it runs)

_CELL = 7  # pixels of a token and layer in the heat map
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Text by speculation rate</title><style>
:root {{ color-scheme: light; }}
body {{ font: 16px/1.7 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
dl {{ display: grid; grid-template-columns: max-content auto; gap: 0 1rem; }} dd {{ margin: 0; }}
.text {{ white-space: pre-wrap; overflow-wrap: anywhere; }} .plain {{ border-bottom: 1px dotted #999; }}
.scale span {{ padding: 0 .6rem; }} .map {{ overflow-x: auto; }}
</style></head><body>
<h1>Text by speculation rate</h1>
<p>The darker a token, the fewer layers accepted the guess (attention over the first and the last cached tokens) in the
step that chose it. Dotted tokens: no layer speculated. Point at a token for its figures.</p>
<dl>{facts}</dl>
<p class="scale">layers that accepted the guess: {scale}</p>
<details><summary>prompt</summary><p class="text">{prompt}</p></details>
<p class="text">{text}</p>
<h2>Tokens (across) and layers (down): dark where the guess was rejected</h2>
<div class="map">{map}</div>
</body></html>
"""


def text_page(
    facts: Mapping[str, str],
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    tokens: Sequence[int],
    decisions: Sequence[Decision],
) -> str:
    """Return the page of a text. decisions: by token, of the steps that chose them, possibly followed by more (drafts
    beyond the end of a text). A character of several tokens is shown with its last. Raises ValueError when there are
    fewer decisions than tokens."""
    if len(decisions) < len(tokens):
        raise ValueError(f"{len(decisions)} decisions for {len(tokens)} tokens")
    decoder = tokenizer.stream(skip_special_tokens=False)
    texts = [decoder.push(token) for token in tokens]
    if texts:
        texts[-1] += decoder.flush()
    return shaded_page(facts, tokenizer.decode(prompt), list(zip(texts, decisions)))


def shaded_page(facts: Mapping[str, str], prompt: str, tokens: Sequence[tuple[str, Decision]]) -> str:
    """Return a page that needs no other file: `facts` as a list, the prompt folded away, the shaded text, and a heat
    map of tokens and layers. tokens: texts with the decisions of their steps. All texts are escaped."""
    return _PAGE.format(
        facts="".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items()),
        scale="".join(f'<span style="background:{colour(n / 4)}">{n * 25} %</span>' for n in range(5)),
        prompt=escape(prompt),
        text="".join(_span(number, *token) for number, token in enumerate(tokens)),
        map=_heat_map([accepted for _, accepted in tokens]),
    )


def colour(rate: float) -> str:
    """Return white for rate 1, deep orange for 0: what stands out needed all of the context."""
    return f"rgb(255, {round(140 + 115 * rate)}, {round(40 + 215 * rate)})"


def _span(number: int, text: str, accepted: Decision) -> str:
    # A zero-width space keeps a token that completes no character in the text, with its figures.
    text = escape(text) or "&#8203;"
    if accepted is None:
        return f'<span class="plain" title="token {number}: not speculated">{text}</span>'
    taken, layers = sum(accepted), len(accepted)
    title = f"token {number}: {taken} of {layers} layers, {taken / layers:.0%}"
    return f'<span style="background:{colour(taken / layers)}" title="{title}">{text}</span>'


def _heat_map(decisions: Sequence[Decision]) -> str:
    layers = max((len(accepted) for accepted in decisions if accepted is not None), default=0)
    if not layers:
        return "<p>No layer speculated: fewer than two chunks were cached.</p>"
    width, height = len(decisions) * _CELL, layers * _CELL
    cells: dict[bool, list[str]] = {False: [], True: []}
    for x, accepted in enumerate(decisions):
        for y, one in enumerate(accepted or ()):
            cells[bool(one)].append(f"M{x * _CELL} {y * _CELL}h{_CELL}v{_CELL}h-{_CELL}z")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<rect width="{width}" height="{height}" fill="#eee"/>'
        f'<path fill="{colour(0)}" d="{"".join(cells[False])}"/><path fill="#fff" d="{"".join(cells[True])}"/></svg>'
    )
