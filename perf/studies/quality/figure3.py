# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure figure 3 of the ALSpec paper with your own model: needles found by threshold, acceptance by layer."""

from __future__ import annotations

from tqdm import tqdm

from models.llama31_8b.checkpoint.load import LoadedModel
from perf.lib.tables import Table

from . import needle, perplexity
from .perplexity import split_rates
from .study import Settings, Study, fill
from .texts import Texts


def figure3(loaded: LoadedModel, texts: Texts, settings: Settings) -> str:
    """Measure what needle.csv and perplexity.csv of settings.out lack, and show both in Markdown.

    settings: those of one context and one chunk size. Raises ValueError for a text that is too short or a
    context beyond the model's.
    """
    study, tables = Study(loaded, texts, settings), {}
    (context,), (size,) = settings.contexts, settings.chunk_sizes
    mine = {
        "model": loaded.config.name,
        "context": str(context),
        "chunk_size": str(size),
        "tail_alignment": settings.tail,
        "predictor": settings.predictor,
    }
    for name, part in (("needle", needle), ("perplexity", perplexity)):
        cells = list(part.cells(study))
        table = Table(settings.out / f"{name}.csv", part.KEY, part.VALUES)
        with tqdm(total=len(cells), desc=f"figure 3, {name}", unit="cell") as bar:
            fill(table, cells, lambda: bar.update())
        tables[name] = [row for row in table.rows() if row.items() >= mine.items()]
    lines = [
        f"Figure 3 beside {mine['model']}, {context} tokens, S = {size} "
        "(paper, 16K: 8 of 10 at threshold 0, none by unverified guesses)",
        "",
        "| threshold | needles found | tokens of needles right | hit rate |",
        "|---:|---:|---:|---:|",
    ]
    for threshold in dict.fromkeys(row["threshold"] for row in tables["needle"]):
        same = [row for row in tables["needle"] if row["threshold"] == threshold]
        right = sum(int(row["right"]) for row in same)
        tokens, rate = (sum(float(row[name] or 0) for row in same) / len(same) for name in ("tokens_right", "hit_rate"))
        lines.append(f"| {threshold} | {right} of {len(same)} | {tokens:.1%} | {rate:.1%} |")
    lines += ["", "Guesses accepted by layer (%), first layer first:"]
    for row in tables["perplexity"]:
        if 0 < float(row["threshold"]) < float("inf"):
            rates = " ".join(f"{100 * rate:.0f}" for rate in split_rates(row["hit_rate_by_layer"]))
            lines.append(f"- threshold {row['threshold']}: {rates}")
    return "\n".join(lines) + "\n"
