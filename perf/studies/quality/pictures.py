# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of what was measured: acceptance by layer (ALSpec paper, figure 3b), quality and hit rate over the threshold
(table 1's shape), and one generation as a heat map (figure 8)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from models.llama31_8b.reference.generate import generate

from .study import Study, split_rates

THRESHOLD = 0.10  # of the generation: the paper's choice


def draw(study: Study) -> list[Path]:
    """Draw every picture whose measurements are in the output folder, and one generation. Returns the files."""
    settings, files = study.settings, []
    path = settings.out / "perplexity.csv"
    if path.exists():
        rows = pd.read_csv(path, comment="#", dtype={"tail_alignment": str})
        mine = (rows.tail_alignment == settings.tail) & (rows.predictor == settings.predictors[0])
        if len(rows := rows[mine & (rows.threshold > 0) & (rows.threshold < float("inf"))]):
            files = [layers(rows, settings.out / "layers.png"), thresholds(rows, settings.out / "thresholds.png")]
    return files + generation(study, settings.out / "heat_map.png")


def _figure(columns: int = 1) -> tuple[Figure, list]:
    figure = Figure(figsize=(6.5 * columns, 4), dpi=120, layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def layers(rows: pd.DataFrame, path: Path) -> Path:
    """Draw the hit rate by layer at each threshold, of the longest context and the middle chunk size."""
    context, sizes = rows.context.max(), sorted(rows.chunk_size.unique())
    size = sizes[len(sizes) // 2]
    figure, (axes,) = _figure()
    for threshold, same in rows[(rows.context == context) & (rows.chunk_size == size)].groupby("threshold"):
        means = pd.DataFrame([split_rates(cell) for cell in same.hit_rate_by_layer]).mean()
        axes.plot(100 * means, marker=".", label=f"{threshold:g}")
    title = f"{rows.model.iloc[0]}, {context} tokens, S = {size}"
    axes.set(xlabel="layer", ylabel="guesses accepted (%)", ylim=(0, 100), title=title)
    axes.legend(title="threshold", fontsize="small")
    figure.savefig(path)
    return path


def thresholds(rows: pd.DataFrame, path: Path) -> Path:
    """Draw hit rate and divergence from exact attention over the threshold; a line per context and chunk size."""
    figure, axes = _figure(2)
    for (context, size), same in rows.groupby(["context", "chunk_size"]):
        means = same.groupby("threshold")[["hit_rate", "divergence"]].mean()
        axes[0].plot(100 * means.hit_rate, marker=".", label=f"{context}, S = {size}")
        axes[1].plot(means.divergence, marker=".")
    axes[0].set(xlabel="threshold", ylabel="guesses accepted (%)", ylim=(0, 100))
    axes[1].set(xlabel="threshold", ylabel="KL from exact attention (nats per token)")
    axes[0].legend(title="context", fontsize="small")
    figure.savefig(path)
    return path


def generation(study: Study, path: Path) -> list[Path]:
    """Draw which layers accept, by token, in one greedy text after the first window. Returns no file where none did
    verify."""
    settings = study.settings
    context, size = settings.contexts[0], settings.chunk_sizes[0]
    prompt = study.window(context, study.starts(context)[0])[: context - settings.new_tokens]
    policy = settings.policy(THRESHOLD, size, "ends")
    generate(study.loaded.model, [prompt], max_new_tokens=settings.new_tokens, policy=policy, eos_token_ids=())
    taken = [[float(hit) for hit in hits] for hits in policy.statistics.decisions_per_token() if hits is not None]
    if not taken:
        return []
    figure, (axes,) = _figure()
    axes.imshow(list(zip(*taken)), aspect="auto", cmap="Oranges_r", vmin=-0.5, vmax=1, interpolation="nearest")
    title = f"dark: rejected ({context} tokens, S = {size}, threshold {THRESHOLD:g})"
    axes.set(xlabel="token", ylabel="layer", title=title)
    figure.savefig(path)
    return [path]
