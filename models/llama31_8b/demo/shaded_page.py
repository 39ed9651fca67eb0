# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A generated text as one HTML file, each token shaded by its speculation rate (ALSpec paper, figure 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple, Protocol

_CELL = 7  # pixels of a token and layer in the heat map
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.7 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem; } dt { color: #666; } dd { margin: 0; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; } .text span { border-radius: 2px; }
.plain { border-bottom: 1px dotted #999; }
details { color: #666; } .scale span { padding: 0 .6rem; } .map { overflow-x: auto; }
"""


class ShadedToken(NamedTuple):
    """A token's text, and which layers accepted the guess in the step that chose it; None where no layer speculated."""

    text: str
    accepted: Sequence[bool] | None

    @property
    def rate(self) -> float | None:
        """Share of layers that accepted the guess, 0 to 1."""
        return None if self.accepted is None else sum(self.accepted) / len(self.accepted)


class _Decoder(Protocol):
    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class _Tokenizer(Protocol):
    def stream(self, skip_special_tokens: bool = True) -> _Decoder: ...


def shaded_tokens(
    tokenizer: _Tokenizer, token_ids: Sequence[int], decisions: Sequence[Sequence[bool] | None]
) -> list[ShadedToken]:
    """Return tokens with the decisions of the steps that chose them.

    decisions: by token, possibly followed by more (drafts beyond the end of a text). A character of several tokens is
    shown with its last. Raises ValueError when there are fewer decisions than tokens.
    """
    if len(decisions) < len(token_ids):
        raise ValueError(f"{len(decisions)} decisions for {len(token_ids)} tokens")
    decoder = tokenizer.stream(skip_special_tokens=False)
    texts = [decoder.push(token) for token in token_ids]
    if texts:
        texts[-1] += decoder.flush()
    return [ShadedToken(text, accepted) for text, accepted in zip(texts, decisions)]


def colour(rate: float) -> str:
    """Return white for rate 1, deep orange for 0: what stands out needed all of the context."""
    return f"rgb(255, {round(140 + 115 * rate)}, {round(40 + 215 * rate)})"


def shaded_page(facts: Mapping[str, str], prompt: str, tokens: Sequence[ShadedToken]) -> str:
    """Return a page that needs no other file: `facts` as a list, the prompt folded away, the shaded text, and a heat
    map of tokens and layers. All texts are escaped."""
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    scale = "".join(f'<span style="background:{colour(n / 4)}">{n * 25} %</span>' for n in range(5))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Text by speculation rate</title><style>{_STYLE}</style></head><body>
<h1>Text by speculation rate</h1>
<p>The darker a token, the fewer layers accepted the guess (attention over the first and the last cached tokens) in the
step that chose it. Dotted tokens: no layer speculated. Point at a token for its figures.</p>
<dl>{listed}</dl>
<p class="scale">layers that accepted the guess: {scale}</p>
<details><summary>prompt</summary><p class="text">{escape(prompt)}</p></details>
<p class="text">{"".join(_span(number, token) for number, token in enumerate(tokens))}</p>
<h2>Tokens (across) and layers (down): dark where the guess was rejected</h2>
<div class="map">{_heat_map(tokens)}</div>
</body></html>
"""


def _span(number: int, token: ShadedToken) -> str:
    # A zero-width space keeps a token that completes no character in the text, with its figures.
    text = escape(token.text) or "&#8203;"
    if token.accepted is None:
        return f'<span class="plain" title="token {number}: not speculated">{text}</span>'
    taken, layers = sum(token.accepted), len(token.accepted)
    title = f"token {number}: {taken} of {layers} layers, {taken / layers:.0%}"
    return f'<span style="background:{colour(taken / layers)}" title="{title}">{text}</span>'


def _heat_map(tokens: Sequence[ShadedToken]) -> str:
    layers = max((len(token.accepted) for token in tokens if token.accepted is not None), default=0)
    if not layers:
        return "<p>No layer speculated: fewer than two chunks were cached.</p>"
    width, height = len(tokens) * _CELL, layers * _CELL
    dark: list[str] = []
    light: list[str] = []
    for x, token in enumerate(tokens):
        for y, accepted in enumerate(token.accepted or ()):
            (light if accepted else dark).append(f"M{x * _CELL} {y * _CELL}h{_CELL}v{_CELL}h-{_CELL}z")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<rect width="{width}" height="{height}" fill="#eee"/>'
        f'<path fill="{colour(0)}" d="{"".join(dark)}"/><path fill="#fff" d="{"".join(light)}"/></svg>'
    )
