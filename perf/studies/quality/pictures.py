# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of what was measured: acceptance by layer (ALSpec paper, figure 3b), quality and hit rate over the threshold
(table 1's shape), hit rate over keys read, one generation as a heat map and as the demo's shaded page (figure 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  the backend is chosen first: no display is needed

from models.llama31_8b.demo.shaded_page import text_page  # noqa: E402
from models.llama31_8b.reference.alspec.policies import ALSpecAttention  # noqa: E402
from models.llama31_8b.reference.generate import generate  # noqa: E402
from perf.lib.tables import Table  # noqa: E402

from .perplexity import split_rates  # noqa: E402
from .study import Study  # noqa: E402

Row = dict[str, str]
THRESHOLD = 0.10  # of the generation: the paper's choice


def draw(study: Study, tables: dict[str, Table]) -> list[Path]:
    """Draw every picture whose measurements are there, and one generation. Returns the files, in the output folder."""
    folder = study.settings.out
    files = []
    rows = tables["perplexity"].rows() if "perplexity" in tables else []
    mine = {"tail_alignment": study.settings.tail, "predictor": study.settings.predictor}
    rows = [row for row in rows if row.items() >= mine.items()]
    if rows:
        files += [layers(rows, folder / "layers.png"), thresholds(rows, folder / "thresholds.png")]
    if "predictors" in tables and (rows := tables["predictors"].rows()):
        files.append(keys_read(rows, folder / "predictors.png"))
    return files + generation(study, folder)


def _figure(path: Path, paint: Callable[[Sequence[plt.Axes]], None], columns: int = 1) -> Path:
    figure, axes = plt.subplots(1, columns, figsize=(6.5 * columns, 4), layout="constrained", squeeze=False)
    paint(axes[0])
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _series(rows: Iterable[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def _mean(rows: Sequence[Row], column: str) -> float:
    return sum(float(row[column]) for row in rows) / len(rows)


def layers(rows: Sequence[Row], path: Path) -> Path:
    """Draw the hit rate by layer at each finite threshold above 0, of the longest context and the middle chunk size."""
    context = max((row["context"] for row in rows), key=int)
    rows = [row for row in rows if row["context"] == context and 0 < float(row["threshold"]) < float("inf")]
    sizes = sorted({row["chunk_size"] for row in rows}, key=int)
    size = sizes[len(sizes) // 2]

    def paint(axes: Sequence[plt.Axes]) -> None:
        for (threshold,), same in _series([row for row in rows if row["chunk_size"] == size], "threshold").items():
            rates = [split_rates(row["hit_rate_by_layer"]) for row in same]
            means = [100 * sum(layer) / len(layer) for layer in zip(*rates)]
            axes[0].plot(means, marker=".", label=threshold)
        axes[0].set(
            xlabel="layer",
            ylabel="guesses accepted (%)",
            ylim=(0, 100),
            title=f"{rows[0]['model']}, {context} tokens, S = {size}",
        )
        axes[0].legend(title="threshold", fontsize="small")

    return _figure(path, paint)


def thresholds(rows: Sequence[Row], path: Path) -> Path:
    """Draw hit rate and divergence from exact attention over the threshold; a line per context and chunk size."""
    finite = [row for row in rows if float(row["threshold"]) < float("inf")]

    def paint(axes: Sequence[plt.Axes]) -> None:
        for (context, size), same in _series(finite, "context", "chunk_size").items():
            points = _series(same, "threshold")
            x = [float(threshold) for (threshold,) in points]
            for axis, column, scale in zip(axes, ("hit_rate", "divergence"), (100, 1)):
                axis.plot(
                    x,
                    [scale * _mean(p, column) for p in points.values()],
                    marker=".",
                    label=f"{context}, S = {size}",
                )
        axes[0].set(xlabel="threshold", ylabel="guesses accepted (%)", ylim=(0, 100))
        axes[1].set(xlabel="threshold", ylabel="KL from exact attention (nats per token)")
        axes[0].legend(title="context", fontsize="small")

    return _figure(path, paint, columns=2)


def keys_read(rows: Sequence[Row], path: Path) -> Path:
    """Draw the hit rate over the keys that a guess reads, a line per predictor, at the threshold nearest to the paper's
    choice."""
    context = max((row["context"] for row in rows), key=int)
    threshold = min((row["threshold"] for row in rows), key=lambda text: abs(float(text) - THRESHOLD))
    rows = [row for row in rows if row["context"] == context and row["threshold"] == threshold]

    def paint(axes: Sequence[plt.Axes]) -> None:
        for (name,), same in _series(rows, "predictor").items():
            points = _series(same, "keys")
            axes[0].plot(
                [int(keys) for (keys,) in points],
                [100 * _mean(p, "hit_rate") for p in points.values()],
                marker=".",
                label=name,
            )
        axes[0].set(
            xlabel=f"keys read of up to {context}",
            ylabel=f"guesses accepted (%), threshold {threshold}",
            ylim=(0, 100),
        )
        axes[0].legend(fontsize="small")

    return _figure(path, paint)


def generation(study: Study, folder: Path) -> list[Path]:
    """Draw one greedy text after the first window under attention-level speculation: generation.html and
    heat_map.png."""
    settings = study.settings
    context, size = settings.contexts[0], settings.chunk_sizes[0]
    prompt = study.window(context, study.starts(context)[0])[: context - settings.new_tokens]
    policy = ALSpecAttention(THRESHOLD, settings.guess_range(size))
    made = generate(
        study.loaded.model, [prompt], max_new_tokens=settings.new_tokens, policy=policy, eos_token_ids=()
    ).token_ids[0]
    decisions = policy.statistics.decisions_per_token()
    rate = policy.statistics.hit_rate
    facts = {
        "model": study.loaded.config.name,
        "threshold": f"{THRESHOLD:g}",
        "chunk size": str(size),
        "hit rate": "nothing verified" if rate is None else f"{rate:.1%}",
    }
    tokenizer = study.loaded.tokenizer
    page = folder / "generation.html"
    page.write_text(text_page(facts, tokenizer, prompt, made, [None, *decisions]), encoding="utf-8")
    taken = [[float(taken) for taken in layers] for layers in decisions if layers is not None]
    if not taken:
        return [page]

    def paint(axes: Sequence[plt.Axes]) -> None:
        axes[0].imshow(list(zip(*taken)), aspect="auto", cmap="Oranges_r", vmin=-0.5, vmax=1, interpolation="nearest")
        axes[0].set(
            xlabel="token",
            ylabel="layer",
            title=f"dark: rejected ({context} tokens, S = {size}, threshold {THRESHOLD:g})",
        )

    return [page, _figure(folder / "heat_map.png", paint)]
