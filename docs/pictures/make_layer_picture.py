# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draw one layer on a pair of chips when a guess is accepted and when it is rejected:

    python docs/pictures/make_layer_picture.py

writes layer_on_a_pair.svg beside this file.
"""

from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT, ROW, LEFT = 1000, 470, 46, 110
BOTH, GUESS, EXACT, AFTER, SKIPPED = "#d9dee7", "#f6c667", "#7fb2e5", "#8fca97", "#ffffff"
# Boxes of a chip: (start, width, text, colour), in pixels right of LEFT.
BEFORE = (0, 110, "KV cache", BOTH)
FIRST = [BEFORE, (118, 90, "guess", GUESS), (216, 250, "the rest of exact attention", EXACT)]
VERIFY = (474, 70, "verify", EXACT)
WORKS = (216, 260, "projection, MLP, next norm and QKV", AFTER)
OUTCOMES = [
    (
        "Guess accepted: the receiver is already done with the layer; the sender skips it",
        [*FIRST, VERIFY, (552, 120, "skipped (gate)", SKIPPED)],
        [BEFORE, (118, 90, "waits", SKIPPED), WORKS],
        "residual, Q, K, V",
        1,
    ),
    (
        "Guess rejected: the sender goes on with the exact result; the receiver's work is overwritten",
        [*FIRST, VERIFY, (552, 260, "projection, MLP, next norm and QKV", AFTER)],
        [BEFORE, (118, 90, "waits", SKIPPED), WORKS],
        "residual, Q, K, V",
        0,
    ),
]


def text(x: float, y: float, words: str, size: int = 13, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
    )


def box(x: float, y: float, width: float, words: str, colour: str) -> str:
    dashes = ' stroke-dasharray="4 3"' if colour == SKIPPED else ""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{ROW - 10}" rx="4" fill="{colour}" stroke="#555"{dashes}/>'
        + text(x + width / 2, y + 23, words, anchor="middle")
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#222" stroke-width="1.6" marker-end="url(#tip)"/>'


def picture() -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#222"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(16, 28, "One layer of a decode step on a pair of chips", 18, weight="bold"),
    ]
    y = 52
    for title, sender, receiver, sent, holder in OUTCOMES:
        parts.append(text(16, y + 16, title, 14, weight="bold"))
        rows = (y + 30, y + 30 + ROW + 24)
        for top, name, steps in zip(rows, ("sender", "receiver"), (sender, receiver), strict=True):
            parts.append(text(16, top + 23, name))
            parts += [box(LEFT + start, top, width, words, colour) for start, width, words, colour in steps]
        end = LEFT + (690 if holder == 1 else 826)
        parts.append(arrow(LEFT + 200, rows[0] + ROW - 10, LEFT + 224, rows[1]))
        parts.append(text(LEFT + 232, rows[0] + ROW + 10, "guess"))
        up = (rows[1], rows[0] + ROW - 10) if holder == 1 else (rows[0] + ROW - 10, rows[1])
        parts.append(arrow(end, up[0], end, up[1]))
        parts.append(text(end - 8, rows[0] + ROW + 10, sent, anchor="end"))
        y += 180
    parts.append(text(16, y + 16, "Legend:", weight="bold"))
    x = 90
    for colour, words, width in (
        (BOTH, "on both chips, so that both caches stay equal", 290),
        (GUESS, "first + last S keys", 130),
        (EXACT, "all keys", 60),
        (AFTER, "after attention", 100),
        (SKIPPED, "no work", 60),
    ):
        parts.append(f'<rect x="{x}" y="{y + 4}" width="16" height="16" fill="{colour}" stroke="#555"/>')
        parts.append(text(x + 22, y + 17, words))
        x += width + 40
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("layer_on_a_pair.svg").write_text(picture(), encoding="utf-8")
